"""First differences between outputs, and the target's own gap there."""

from __future__ import annotations

import pytest
import torch
from saved_models import tiny_model

from drafttree.bench.identity import first_difference
from drafttree.sampling import SamplingParams, choose, filtered_log_probs, gumbel

TARGET = tiny_model().double()
PROMPT = torch.tensor([[5, 9, 12]])
GREEDY = SamplingParams()
SAMPLED = SamplingParams(temperature=0.9, top_k=8, seed=3)


@torch.inference_mode()
def logits_after(common: list[int]) -> torch.Tensor:
    return TARGET(torch.cat([PROMPT, torch.tensor([common], dtype=torch.long)], dim=1)).logits[0, -1]


def test_equal_outputs_have_no_difference() -> None:
    assert first_difference(TARGET, PROMPT, [1, 2, 3], [1, 2, 3], GREEDY) is None


def test_greedy_gap_is_that_of_the_logits() -> None:
    found = first_difference(TARGET, PROMPT, [4, 8, 15, 7], [4, 8, 16, 7], GREEDY)
    logits = logits_after([4, 8])
    assert found is not None and (found.position, found.expected, found.found) == (2, 15, 16)
    assert found.gap == pytest.approx(abs(float(logits[15] - logits[16])), abs=1e-9)


def test_a_difference_at_the_first_token() -> None:
    found = first_difference(TARGET, PROMPT, [4], [5], GREEDY)
    logits = logits_after([])
    assert found is not None and found.position == 0
    assert found.gap == pytest.approx(abs(float(logits[4] - logits[5])), abs=1e-9)


def test_sampled_gap_counts_filters_and_noise() -> None:
    position = torch.tensor([PROMPT.shape[1] + 1])
    logits = logits_after([4])[None]
    best = int(choose(logits, position, SAMPLED)[0])
    scores = (filtered_log_probs(logits, SAMPLED) + gumbel(3, position, logits.shape[-1]))[0]
    second = int(scores.masked_fill(torch.arange(len(scores)) == best, float("-inf")).argmax())
    found = first_difference(TARGET, PROMPT, [4, best], [4, second], SAMPLED)
    assert found is not None
    assert found.gap == pytest.approx(float(scores[best] - scores[second]), abs=1e-9)


def test_a_token_that_the_filters_remove_is_infinitely_far() -> None:
    kept = logits_after([4]).topk(8).indices.tolist()
    removed = next(token for token in range(64) if token not in kept)
    found = first_difference(TARGET, PROMPT, [4, kept[0]], [4, removed], SAMPLED)
    assert found is not None and found.gap == float("inf")
    assert found.as_json()["gap"] is None


@pytest.mark.parametrize(("expected", "found"), [([1, 2], [1, 2, 3]), ([1, 2, 3], [1, 2])])
def test_an_output_that_ends_early_differs(expected: list[int], found: list[int]) -> None:
    difference = first_difference(TARGET, PROMPT, expected, found, GREEDY)
    assert difference is not None and difference.position == 2 and difference.gap == float("inf")
    assert {difference.expected, difference.found} == {3, None}
    assert (difference.expected is None) == (len(expected) == 2)
