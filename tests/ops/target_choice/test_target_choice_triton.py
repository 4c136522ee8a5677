"""The kernel's choices are those of the specification, and that is the choice of ``sampling``."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_devices import DEVICE, KERNEL_DEVICES, on_gpu

from drafttree.ops.target_choice import choose_tokens
from drafttree.ops.target_choice.naive import choose_tokens_naive
from drafttree.ops.target_choice.triton import choose_tokens_triton
from drafttree.sampling import SamplingParams, choose

DTYPES = [torch.float32, torch.bfloat16, torch.float16, torch.float64]


def random_rows(rows, generator, greedy=0.3):
    """Temperatures, some 0, seeds and positions."""
    temperatures = 0.05 + 2 * torch.rand(rows, generator=generator)
    temperatures[torch.rand(rows, generator=generator) < greedy] = 0.0
    seeds = torch.randint(0, 2**63 - 1, (rows,), generator=generator)
    return temperatures, seeds, torch.randint(0, 2**20, (rows,), generator=generator)


def agree(logits, sampling=(None, None, None), device=DEVICE, **options):
    expected = choose_tokens_naive(logits, *sampling)
    found = choose_tokens_triton(
        logits.to(device), *(None if part is None else part.to(device) for part in sampling), **options
    )
    return torch.equal(found.cpu(), expected)


@pytest.mark.parametrize("device", KERNEL_DEVICES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("rows", "vocab"), [(1, 1), (3, 5), (5, 2048), (4, 9001)])
def test_equal_to_the_specification(device, dtype, rows, vocab):
    generator = torch.Generator().manual_seed(vocab)
    logits = 3 * torch.randn(rows, vocab, generator=generator)
    for values in (logits, torch.round(logits / 4), torch.zeros_like(logits)):
        assert agree(values.to(dtype), device=device)
        sampling = random_rows(rows, generator)
        assert agree(values.to(dtype), sampling, device, block=1024, warps=4)
        # Several blocks a program.
        assert agree(values.to(dtype), device=device, block=256, programs=2 * rows)
        assert agree(values.to(dtype), sampling, device, block=512, programs=3 * rows)
    wide = torch.zeros(rows, vocab + 9).to(dtype)
    wide[:, 4:-5] = logits.to(dtype)
    assert agree(wide[:, 4:-5], device=device)


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 2**31),
    rows=st.integers(1, 3),
    vocab=st.integers(1, 700),
    step=st.sampled_from([0.0, 0.5, 4.0]),
    dtype=st.sampled_from(DTYPES),
)
def test_any_rows(seed, rows, vocab, step, dtype):
    generator = torch.Generator().manual_seed(seed)
    logits = 2 * torch.randn(rows, vocab, generator=generator)
    logits = (torch.round(logits / step) * step if step else logits).to(dtype)
    assert agree(logits, block=64, programs=3 * rows)
    assert agree(logits, random_rows(rows, generator), block=64, programs=2 * rows)


@pytest.mark.parametrize("device", KERNEL_DEVICES)
def test_special_values(device):
    logits = torch.randn(6, 300, generator=torch.Generator().manual_seed(0))
    logits[0, 77] = float("nan")
    logits[1, 250] = float("inf")
    logits[2] = float("-inf")
    logits[3, [9, 200]] = 50.0
    logits[4] = -0.0
    logits[4, 100:] = 0.0
    logits[5, :299] = float("-inf")
    sampling = (torch.full((6,), 0.7), torch.arange(6), torch.arange(6))
    for dtype in DTYPES:
        assert agree(logits.to(dtype), device=device, block=64)
        assert agree(logits.to(dtype), sampling, device, block=64)
    assert choose_tokens_triton(logits.to(device), None, None, None).tolist() == [77, 250, 0, 9, 0, 299]


@pytest.mark.parametrize("seed", [0, 1, 2**63 - 1])
def test_the_specification_is_the_choice_of_sampling(seed):
    generator = torch.Generator().manual_seed(seed % 1000)
    logits, positions = 3 * torch.randn(40, 500, generator=generator), torch.arange(100, 140)
    greedy = choose(logits, positions, SamplingParams())
    assert torch.equal(choose_tokens(logits), greedy)
    params = SamplingParams(temperature=0.5, seed=seed)
    sampled = choose_tokens(logits, torch.full((40,), 0.5), torch.full((40,), seed), positions)
    assert torch.equal(sampled, choose(logits, positions, params)) and not torch.equal(sampled, greedy)


def test_a_wrong_seed_is_seen():
    generator = torch.Generator().manual_seed(3)
    logits = torch.randn(8, 400, generator=generator)
    temperatures, seeds, positions = random_rows(8, generator, greedy=0.0)
    expected = choose_tokens_naive(logits, temperatures, seeds, positions)
    inputs = [part.to(DEVICE) for part in (logits, temperatures, seeds, positions + 1)]
    assert not torch.equal(choose_tokens_triton(*inputs).cpu(), expected)


def test_the_public_function_checks_its_arguments():
    logits, (temperatures, seeds, positions) = torch.zeros(2, 9), random_rows(2, torch.Generator().manual_seed(4))
    for arguments in [
        (logits[0],),
        (logits.int(),),
        (logits.T,),
        (logits, temperatures, seeds),
        (logits, None, seeds),
        (logits, temperatures.double(), seeds, positions),
        (logits, temperatures, seeds.int(), positions),
        (logits, temperatures[:1], seeds, positions),
    ]:
        with pytest.raises(ValueError, match=r"expected|without"):
            choose_tokens(*arguments)


@pytest.mark.parametrize("device", [on_gpu])
def test_the_vocabulary_of_a_real_model(device):
    generator = torch.Generator().manual_seed(5)
    logits = (3 * torch.randn(65, 248320, generator=generator)).bfloat16()
    sampling = random_rows(65, generator)
    assert agree(logits, device=device) and agree(logits, sampling, device)
    inputs = [part.to(device) for part in (logits, *sampling)]
    first = choose_tokens_triton(*inputs)
    assert all(torch.equal(choose_tokens_triton(*inputs), first) for _ in range(20))
