"""Tensors of the meta device have shapes and no values: whatever would read one on the host raises."""

import pytest
import torch

from drafttree.ops.tree_build import best_levelwise
from drafttree.ops.tree_walk import walk_by_doubling
from drafttree.sampling import SamplingParams, choose, coupled_scores
from drafttree.tree.candidates import ranked_candidates
from drafttree.tree.mask import ancestor_mask


def integers(*shape):
    return torch.empty(*shape, dtype=torch.int64, device="meta")


def floats(*shape):
    return torch.empty(*shape, device="meta")


def test_reading_a_meta_tensor_raises():
    for read in (lambda: int(integers(1)), lambda: bool(integers(1).any()), lambda: integers(3)[integers(())]):
        with pytest.raises((RuntimeError, NotImplementedError)):
            read()


@pytest.mark.parametrize(("levels", "vocabulary", "budget", "forced"), [(15, 100, 32, 15), (3, 2, 64, 0), (1, 9, 4, 1)])
def test_building_does_not_wait(levels, vocabulary, budget, forced):
    tokens, scores = ranked_candidates(floats(levels, vocabulary), min(budget, vocabulary))
    assert tokens.shape == scores.shape == (levels, min(budget, vocabulary))
    ranks, parents, depths, totals, number = best_levelwise(scores, budget, forced)
    assert ranks.shape == parents.shape == depths.shape == totals.shape == (budget,)
    assert number.shape == ()
    assert ancestor_mask(parents).shape == (budget + 1, budget + 1)


def test_walking_does_not_wait():
    path, length, bonus = walk_by_doubling(integers(32), integers(32), integers(32), integers(33))
    assert path.shape == (33,) and length.shape == bonus.shape == ()


@pytest.mark.parametrize(
    "options",
    [{}, {"temperature": 1.0}, {"temperature": 0.7, "top_k": 5}, {"temperature": 0.7, "top_k": 5, "top_p": 0.9}],
)
def test_choosing_does_not_wait(options):
    assert choose(floats(33, 100), integers(33), SamplingParams(seed=1, **options)).shape == (33,)
    assert coupled_scores(floats(15, 100), integers(15), 1, 0.7).shape == (15, 100)
