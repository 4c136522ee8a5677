"""The engine on a GPU: the same tokens in float64, near-ties at most below."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from engine_samples import FAMILIES, OracleDrafter, tiny_target

from drafttree.sampling import SamplingParams
from drafttree.transformers.calibrate import cost_curve
from drafttree.transformers.divergence import first_divergence
from drafttree.transformers.generation import generate, stream

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
PROMPT = [3, 14, 15, 9, 2, 6, 5]
CHOICES = [
    SamplingParams(),
    SamplingParams(temperature=1.0, seed=7),
    SamplingParams(temperature=0.8, top_k=20, top_p=0.9, seed=3),
]


def tokens(target: Any, drafter: Any, params: SamplingParams, **options: Any) -> list[int]:
    return generate(target, drafter, PROMPT, max_new_tokens=120, **params.model_dump(), **options).tokens


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("params", CHOICES, ids=str)
@pytest.mark.parametrize("method", ["chain", "tree"])
def test_equal_to_plain(family: str, params: SamplingParams, method: str) -> None:
    target = tiny_target(family).cuda()
    expected = tokens(target, None, params, method="plain")
    drafter: Any = OracleDrafter(PROMPT + expected)
    assert tokens(target, drafter, params, method=method, budget=12) == expected
    if method == "tree":
        drafter = OracleDrafter(PROMPT + expected)
        assert list(stream(target, drafter, PROMPT, max_new_tokens=120, **params.model_dump())) == expected


@pytest.mark.parametrize("family", FAMILIES)
def test_greedy_text_is_the_cpus(family: str) -> None:
    expected = tokens(tiny_target(family), None, CHOICES[0], method="plain")
    assert tokens(tiny_target(family).cuda(), None, CHOICES[0], method="plain") == expected


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("params", CHOICES, ids=str)
def test_they_part_at_near_ties_alone(params: SamplingParams, dtype: torch.dtype) -> None:
    target = tiny_target("llama", dtype=dtype).cuda()
    expected = tokens(target, None, params, method="plain")
    for method in ("chain", "tree"):
        found = tokens(target, OracleDrafter(PROMPT + expected), params, method=method)
        parted = first_divergence(target, torch.tensor(PROMPT, device="cuda"), expected, found, params)
        assert parted is None or parted.near_tie, parted


def test_costs_are_measured() -> None:
    assert all(seconds > 0 for seconds in cost_curve(tiny_target("llama").cuda(), (0, 8), repeats=2).values())
