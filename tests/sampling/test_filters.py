import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

from drafttree.sampling import SamplingParams, filtered_log_probs
from drafttree.sampling.filters import warped


def by_transformers(logits, temperature, top_k, top_p):
    scores = TemperatureLogitsWarper(temperature)(None, logits)
    if top_k is not None:
        scores = TopKLogitsWarper(top_k)(None, scores)
    if top_p is not None and top_p < 1.0:
        scores = TopPLogitsWarper(top_p)(None, scores)
    return scores


@st.composite
def target_logits(draw):
    rows, vocabulary = draw(st.integers(1, 4)), draw(st.sampled_from([1, 2, 3, 17, 64, 300, 2000]))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))
    dtype = draw(st.sampled_from([torch.float32, torch.float64]))
    logits = draw(st.sampled_from([0.0, 1.0, 4.0, 30.0])) * torch.randn(
        rows, vocabulary, generator=generator, dtype=dtype
    )
    step = draw(st.sampled_from([0.0, 0.5, 2.0]))
    if step:
        logits = torch.round(logits / step) * step
    if draw(st.booleans()):
        logits[:, 1:][torch.rand(rows, vocabulary - 1, generator=generator) < 0.3] = float("-inf")
    return logits


@settings(max_examples=400, deadline=None)
@given(
    target_logits(),
    st.sampled_from([0.3, 0.7, 1.0, 1.7, 100.0]),
    st.one_of(st.none(), st.integers(1, 60), st.just(5000)),
    st.one_of(st.none(), st.sampled_from([1e-9, 1e-6, 0.5, 0.95, 0.999999, 1.0]), st.floats(0.01, 1.0)),
)
def test_the_kept_tokens_and_their_logits_are_those_of_transformers(logits, temperature, top_k, top_p):
    params = SamplingParams(temperature=temperature, top_k=top_k, top_p=top_p)
    ours, theirs = warped(logits, params), by_transformers(logits, temperature, top_k, top_p)
    assert ours.dtype == theirs.dtype == logits.dtype
    assert torch.equal(ours, theirs)


@pytest.mark.parametrize("top_k", [None, 50])
@pytest.mark.parametrize("step", [0.0, 0.5])
def test_the_same_at_the_size_of_a_real_vocabulary(top_k, step):
    logits = 3 * torch.randn(8, 49152, generator=torch.Generator().manual_seed(1))
    if step:
        logits = torch.round(logits / step) * step
    for top_p in (0.1, 0.5, 0.9, 0.95, 0.99, 0.9999):
        params = SamplingParams(temperature=0.8, top_k=top_k, top_p=top_p)
        assert torch.equal(warped(logits, params), by_transformers(logits, 0.8, top_k, top_p))


def test_ties_at_the_boundary_by_hand():
    logits = torch.tensor([[1.0, 0.0, 0.0, 0.0, 0.0]])
    kept = warped(logits, SamplingParams(temperature=1.0, top_k=2)) > float("-inf")
    assert kept.tolist() == [[True] * 5]  # all that equal the second largest stay
    kept = warped(logits, SamplingParams(temperature=1.0, top_p=0.6)) > float("-inf")
    assert kept.tolist() == [[True, False, False, True, True]]  # 0.40, then 0.15 each: two of the four go


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_narrow_logits_are_taken_in_float32(dtype):
    logits = (3 * torch.randn(2, 100, generator=torch.Generator().manual_seed(1))).to(dtype)
    params = SamplingParams(temperature=0.7, top_k=20, top_p=0.9)
    assert torch.equal(warped(logits, params), warped(logits.float(), params))


def test_log_probs_are_normalised_over_what_is_kept():
    logits = 3 * torch.randn(3, 100, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    log_probs = filtered_log_probs(logits, SamplingParams(temperature=0.7, top_k=20, top_p=0.9))
    assert log_probs.dtype == torch.float64
    torch.testing.assert_close(log_probs.exp().sum(-1), torch.ones(3, dtype=torch.float64))
    assert bool(((log_probs > float("-inf")).sum(-1) <= 20).all())
    kept = log_probs[0] > float("-inf")
    torch.testing.assert_close(log_probs[0, kept], (logits[0, kept] / 0.7).log_softmax(-1))
    with pytest.raises(ValueError, match="greedy"):
        filtered_log_probs(logits, SamplingParams())
