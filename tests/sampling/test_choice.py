import math

import pytest
import torch
from scipy import stats

from drafttree.errors import UserError
from drafttree.sampling import SamplingParams, choose, filtered_log_probs, gumbel

OPTIONS = [
    {},
    {"temperature": 1.0},
    {"temperature": 0.6, "top_k": 20},
    {"temperature": 1.3, "top_p": 0.8},
    {"temperature": 0.9, "top_k": 300, "top_p": 0.95},
    {"temperature": 0.9, "top_p": 1.0},
]


def logits_of(rows, vocabulary, seed=0, dtype=torch.float32):
    return 3 * torch.randn(rows, vocabulary, generator=torch.Generator().manual_seed(seed), dtype=dtype)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_greedy_is_the_first_largest(dtype):
    logits = torch.zeros(3, 1000, dtype=dtype)
    logits[1, [700, 30, 999]] = 2.0
    logits[2, 999] = 1.0
    assert choose(logits, torch.arange(3), SamplingParams()).tolist() == [0, 30, 999]
    assert choose(logits, torch.arange(3), SamplingParams()).dtype == torch.int64


@pytest.mark.parametrize("options", OPTIONS[1:])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("vocabulary", [2000, 5000])
def test_sampling_is_argmax_of_log_p_and_noise(options, dtype, vocabulary):
    logits, positions = logits_of(9, vocabulary, dtype=dtype), torch.arange(100, 109)
    params = SamplingParams(seed=77, **options)
    expected = filtered_log_probs(logits, params) + gumbel(77, positions, vocabulary).to(dtype)
    assert choose(logits, positions, params).tolist() == expected.argmax(-1).tolist()


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_a_row_is_chosen_alone(options, dtype):
    logits = logits_of(33, 5000, seed=3).to(dtype)
    positions = torch.arange(33) // 3 + 50
    params = SamplingParams(seed=5, **options)
    together = choose(logits, positions, params)
    alone = [choose(logits[row : row + 1], positions[row : row + 1], params) for row in range(33)]
    assert torch.equal(together, torch.cat(alone))
    order = torch.randperm(33, generator=torch.Generator().manual_seed(0))
    assert torch.equal(choose(logits[order], positions[order], params), together[order])
    strided = logits.t().contiguous().t()
    assert torch.equal(choose(strided, positions, params), together)


@pytest.mark.parametrize("options", OPTIONS[1:])
def test_float64_and_float32_choose_alike_where_the_gap_is_wide(options):
    logits, positions = logits_of(200, 500, seed=8), torch.arange(200)
    params = SamplingParams(seed=1, **options)
    assert torch.equal(choose(logits, positions, params), choose(logits.double(), positions, params))


@pytest.mark.parametrize("top_p", [0.3, 0.9])
def test_a_row_of_equal_logits_is_filtered_alone(top_p):
    logits = torch.round(logits_of(33, 20000, seed=4))
    params = SamplingParams(temperature=1.0, top_p=top_p)
    together = filtered_log_probs(logits, params)
    for row in range(33):
        assert torch.equal(filtered_log_probs(logits[row : row + 1], params)[0], together[row])


def test_equal_noise_goes_to_the_smaller_token(monkeypatch):
    monkeypatch.setattr("drafttree.sampling.choice.gumbel", lambda seed, positions, vocab: torch.zeros(1, vocab))
    assert choose(torch.zeros(1, 50), torch.zeros(1).long(), SamplingParams(temperature=1.0, seed=0)).tolist() == [0]


def test_the_input_is_left_alone():
    logits = logits_of(3, 100)
    before = logits.clone()
    for options in OPTIONS:
        choose(logits, torch.arange(3), SamplingParams(seed=1, **options))
        assert torch.equal(logits, before)


@pytest.mark.parametrize("options", OPTIONS[1:])
def test_choices_over_positions_follow_p(options):
    row = torch.linspace(0, 4, 12, dtype=torch.float64)[torch.randperm(12, generator=torch.Generator().manual_seed(2))]
    params = SamplingParams(seed=2024, **options)
    draws = choose(row.expand(40000, 12), torch.arange(40000), params)
    assert _chi_square(draws, filtered_log_probs(row[None], params)[0].exp()) > 1e-3


def test_choices_over_seeds_follow_p():
    row = torch.linspace(0, 4, 12, dtype=torch.float64)
    draws = [
        choose(row[None], torch.tensor([40]), SamplingParams(temperature=1.0, seed=seed)).item() for seed in range(4000)
    ]
    assert _chi_square(torch.tensor(draws), row.softmax(-1)) > 1e-3


def _chi_square(draws, probabilities):
    counts = torch.bincount(draws, minlength=len(probabilities)).double()
    assert not counts[probabilities == 0].any()
    kept = probabilities > 0
    return stats.chisquare(counts[kept].numpy(), (probabilities[kept] * len(draws)).numpy()).pvalue


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_broken_logits_are_one_line(options, value):
    logits = logits_of(3, 100)
    logits[1, 50] = value
    with pytest.raises(UserError, match="target logits"):
        choose(logits, torch.arange(3), SamplingParams(seed=1, **options))


@pytest.mark.parametrize("options", OPTIONS)
def test_a_row_of_absent_tokens_is_one_line(options):
    with pytest.raises(UserError, match="target logits"):
        choose(torch.full((1, 9), float("-inf")), torch.arange(1), SamplingParams(seed=1, **options))


def test_shapes_and_a_missing_seed_are_refused():
    with pytest.raises(ValueError, match="positions"):
        choose(logits_of(3, 9), torch.arange(2), SamplingParams())
    with pytest.raises(ValueError, match="seed"):
        choose(logits_of(3, 9), torch.arange(3), SamplingParams(temperature=1.0))


def test_a_tiny_temperature_is_the_argmax():
    logits = logits_of(20, 1000)
    params = SamplingParams(temperature=1e-5, seed=3)
    assert torch.equal(choose(logits, torch.arange(20), params), logits.argmax(-1))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("options", OPTIONS)
def test_a_device_chooses_as_the_cpu(options):
    logits, positions = logits_of(33, 5000, dtype=torch.float64), torch.arange(33)
    params = SamplingParams(seed=6, **options)
    assert torch.equal(choose(logits.cuda(), positions.cuda(), params).cpu(), choose(logits, positions, params))
