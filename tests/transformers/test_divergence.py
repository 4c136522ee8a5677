"""First differences between outputs, and the target's own gap there."""

from __future__ import annotations

import pytest
import torch
from saved_models import tiny_model

from drafttree.sampling import SamplingParams, choose, filtered_log_probs, gumbel
from drafttree.sampling.filters import warped
from drafttree.transformers.divergence import decision_gap, filter_margin, first_divergence, logits_by_way

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


def test_margin_of_top_k() -> None:
    scores = torch.tensor([5.0, 1.0, 4.0, 3.5, 0.0], dtype=torch.float64)
    params = SamplingParams(temperature=1.0, top_k=2, seed=0)
    margins = [filter_margin(scores, token, params) for token in range(5)]
    assert margins == [1.5, -3.0, 0.5, -0.5, -4.0]  # kept: above the third; removed: below the second
    assert filter_margin(scores, 4, SamplingParams(temperature=1.0, top_k=5, seed=0)) == float("inf")


def test_margin_of_top_p() -> None:
    scores = torch.tensor([0.5, 0.3, 0.15, 0.05], dtype=torch.float64).log()
    for top_p, kept in ((0.4, [0]), (0.7, [0, 1]), (0.9, [0, 1, 2]), (0.96, [0, 1, 2, 3])):
        params = SamplingParams(temperature=1.0, top_p=top_p, seed=0)
        assert [token for token in range(4) if filter_margin(scores, token, params) > 0] == kept
        assert (warped(scores[None], params)[0] > -1e9).nonzero().flatten().tolist() == kept
    params = SamplingParams(temperature=1.0, top_p=0.5, seed=0)
    assert filter_margin(scores, 3, params) == pytest.approx(-2.944439, abs=1e-5)  # log-odds of 0.05 less those of 0.5
    nearly = SamplingParams(temperature=1.0, top_p=0.95 + 1e-9, seed=0)
    assert 0 < filter_margin(scores, 3, nearly) < 1e-7
    both = SamplingParams(temperature=1.0, top_k=3, top_p=0.95, seed=0)
    assert filter_margin(scores, 3, both) == pytest.approx(float(scores[3] - scores[2]))


def test_gap_counts_what_would_have_to_change() -> None:
    scores = torch.tensor([0.5, 0.3, 0.15, 0.05], dtype=torch.float64).log()
    for seed in range(40):
        noise = gumbel(seed, torch.tensor([4]), 4)[0]
        sampled = SamplingParams(temperature=1.0, seed=seed)
        apart = float(scores[0] + noise[0] - scores[3] - noise[3])
        assert decision_gap(scores, 4, 0, 3, sampled) == pytest.approx(abs(apart))
        filtered = SamplingParams(temperature=1.0, top_p=0.949, seed=seed)
        margin = filter_margin(scores, 3, filtered)  # just removed
        assert -0.03 < margin < 0
        # 3 would win if it were kept: it only has to be kept; else it has to win, too
        expected = -margin if apart < 0 else max(apart, -margin)
        for pair in ((0, 3), (3, 0)):
            assert decision_gap(scores, 4, *pair, filtered) == pytest.approx(expected)


def test_noise_is_what_rounding_does_to_a_forward() -> None:
    for common in ([], [7] * 11, [9] * 29, [4] * 40):
        for model in (TARGET, tiny_model().float()):
            found = logits_by_way(model, PROMPT[0], torch.tensor(common, dtype=torch.long))
            assert found.shape == (4, min(32, 1 + len(common)), 64)
            for way in found:
                torch.testing.assert_close(way[-1], logits_after(common), rtol=0, atol=1e-4)
                torch.testing.assert_close(way, found[0], rtol=0, atol=1e-4)
    exact = first_divergence(TARGET, PROMPT, [4, 8], [4, 9], GREEDY)
    rounded = first_divergence(tiny_model().float(), PROMPT, [4, 8], [4, 9], GREEDY)
    assert exact is not None and rounded is not None
    assert exact.noise < 1e-12 < 1e-8 < rounded.noise < 1e-3
    assert not exact.near_tie and not rounded.near_tie


@pytest.mark.parametrize("common", [[7], [7] * 12, [3] * 40])
def test_a_tie_is_told_from_an_error(common: list[int]) -> None:
    """Two rows of the head that differ in the last bit: no method can be held to either of their tokens."""
    target = tiny_model().float()
    weight = target.lm_head.weight.data
    weight[9] = weight[8] * (1 + 2**-22)
    found = first_divergence(target, PROMPT, [*common, 8], [*common, 9], GREEDY)
    assert found is not None and found.gap > 0 and found.near_tie
    first = first_divergence(target, PROMPT, [8], [9], GREEDY)  # all methods take it from the same forward
    assert first is not None and 0 < first.gap < 1e-5 and not first.near_tie
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
