"""In float32 the methods may part at a near-tie, nowhere else; and a real drafter in place of the oracle."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from engine_samples import FAMILIES, VOCABULARY, OracleDrafter, tiny_target

from drafttree.drafter.config import DrafterConfig
from drafttree.drafter.drafter import Drafter
from drafttree.drafter.network import DFlashDrafter
from drafttree.drafter.readers import parse_config
from drafttree.sampling import SamplingParams
from drafttree.transformers.divergence import first_divergence
from drafttree.transformers.generation import generate
from drafttree.transformers.target import DenseTarget

PROMPTS = [[3, 14, 15, 9, 2, 6, 5], [50]]
CHOICES = [
    SamplingParams(),
    SamplingParams(temperature=1.0, seed=5),
    SamplingParams(temperature=0.7, top_p=0.9, seed=1),
]


def options(params: SamplingParams) -> dict[str, Any]:
    return params.model_dump()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("params", CHOICES, ids=str)
def test_they_part_at_near_ties_alone(family: str, params: SamplingParams, dtype: torch.dtype) -> None:
    target = tiny_target(family, dtype=dtype)
    for prompt in PROMPTS:
        expected = generate(target, None, prompt, method="plain", max_new_tokens=100, **options(params)).tokens
        for method in ("chain", "tree"):
            drafter: Any = OracleDrafter(prompt + expected)
            found = generate(target, drafter, prompt, method=method, max_new_tokens=100, **options(params))  # type: ignore[arg-type]
            parted = first_divergence(target, torch.tensor(prompt), expected, found.tokens, params)
            assert parted is None or parted.near_tie, parted


@pytest.mark.parametrize("params", CHOICES[:2], ids=["greedy", "sampled"])
def test_a_fault_is_no_near_tie(params: SamplingParams, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tiny_target("llama", dtype=torch.float32)
    expected = generate(target, None, PROMPTS[0], method="plain", max_new_tokens=100, **options(params)).tokens
    forward = DenseTarget._forward

    def slots(self: DenseTarget, tokens: torch.Tensor, depths: torch.Tensor, mask: torch.Tensor) -> Any:
        return forward(self, tokens, torch.arange(len(tokens)), mask)

    drafter: Any = OracleDrafter(PROMPTS[0] + expected)
    with monkeypatch.context() as patched:
        patched.setattr(DenseTarget, "_forward", slots)
        found = generate(target, drafter, PROMPTS[0], max_new_tokens=100, **options(params))
    parted = first_divergence(target, torch.tensor(PROMPTS[0]), expected, found.tokens, params)
    assert parted is not None and not parted.near_tie and parted.gap > 10 * parted.noise


def random_drafter(target: Any, **changes: Any) -> Drafter:
    """A DFlash drafter of random weights, in the z-lab format, that fits the tiny targets."""
    values: dict[str, Any] = {
        "architectures": ["DFlashDraftModel"],
        "model_type": "qwen3",
        "hidden_size": 32,
        "intermediate_size": 24,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "num_hidden_layers": 2,
        "vocab_size": VOCABULARY,
        "rms_norm_eps": 1e-6,
        "hidden_act": "silu",
        "attention_bias": False,
        "max_position_embeddings": 512,
        "num_target_layers": 3,
        "rope_theta": 10000.0,
        "layer_types": ["sliding_attention", "full_attention"],
        "use_sliding_window": True,
        "sliding_window": 9,
        "block_size": 6,
        "dflash_config": {"mask_token_id": 52, "target_layer_ids": [0, 1, 2]},
    }
    config: DrafterConfig = parse_config(values | changes, "config.json")
    torch.manual_seed(3)
    return Drafter.for_target(DFlashDrafter(config).eval(), target)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("params", CHOICES, ids=str)
@pytest.mark.parametrize("method", ["chain", "tree"])
def test_a_random_drafter_changes_nothing(family: str, params: SamplingParams, method: Any) -> None:
    target = tiny_target(family)
    drafter = random_drafter(target)
    for prompt in PROMPTS:
        expected = generate(target, None, prompt, method="plain", max_new_tokens=60, **options(params)).tokens
        found = generate(target, drafter, prompt, method=method, max_new_tokens=60, budget=20, **options(params))
        assert found.tokens == expected


def test_the_draft_of_a_step_does_not_depend_on_how_the_text_was_committed() -> None:
    """Trees commit the states that plain decoding would have: the last draft is that of a prompt of all the text."""
    target = tiny_target("qwen3")
    drafter = random_drafter(target)
    drafts: list[torch.Tensor] = []
    draft = drafter.draft

    def kept(*args: Any, **named: Any) -> torch.Tensor:
        drafts.append(draft(*args, **named))
        return drafts[-1]

    drafter.draft = kept  # type: ignore[method-assign]
    result = generate(target, drafter, PROMPTS[0], max_new_tokens=60, budget=20)
    steps = result.acceptance_lengths
    before = sum(steps[:30])  # tokens committed after the prefill's when the 31st draft is made
    text = PROMPTS[0] + result.tokens[: before + 1]
    whole = drafts[30]
    drafts.clear()
    generate(target, drafter, text[:-1], max_new_tokens=20, budget=20)
    assert whole.shape == drafts[0].shape
    torch.testing.assert_close(whole, drafts[0], rtol=0, atol=1e-9)
