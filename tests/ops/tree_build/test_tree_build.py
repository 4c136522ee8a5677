import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tree_build_cases import ABSENT, brute_force, difference, paths_of, score_tables

from drafttree.ops.tree_build import best_first, best_levelwise
from drafttree.ops.tree_build.naive import add_float32


def levelwise_lists(scores, budget, forced):
    ranks, parents, depths, totals, number = best_levelwise(scores, budget, forced)
    count = int(number)
    assert ranks.shape == parents.shape == depths.shape == totals.shape == (budget,)
    assert not ranks[count:].any() and not parents[count:].any() and not depths[count:].any()
    assert bool((totals[count:] == ABSENT).all())
    return ranks[:count].tolist(), parents[:count].tolist(), depths[:count].tolist(), totals[:count].tolist()


@settings(max_examples=150, deadline=None)
@given(score_tables(max_levels=4, max_ranks=5), st.integers(0, 60), st.integers(0, 5))
def test_heap_is_brute_force(scores, budget, forced):
    ranks, parents, depths, totals = best_first(scores.tolist(), budget, forced)
    expected = brute_force(scores.tolist(), budget, forced)
    assert paths_of(ranks, parents) == [path for path, _ in expected]
    assert totals == [float(total) for _, total in expected]
    assert depths == [len(path) for path, _ in expected]


@settings(max_examples=200, deadline=None)
@given(score_tables(), st.integers(1, 150), st.integers(0, 17))
def test_levelwise_is_the_heap(scores, budget, forced):
    assert difference(levelwise_lists(scores, budget, forced), best_first(scores.tolist(), budget, forced)) is None


@pytest.mark.parametrize("forced", [0, 3, 16])
@pytest.mark.parametrize("step", [0.0, 0.25])
def test_levelwise_is_the_heap_at_the_largest_size(forced, step):
    generator = torch.Generator().manual_seed(7)
    scores = -5 * torch.rand(16, 1024, generator=generator)
    if step:
        scores = torch.round(scores / step) * step
    scores = scores.sort(dim=-1, descending=True).values
    assert difference(levelwise_lists(scores, 1024, forced), best_first(scores.tolist(), 1024, forced)) is None


def test_every_score_equal_goes_by_depth_parent_and_rank():
    scores = [[0.0] * 3] * 2
    ranks, parents, depths, _ = best_first(scores, 8, 0)
    assert paths_of(ranks, parents) == [(0,), (1,), (2,), (0, 0), (0, 1), (0, 2), (1, 0), (1, 1)]
    assert depths == [1, 1, 1, 2, 2, 2, 2, 2]


def test_equal_sums_go_by_the_order_of_the_parents():
    # (0, 1) and (1, 0) both come to -1.5; rank tuples of the parents alone would say the same of (1, 1) and (2, 0).
    scores = [[-0.5, -1.0, -1.25], [-0.5, -1.0, -1.25]]
    ranks, parents, _, _ = best_first(scores, 12, 0)
    paths = paths_of(ranks, parents)
    assert paths.index((0, 1)) < paths.index((1, 0))
    assert paths.index((0, 2)) < paths.index((2, 0))


def test_a_forced_chain_precedes_better_nodes():
    scores = [[-0.1, -0.2], [-9.0, -9.5], [-9.0, -9.5]]
    ranks, parents, _, totals = best_first(scores, 4, 3)
    assert paths_of(ranks, parents) == [(0,), (0, 0), (0, 0, 0), (1,)]
    assert totals[3] > totals[1]


def test_sums_are_rounded_to_float32():
    left = 1.0
    for right in (1e-8, 1e-7, 3e-7, 2**-24, 3 * 2**-24):
        assert add_float32(left, right) == float(torch.tensor(left) + torch.tensor(right))
    assert math.isinf(add_float32(float("-inf"), -1.0))


def test_overflow_of_a_sum_is_absent():
    scores = torch.tensor([[-3e38, -3.1e38], [-3e38, -3.2e38]])
    assert best_first(scores.tolist(), 8, 2) == ([0, 1], [0, 0], [1, 1], scores[0].tolist())
    assert levelwise_lists(scores, 8, 2) == best_first(scores.tolist(), 8, 2)


def test_negative_zero_ties_with_zero():
    scores = torch.tensor([[-0.0, 0.0], [0.0, -0.0]])
    assert levelwise_lists(scores, 6, 0)[:3] == best_first(scores.tolist(), 6, 0)[:3]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_levelwise_on_a_device_neither_waits_nor_differs():
    generator = torch.Generator().manual_seed(3)
    for levels, ranks, budget, forced in [(15, 32, 32, 15), (15, 63, 63, 0), (3, 200, 400, 2)]:
        scores = torch.round(-20 * torch.rand(levels, ranks, generator=generator)) / 4
        scores = scores.sort(dim=-1, descending=True).values
        best_levelwise(scores.cuda(), budget, forced)  # builds the index tables once
        on_device = scores.cuda()
        torch.cuda.synchronize()
        torch.cuda.set_sync_debug_mode("error")
        try:
            result = best_levelwise(on_device, budget, forced)
        finally:
            torch.cuda.set_sync_debug_mode("default")
        count = int(result[4])
        on_device = [part[:count].tolist() for part in result[:4]]
        assert difference(on_device, best_first(scores.tolist(), budget, forced)) is None
