"""First differences between outputs, and the target's own gap there."""

from __future__ import annotations

import pytest
import torch
from saved_models import tiny_model

from drafttree.sampling import SamplingParams, choose, filtered_log_probs, gumbel
from drafttree.transformers.divergence import decision_gap, first_divergence, logits_by_width

TARGET = tiny_model().double()
PROMPT = torch.tensor([[5, 9, 12]])
GREEDY = SamplingParams()
SAMPLED = SamplingParams(temperature=0.9, top_k=8, seed=3)


@torch.inference_mode()
def logits_after(common: list[int]) -> torch.Tensor:
    return TARGET(torch.cat([PROMPT, torch.tensor([common], dtype=torch.long)], dim=1)).logits[0, -1]


def test_equal_outputs_have_no_difference() -> None:
    assert first_divergence(TARGET, PROMPT, [1, 2, 3], [1, 2, 3], GREEDY) is None


def test_greedy_gap_is_that_of_the_logits() -> None:
    found = first_divergence(TARGET, PROMPT, [4, 8, 15, 7], [4, 8, 16, 7], GREEDY)
    logits = logits_after([4, 8])
    assert found is not None and (found.position, found.expected, found.found) == (2, 15, 16)
    assert found.gap == pytest.approx(abs(float(logits[15] - logits[16])), abs=1e-9)


def test_a_difference_at_the_first_token() -> None:
    found = first_divergence(TARGET, PROMPT, [4], [5], GREEDY)
    logits = logits_after([])
    assert found is not None and found.position == 0
    assert found.gap == pytest.approx(abs(float(logits[4] - logits[5])), abs=1e-9)


def test_sampled_gap_counts_filters_and_noise() -> None:
    position = torch.tensor([PROMPT.shape[1] + 1])
    logits = logits_after([4])[None]
    best = int(choose(logits, position, SAMPLED)[0])
    scores = (filtered_log_probs(logits, SAMPLED) + gumbel(3, position, logits.shape[-1]))[0]
    second = int(scores.masked_fill(torch.arange(len(scores)) == best, float("-inf")).argmax())
    found = first_divergence(TARGET, PROMPT, [4, best], [4, second], SAMPLED)
    assert found is not None
    assert found.gap == pytest.approx(float(scores[best] - scores[second]), abs=1e-9)


def test_a_token_that_top_k_removes_is_as_far_as_the_last_one_kept() -> None:
    logits = logits_after([4])
    order = logits.argsort(descending=True).tolist()
    params = SamplingParams(temperature=0.5, top_k=8, seed=3)
    noise = gumbel(3, torch.tensor([4]), len(logits))[0]
    for kept, removed in ((order[7], order[8]), (order[0], order[30])):
        boundary = float(logits[order[7]] - logits[removed]) / 0.5
        apart = abs(float((logits[kept] - logits[removed]) / 0.5 + noise[kept] - noise[removed]))
        assert decision_gap(logits, 4, kept, removed, params) == pytest.approx(max(boundary, apart))


def test_a_token_that_top_p_removes_is_far_unless_its_mass_is_at_the_boundary() -> None:
    scores = torch.tensor([0.5, 0.3, 0.15, 0.05], dtype=torch.float64).log()
    noise = gumbel(5, torch.tensor([4]), 4)[0]
    apart = abs(float(scores[0] - scores[3] + noise[0] - noise[3]))
    far = decision_gap(scores, 4, 0, 3, SamplingParams(temperature=1.0, top_p=0.5, seed=5))
    assert far == pytest.approx(max(apart, 2.944439), abs=1e-5)  # log-odds of 0.5 less those of 0.05
    near = decision_gap(scores, 4, 0, 3, SamplingParams(temperature=1.0, top_p=0.95 - 1e-9, seed=5))
    assert near == pytest.approx(apart)  # 1 - top_p is hardly more than the mass of the token


def test_noise_is_what_rounding_does_to_a_forward() -> None:
    wide = logits_by_width(TARGET, PROMPT[0])
    narrow = logits_by_width(tiny_model().float(), PROMPT[0])
    for rows in (*wide, *narrow):
        torch.testing.assert_close(rows, logits_after([]), rtol=0, atol=1e-4)
    exact = first_divergence(TARGET, PROMPT, [4, 8], [4, 9], GREEDY)
    rounded = first_divergence(tiny_model().float(), PROMPT, [4, 8], [4, 9], GREEDY)
    assert exact is not None and rounded is not None
    assert exact.noise < 1e-12 < 1e-8 < rounded.noise < 1e-3
    assert not exact.near_tie and not rounded.near_tie


@pytest.mark.parametrize("common", [[], [7] * 12, [3] * 40])
def test_a_tie_is_told_from_an_error(common: list[int]) -> None:
    """Two rows of the head that differ in the last bit: no method can be held to either of their tokens."""
    target = tiny_model().float()
    weight = target.lm_head.weight.data
    weight[9] = weight[8] * (1 + 2**-22)
    found = first_divergence(target, PROMPT, [*common, 8], [*common, 9], GREEDY)
    assert found is not None and found.gap > 0 and found.near_tie
    error = first_divergence(target, PROMPT, [*common, 8], [*common, 10], GREEDY)
    assert error is not None and not error.near_tie


def test_a_record_of_it() -> None:
    found = first_divergence(TARGET, PROMPT, [1], [1, 2], GREEDY)
    assert found is not None
    assert found.as_json() == {
        "position": 1, "expected": None, "found": 2, "gap": None, "noise": 0.0, "near_tie": False
    }  # fmt: skip


@pytest.mark.parametrize(("expected", "found"), [([1, 2], [1, 2, 3]), ([1, 2, 3], [1, 2])])
def test_an_output_that_ends_early_differs(expected: list[int], found: list[int]) -> None:
    difference = first_divergence(TARGET, PROMPT, expected, found, GREEDY)
    assert difference is not None and difference.position == 2 and difference.gap == float("inf")
    assert {difference.expected, difference.found} == {3, None}
    assert (difference.expected is None) == (len(expected) == 2)
