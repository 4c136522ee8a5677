"""The kernel's walks are those of the specification; padding that would fit the path is not looked at."""

import random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_devices import DEVICE, KERNEL_DEVICES, on_gpu

from drafttree.ops.tree_walk import Walks, walk_trees
from drafttree.ops.tree_walk.batched import walk_trees_naive
from drafttree.ops.tree_walk.triton import walk_trees_triton

STYLES = ["mixed", "chain", "star", "deep"]


def random_batch(batch, rows, rng, style="mixed"):
    """Trees of 1 to ``rows`` rows, and choices that usually name a child; padding claims to be children of the path."""
    tokens, parents, choices = (torch.zeros(batch, rows, dtype=torch.int32) for _ in range(3))
    counts = torch.tensor([rng.randint(1, rows) for _ in range(batch)]).int()
    for b in range(batch):
        children = {row: [] for row in range(rows)}
        parents[b, 0], tokens[b, 0] = -1, rng.randrange(50)
        for row in range(1, int(counts[b])):
            reach = {"mixed": row, "chain": 1, "star": row, "deep": min(row, 4)}[style]
            parent = 0 if style == "star" else rng.randint(row - reach, row - 1)
            parents[b, row] = parent
            tokens[b, row] = rng.choice([t for t in range(1, rows + 3) if t not in [c for c, _ in children[parent]]])
            children[parent].append((int(tokens[b, row]), row))
        for row in range(rows):
            named = [token for token, _ in children[row]]
            choices[b, row] = rng.choice(named) if named and rng.random() < 0.9 else rng.choice([0, 5000 + row])
        for row in range(int(counts[b]), rows):
            parents[b, row] = rng.randrange(row)
            tokens[b, row] = choices[b, parents[b, row]]
    return tokens, parents, counts, choices


def both(tokens, parents, counts, choices, longest, device=DEVICE):
    expected, found = Walks.empty(len(tokens), longest), Walks.empty(len(tokens), longest, device)
    for part in vars(found).values():
        part.fill_(-77)
    walk_trees_naive(tokens, parents, counts, choices, expected)
    walk_trees_triton(*(part.to(device) for part in (tokens, parents, counts, choices)), found)
    return found, expected


def same(found, expected):
    return all(torch.equal(getattr(found, name).cpu(), part) for name, part in vars(expected).items())


@pytest.mark.parametrize("device", KERNEL_DEVICES)
@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("rows", [1, 2, 17, 65])
def test_equal_to_the_specification(device, style, rows):
    batch = random_batch(6, rows, random.Random(rows), style)
    found, expected = both(*batch, rows, device)
    assert same(found, expected)
    assert same(*both(*batch[:3], batch[3].long(), rows, device))
    assert same(*both(*batch, 3, device))  # cut
    if rows == 65 and style != "star":
        assert int(expected.lengths.max()) > 3


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**31), rows=st.integers(1, 40), longest=st.integers(1, 20), style=st.sampled_from(STYLES))
def test_any_tree(seed, rows, longest, style):
    assert same(*both(*random_batch(2, rows, random.Random(seed), style), longest))


@pytest.mark.parametrize("device", KERNEL_DEVICES)
def test_rows_of_a_wider_buffer(device):
    tokens, parents, counts, choices = random_batch(3, 20, random.Random(1))
    wide = torch.full((3, 50), -9).int().to(device)
    wide[:, 10:30] = choices.to(device)
    found, expected = both(tokens, parents, counts, choices, 8, device)
    again = Walks.empty(3, 8, device)
    walk_trees_triton(tokens.to(device), parents.to(device), counts.to(device), wide[:, 10:30], again)
    assert same(found, expected) and same(again, expected)


def test_a_wrong_parent_is_seen():
    tokens, parents = torch.tensor([[0, 1, 2, 3]]).int(), torch.tensor([[-1, 0, 1, 2]]).int()
    counts, choices = torch.tensor([4]).int(), torch.tensor([[1, 2, 3, 9]]).int()
    found, expected = both(tokens, parents, counts, choices, 4)
    assert same(found, expected) and found.paths.tolist() == [[0, 1, 2, 3]]
    assert (int(found.lengths), int(found.bonus)) == (4, 9)
    parents[0, 3] = 1
    assert not same(both(tokens, parents, counts, choices, 4)[0], expected)


def test_the_public_function_checks_its_arguments():
    tokens, parents, counts, choices = random_batch(2, 5, random.Random(2))
    assert walk_trees(tokens, parents, counts, choices, 4).paths.shape == (2, 4)
    out = Walks.empty(2, 4)
    assert walk_trees(tokens, parents, counts, choices, 4, out=out) is out
    wrong = [
        (tokens, parents[:, :4], counts, choices, 4),
        (tokens, parents, counts[:1], choices, 4),
        (tokens.long(), parents, counts, choices, 4),
        (tokens, parents, counts, choices.float(), 4),
        (tokens, parents, counts, choices, 0),
    ]
    for arguments in wrong:
        with pytest.raises(ValueError, match="expected"):
            walk_trees(*arguments)
    with pytest.raises(ValueError, match="paths"):
        walk_trees(tokens, parents, counts, choices, 5, out=out)


@pytest.mark.parametrize("device", [on_gpu])
@pytest.mark.parametrize("rows", [129, 257])
def test_large_trees(device, rows):
    for seed in range(10):
        for style in STYLES:
            assert same(*both(*random_batch(8, rows, random.Random(seed), style), rows, device))
