"""The kernel's trees are those of the specification: every row of every field, equal scores included."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_devices import DEVICE, KERNEL_DEVICES, on_gpu
from tree_build_cases import ABSENT, brute_force, paths_of, tensors_difference

from drafttree.ops.tree_build import TreeTensors, best_first, best_first_pairwise, build_trees
from drafttree.ops.tree_build.batched import build_trees_naive
from drafttree.ops.tree_build.triton import build_trees_triton


def tables(batch, levels, ranks, generator, step=0.0, absent=0.0, pairwise=False):
    """Candidates: distinct tokens, falling scores; with ``pairwise`` also unordered rows below each."""
    tokens = torch.rand(batch, levels, 5000, generator=generator).argsort(-1)[..., :ranks].int()

    def draw(*shape):
        scores = -3.0 * torch.rand(*shape, generator=generator)
        if step:
            scores = torch.round(scores / step) * step
        scores[torch.rand(*shape, generator=generator) < absent] = ABSENT
        return scores

    scores = draw(batch, levels, ranks).sort(dim=-1, descending=True).values
    return tokens, scores, draw(batch, levels, ranks, ranks) if pairwise else None


def both(anchors, tokens, scores, budgets, rows, pairwise, forced, device=DEVICE, taps=3, **options):
    """The kernel's tree tensors, written over garbage, and the specification's."""
    expected = TreeTensors.empty(len(anchors), rows, taps)
    build_trees_naive(anchors, tokens, scores, budgets, pairwise, forced, expected)
    found = TreeTensors.empty(len(anchors), rows, taps, device)
    for part in vars(found).values():
        part.fill_(-1234567)
    inputs = [None if part is None else part.to(device) for part in (anchors, tokens, scores, budgets, pairwise)]
    build_trees_triton(*inputs, forced, found, **options)
    return found, expected


def ragged(batch, rows):
    """Budgets from none to more than fit."""
    return torch.linspace(0, rows, batch).int()


@pytest.mark.parametrize("device", KERNEL_DEVICES)
@pytest.mark.parametrize("step", [0.0, 0.25, 10.0])
@pytest.mark.parametrize(("levels", "ranks", "rows"), [(1, 8, 9), (2, 1, 5), (4, 70, 65), (16, 33, 33), (15, 64, 64)])
def test_node_for_node(device, step, levels, ranks, rows):
    generator = torch.Generator().manual_seed(levels * 100 + rows)
    tokens, scores, _ = tables(4, levels, ranks, generator, step, absent=0.1)
    for forced in (0, levels) if step else (levels // 2,):
        found, expected = both(torch.arange(900, 904), tokens, scores, ragged(4, rows), rows, None, forced, device)
        assert tensors_difference(found, expected) is None
    assert expected.counts[0] == 1 and (expected.counts <= rows).all()


@pytest.mark.parametrize("device", KERNEL_DEVICES)
@pytest.mark.parametrize("levels", [1, 3, 16])
def test_every_spine_length(device, levels):
    generator = torch.Generator().manual_seed(levels)
    tokens, scores, _ = tables(2, levels, 6, generator, step=0.5, absent=0.2)
    for forced in range(levels + 2):
        budgets = torch.tensor([levels + 4, levels - 1]).int()
        found, expected = both(torch.zeros(2).int(), tokens, scores, budgets, 21, None, forced, device)
        assert tensors_difference(found, expected) is None


@pytest.mark.parametrize("device", KERNEL_DEVICES)
@pytest.mark.parametrize("step", [0.0, 0.5, 10.0])
@pytest.mark.parametrize("forced", [0, 2, 5])
def test_pairwise_node_for_node(device, step, forced):
    generator = torch.Generator().manual_seed(forced)
    tokens, scores, pairwise = tables(3, 5, 7, generator, step, absent=0.15, pairwise=True)
    budgets = torch.tensor([40, 11, 3]).int()
    found, expected = both(torch.arange(3), tokens, scores, budgets, 41, pairwise, forced, device)
    assert tensors_difference(found, expected) is None


@settings(max_examples=12, deadline=None)
@given(
    seed=st.integers(0, 2**31),
    levels=st.integers(1, 8),
    ranks=st.integers(1, 12),
    rows=st.integers(1, 24),
    forced=st.integers(0, 9),
    step=st.sampled_from([0.0, 0.25, 1.0, 10.0]),
    absent=st.sampled_from([0.0, 0.3, 1.0]),
    pairwise=st.booleans(),
)
def test_any_small_tree(seed, levels, ranks, rows, forced, step, absent, pairwise):
    generator = torch.Generator().manual_seed(seed)
    tokens, scores, matrix = tables(2, levels, ranks, generator, step, absent, pairwise)
    budgets = torch.randint(0, rows, (2,), generator=generator).int()
    found, expected = both(torch.ones(2).int(), tokens, scores, budgets, rows, matrix, forced, taps=seed % 4)
    assert tensors_difference(found, expected) is None


def test_pairwise_rows_that_repeat_the_marginals_are_the_marginal_tree():
    generator = torch.Generator().manual_seed(1)
    for step in (0.0, 0.5):
        _, scores, _ = tables(1, 6, 9, generator, step)
        pairwise = scores[0][:, None, :].expand(6, 9, 9)
        for forced in (0, 3, 6):
            expected = best_first(scores[0].tolist(), 30, forced)
            assert best_first_pairwise(scores[0, 0].tolist(), pairwise.tolist(), 30, forced) == expected


def test_pairwise_specification_on_a_small_tree():
    scores, row = [-1.0, -2.0], [ABSENT, ABSENT]
    pairwise = [[row, row], [[-3.0, -0.5], [-0.25, ABSENT]]]
    candidates, parents, depths, totals = best_first_pairwise(scores, pairwise, 9, 0)
    assert paths_of(candidates, parents) == [(0,), (0, 1), (1,), (1, 0), (0, 0)]
    assert (depths, totals) == ([1, 2, 1, 2, 2], [-1.0, -1.5, -2.0, -2.25, -4.0])
    assert best_first_pairwise(scores, pairwise, 9, 2)[1] == [0, 1, 0, 3, 1]


def test_the_batched_specification_is_brute_force():
    generator = torch.Generator().manual_seed(2)
    tokens, scores, _ = tables(1, 3, 4, generator, 0.5)
    trees = build_trees(torch.tensor([7]), tokens, scores, torch.tensor([20]).int(), 21, forced=1)
    paths = [path for path, _ in brute_force(scores[0].tolist(), 20, 1)]
    assert int(trees.counts) == len(paths) + 1 and trees.tokens[0, 0] == 7
    row_of = {(): 0} | {path: row for row, path in enumerate(paths, start=1)}
    for path, row in row_of.items():
        ancestors = {row_of[path[:depth]] for depth in range(len(path) + 1)}
        assert {j for j in range(21) if int(trees.ancestors[0, row, 0]) >> j & 1} == ancestors
        back = [row_of[path[: len(path) - j]] if j <= len(path) else len(path) - j for j in (1, 2, 3)]
        assert trees.taps[0, row].tolist() == back
        if path:
            assert trees.tokens[0, row] == tokens[0, len(path) - 1, path[-1]]
            assert (trees.parents[0, row], trees.depths[0, row]) == (row_of[path[:-1]], len(path))


@pytest.mark.parametrize("device", KERNEL_DEVICES)
def test_nothing_to_build(device):
    generator = torch.Generator().manual_seed(3)
    for levels, ranks, rows, absent in [(0, 3, 4, 0.0), (3, 0, 4, 0.0), (3, 3, 1, 0.0), (3, 3, 4, 1.0)]:
        tokens, scores, _ = tables(2, levels, ranks, generator, absent=absent)
        found, expected = both(torch.tensor([5, 6]), tokens, scores, torch.tensor([3, 3]).int(), rows, None, 2, device)
        assert tensors_difference(found, expected) is None
        assert found.counts.tolist() == [1, 1] and found.tokens[:, 0].tolist() == [5, 6]


@pytest.mark.parametrize("device", KERNEL_DEVICES)
def test_sums_that_overflow_are_absent_and_zeros_tie(device):
    tokens = torch.arange(4).view(1, 2, 2).int()
    for values in ([[-3e38, -3.1e38], [-3e38, -3.2e38]], [[-0.0, 0.0], [0.0, -0.0]]):
        scores = torch.tensor([values])
        for forced in (0, 2):
            found, expected = both(
                torch.ones(1).int(), tokens, scores, torch.tensor([8]).int(), 9, None, forced, device
            )
            assert tensors_difference(found, expected) is None


def test_a_wrong_bit_or_parent_is_seen():
    generator = torch.Generator().manual_seed(4)
    tokens, scores, _ = tables(1, 3, 4, generator)
    found, expected = both(torch.ones(1).int(), tokens, scores, torch.tensor([12]).int(), 13, None, 0)
    assert tensors_difference(found, expected) is None
    siblings = (found.parents[0] == 0).nonzero().flatten().tolist()
    found.ancestors[0, siblings[1], 0] ^= 1 << siblings[0]
    assert tensors_difference(found, expected) == f"ancestors at [0, {siblings[1]}, 0]: 1 differ"
    found.parents[0, 5] += 1
    assert tensors_difference(found, expected).startswith("parents at [0, 5]")


def test_arguments_are_checked():
    tokens, scores, _ = tables(2, 3, 4, torch.Generator().manual_seed(5))
    anchors, budgets = torch.zeros(2).int(), torch.ones(2).int()
    wrong = [
        (anchors[:1], tokens, scores, budgets, 4),
        (anchors, tokens.long(), scores, budgets, 4),
        (anchors, tokens, scores[:, :2], budgets, 4),
        (anchors, tokens, scores, budgets.long(), 4),
        (anchors, tokens, scores, budgets, 0),
        (anchors, tokens, scores, budgets, 1025),
    ]
    for arguments in wrong:
        with pytest.raises(ValueError, match="expected"):
            build_trees(*arguments)
    with pytest.raises(ValueError, match="pairwise"):
        build_trees(anchors, tokens, scores, budgets, 4, pairwise=scores)
    build_trees(anchors, tokens, scores, budgets, 40, out=TreeTensors.empty(2, 40))
    with pytest.raises(ValueError, match=r"out\.tokens"):
        build_trees(anchors, tokens, scores, budgets, 40, out=TreeTensors.empty(2, 39))


@pytest.mark.parametrize("device", [on_gpu])
@pytest.mark.parametrize("rows", [64, 128, 257, 1024])
def test_large_trees_and_the_same_bits_again(device, rows):
    generator = torch.Generator().manual_seed(rows)
    for step in (0.0, 0.25):
        tokens, scores, _ = tables(8, 15, 128, generator, step)
        found, expected = both(torch.arange(8), tokens, scores, ragged(8, rows), rows, None, 15, device)
        assert tensors_difference(found, expected) is None
        for _ in range(20):
            again, _ = both(torch.arange(8), tokens, scores, ragged(8, rows), rows, None, 15, device)
            assert tensors_difference(again, expected) is None
