"""Hidden states and logits against those of an independent implementation (see golden/README.md)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from drafter_samples import edited, make_target, taps, weights, write_drafter
from safetensors.torch import load_file

from drafttree.drafter.drafter import Drafter
from drafttree.drafter.loading import load_drafter
from drafttree.drafter.network import DFlashDrafter
from drafttree.drafter.readers import parse_config

GOLDEN = Path(__file__).parent / "golden"
FACTS: dict[str, Any] = json.loads((GOLDEN / "cases.json").read_text())
CASES: dict[str, Any] = FACTS["cases"]
VALUES = load_file(GOLDEN / "values.safetensors")
FIRST, MORE = FACTS["context"]


def outputs(drafter: Drafter, anchor: int | None = None) -> dict[str, torch.Tensor]:
    """The values that the golden file holds, from ``drafter``; ``anchor`` replaces the first one."""
    rows = taps(len(drafter.config.target_layer_ids), FIRST + MORE)
    context = drafter.new_context(FIRST + MORE)
    first, second = FACTS["anchors"]
    first = first if anchor is None else anchor
    drafter.extend(context, rows[:, :FIRST], 0)
    found = {"hidden": drafter.hidden_states(context, first)[0], "logits": drafter.draft(context, first)}
    drafter.extend(context, rows[:, FIRST:], FIRST)
    found["next_hidden"] = drafter.hidden_states(context, second, FACTS["short_block"])[0]
    found["next_logits"] = drafter.draft(context, second, FACTS["short_block"])
    return found


def worst(found: dict[str, torch.Tensor], case: str) -> float:
    """Largest absolute difference from the golden values."""
    return max(float((value.double() - VALUES[f"{case}.{name}"]).abs().max()) for name, value in found.items())


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 1e-5)])
def test_a_loaded_drafter_gives_the_golden_values(
    case: str, dtype: torch.dtype, tolerance: float, tmp_path: Path
) -> None:
    write_drafter(tmp_path, CASES[case]["config"])
    drafter = load_drafter(tmp_path, make_target(dtype))
    assert list(drafter.config.target_layer_ids) == CASES[case]["target_layer_ids"]
    assert drafter.config.block_size == CASES[case]["block_size"]
    found = outputs(drafter)
    assert found["logits"].dtype == dtype
    assert worst(found, case) < tolerance


def test_the_cases_cover_every_layer_type_and_both_places() -> None:
    configs = [case["config"] for case in CASES.values()]
    kinds = {frozenset(config.get("layer_types", ["full_attention"])) for config in configs}
    full, sliding = "full_attention", "sliding_attention"
    assert kinds == {frozenset({full}), frozenset({sliding}), frozenset({full, sliding})}
    assert {"block_size" in config for config in configs} == {True, False}
    assert {"rope_theta" in config for config in configs} == {True, False}


def test_a_mask_in_slot_0_is_seen() -> None:
    for case, facts in CASES.items():
        drafter = build(facts["config"])
        assert worst(outputs(drafter), case) < 1e-12
        assert worst(outputs(drafter, anchor=drafter.config.mask_token_id), case) > 1e-3


def build(values: dict[str, Any]) -> Drafter:
    """A float64 drafter with configuration ``values``."""
    config = parse_config(values, "case")
    network = DFlashDrafter(config).double()
    network.load_state_dict(weights(config))
    return Drafter.for_target(network, make_target())


MISREADINGS: list[tuple[str, dict[str, Any]]] = [
    ("full_flat", {"rope_theta": 1000000.0}),
    ("full_nested", {"rope_parameters__rope_theta": 10000.0}),
    ("full_flat", {"rms_norm_eps": 1e-2}),
    ("full_flat", {"is_causal": True}),
    ("full_flat", {"dflash_config__mask_token_id": 59}),
    ("sliding", {"layer_types": ["full_attention"] * 3}),
    ("sliding", {"sliding_window": 7}),
    ("sliding", {"sliding_window": 9}),
    ("sliding", {"is_causal": False}),
    ("mixed", {"layer_types": ["full_attention", "sliding_attention", "sliding_attention"]}),
    ("mixed", {"is_causal": False}),
    ("mixed", {"is_causal": True}),
    ("mixed_not_causal", {"is_causal": None}),
    ("mixed_not_causal", {"sliding_window": 5}),
    ("mixed_causal", {"is_causal": None}),
    ("scales_default_taps_bias", {"dflash_config__input_embedding_scale": 1.0}),
    ("scales_default_taps_bias", {"dflash_config__output_multiplier": 1.0}),
    ("scales_default_taps_bias", {"dflash_config__final_logit_softcapping": None}),
    ("scales_top_level", {"input_embedding_scale": None}),
]


@pytest.mark.parametrize(("case", "changes"), MISREADINGS)
def test_a_misread_field_is_seen(case: str, changes: dict[str, Any]) -> None:
    values = edited(CASES[case]["config"], **changes)
    assert worst(outputs(build(values)), case) > 1e-4


def test_shifted_positions_are_seen() -> None:
    drafter = build(CASES["mixed"]["config"])
    rows = taps(3, FIRST)
    context = drafter.new_context(FIRST)
    drafter.extend(context, rows, 0)
    context.append(drafter.network.encode_context(rows, torch.arange(1, FIRST + 1)[None]), 0)
    shifted = drafter.hidden_states(context, FACTS["anchors"][0])[0]
    assert float((shifted - VALUES["mixed.hidden"]).abs().max()) > 1e-4
