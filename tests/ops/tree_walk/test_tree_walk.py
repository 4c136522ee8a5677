import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from drafttree.ops.tree_walk import walk_by_doubling, walk_nodes


@st.composite
def trees_with_choices(draw, max_nodes=40):
    """A random tree whose siblings differ, and choices that usually name a child."""
    count = draw(st.integers(0, max_nodes))
    random = draw(st.randoms(use_true_random=False))
    reach = random.choice([1, 3, 100])  # 1 makes chains, 100 makes bushes
    tokens, parents, depths, taken = [], [], [0], {0: set()}
    for node in range(1, count + 1):
        parent = random.randint(max(0, node - reach), node - 1)
        token = random.choice([t for t in range(count + 2) if t not in taken[parent]])
        taken[parent].add(token)
        taken[node] = set()
        tokens.append(token)
        parents.append(parent)
        depths.append(depths[parent] + 1)
    choices = [
        random.choice(sorted(taken[node])) if taken[node] and random.random() < 0.9 else 999
        for node in range(count + 1)
    ]
    return tokens, parents, depths[1:], choices


def by_recursion(tokens, parents, choices, node=0):
    for child, (token, parent) in enumerate(zip(tokens, parents, strict=True), start=1):
        if parent == node and token == choices[node]:
            return [node, *by_recursion(tokens, parents, choices, child)]
    return [node]


@settings(max_examples=300, deadline=None)
@given(trees_with_choices())
def test_both_walks_are_the_recursion(case):
    tokens, parents, depths, choices = case
    expected = by_recursion(tokens, parents, choices)
    assert walk_nodes(tokens, parents, choices) == (expected, choices[expected[-1]])
    integers = [torch.tensor(part, dtype=torch.int64) for part in (tokens, parents, depths, choices)]
    path, length, bonus = walk_by_doubling(*integers)
    assert path.shape == (len(tokens) + 1,)
    assert path.tolist() == expected + [-1] * (len(tokens) + 1 - len(expected))
    assert int(length) == len(expected)
    assert int(bonus) == choices[expected[-1]]


@pytest.mark.parametrize("length", [1, 2, 3, 4, 7, 8, 9, 64, 1000])
def test_a_whole_chain_is_accepted(length):
    tokens = torch.arange(100, 100 + length)
    parents = torch.arange(length)
    choices = torch.cat([tokens, torch.tensor([5])])
    path, count, bonus = walk_by_doubling(tokens, parents, parents + 1, choices)
    assert path.tolist() == list(range(length + 1))
    assert (int(count), int(bonus)) == (length + 1, 5)


def test_a_match_below_a_rejected_node_is_not_taken():
    tokens, parents = [1, 2, 3], [0, 1, 0]
    assert walk_nodes(tokens, parents, [3, 2, 0, 8]) == ([0, 3], 8)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_the_walk_on_a_device_does_not_wait():
    tokens = torch.arange(32, device="cuda")
    parents = torch.arange(32, device="cuda")
    choices = torch.arange(33, device="cuda")
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        path, length, bonus = walk_by_doubling(tokens, parents, parents + 1, choices)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert (path.tolist(), int(length), int(bonus)) == (list(range(33)), 33, 32)
