"""Both configuration formats, and every way in which a file can be wrong."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from drafter_samples import SPECULATORS, VOCAB, Z_LAB, edited
from hypothesis import given, settings
from hypothesis import strategies as st

from drafttree.drafter.config import DrafterConfig
from drafttree.drafter.readers import parse_config, read_config
from drafttree.errors import UserError

NAN, INF = float("nan"), float("inf")
S, FULL = "sliding_attention", "full_attention"
LAYER = "transformer_layer_config"


def refused(values: dict[str, Any], words: str) -> None:
    with pytest.raises(UserError) as caught:
        parse_config(values, "config.json")
    message = str(caught.value)
    assert message.startswith("config.json: ")
    assert "\n" not in message
    assert len(message) < 500
    assert words in message


def test_the_two_formats_say_the_same() -> None:
    z_lab, speculators = parse_config(Z_LAB, "a"), parse_config(SPECULATORS, "b")
    assert z_lab.target_layer_ids == speculators.target_layer_ids == (1, 5, 9)
    assert speculators.num_target_layers is None
    assert z_lab.model_copy(update={"num_target_layers": None}) == speculators


def test_every_value_arrives() -> None:
    values = edited(Z_LAB, attention_bias=True, max_position_embeddings=77, rms_norm_eps=1e-5, target_hidden_size=32)
    inner = {"input_embedding_scale": 2, "output_multiplier": 0.5, "final_logit_softcapping": 30.0}
    values["dflash_config"].update(inner)
    assert parse_config(values, "c").model_dump() == {
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "vocab_size": VOCAB,
        "block_size": 6,
        "mask_token_id": 60,
        "target_layer_ids": (1, 5, 9),
        "num_target_layers": 12,
        "target_hidden_size": 32,
        "layer_types": (S, S, FULL),
        "sliding_window": 9,
        "sliding_is_causal": True,
        "full_is_causal": False,
        "rope_theta": 10000.0,
        "rms_norm_eps": 1e-5,
        "attention_bias": True,
        "max_position_embeddings": 77,
        "input_embedding_scale": 2.0,
        "output_multiplier": 0.5,
        "final_logit_softcapping": 30.0,
        "draft_vocab_size": None,
    }


SAME_MEANING: list[dict[str, Any]] = [
    {"block_size": ..., "dflash_config__block_size": 6},
    {"dflash_config__block_size": 6},
    {"mask_token_id": 60, "dflash_config__mask_token_id": ...},
    {"target_layer_ids": [1, 5, 9], "dflash_config__target_layer_ids": ...},
    {"dflash_config__target_layer_ids": ...},
    {"dflash_config__target_layer_ids": None},
    {"num_target_layers": ..., "dflash_config__num_target_layers": 12},
    {"rope_theta": ..., "rope_parameters": {"rope_theta": 10000, "rope_type": "default"}},
    {"rope_theta": 10000, "rope_parameters": {"rope_theta": 10000.0}},
    {"rope_theta": ..., "rope_scaling": {"rope_theta": 10000.0, "type": "default"}},
    {"is_causal": None},
    {"final_logit_softcapping": 0},
    {"final_logit_softcapping": 0.0, "dflash_config__final_logit_softcapping": None},
    {"input_embedding_scale": 1.0, "dflash_config__input_embedding_scale": 1},
    {"dflash_config__use_swa": False, "dflash_config__attention_sink_bias": False, "dflash_config__causal": None},
    {"dflash_config__swa_window_size": 9},
    {"attention_bias": ..., "hidden_act": ...},
    {"unheard_of": None, "initializer_range": 0.5, "torch_dtype": "float16", "dflash_config__mask_token": "<m>"},
    {"draft_vocab_size": VOCAB, "logit_scale": 1.0, "quantization_config": None},
]


@pytest.mark.parametrize("changes", SAME_MEANING)
def test_one_meaning_in_many_spellings(changes: dict[str, Any]) -> None:
    assert parse_config(edited(Z_LAB, **changes), "a") == parse_config(Z_LAB, "b")


def test_causality() -> None:
    def flags(**changes: Any) -> tuple[bool, bool]:
        config = parse_config(edited(Z_LAB, **changes), "a")
        return config.sliding_is_causal, config.full_is_causal

    assert flags() == (True, False)
    assert flags(is_causal=True) == flags(dflash_config__causal=True) == (True, True)
    assert flags(is_causal=False) == flags(dflash_config__causal=False) == (False, False)
    assert flags(is_causal=False, dflash_config__causal=False) == (False, False)
    assert parse_config(edited(SPECULATORS, sliding_window_non_causal=True), "b").sliding_is_causal is False


def test_layers_without_types_are_full() -> None:
    config = parse_config(edited(Z_LAB, layer_types=..., use_sliding_window=False), "a")
    assert config.layer_types == (FULL,) * 3
    assert config.sliding_window is None
    config = parse_config(edited(Z_LAB, layer_types=[FULL] * 3, use_sliding_window=..., sliding_window=9), "a")
    assert config.sliding_window is None


def test_a_reduced_vocabulary_is_read() -> None:
    assert parse_config(edited(SPECULATORS, draft_vocab_size=20), "a").draft_vocab_size == 20
    assert parse_config(SPECULATORS, "a").draft_vocab_size is None


SIZES = (
    "hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads", "head_dim", "vocab_size",
    "num_hidden_layers",
)  # fmt: skip
WRONG_INTEGERS = [0, -1, 1.5, 16.0, "16", True, [16], {}, 2**31, 10**40, NAN, INF]
WRONG_NUMBERS = [0, -1.0, "1", True, [1.0], {}, NAN, INF, -INF, 10**400]


@pytest.mark.parametrize("name", SIZES)
@pytest.mark.parametrize("value", [..., None, *WRONG_INTEGERS], ids=repr)
def test_a_wrong_size_is_named(name: str, value: Any) -> None:
    refused(edited(Z_LAB, **{name: value}), f"{name}: found ")
    refused(edited(SPECULATORS, **{f"{LAYER}__{name}": value}), f"{LAYER}.{name}: found ")


@pytest.mark.parametrize("value", [..., None, 1, *WRONG_INTEGERS], ids=repr)
def test_a_wrong_block_size_is_named(value: Any) -> None:
    refused(edited(Z_LAB, block_size=value), "block_size: found ")
    if value not in (..., None):
        refused(edited(Z_LAB, dflash_config__block_size=value), "block_size: found ")
    refused(edited(SPECULATORS, block_size=value), "block_size: found ")


@pytest.mark.parametrize("name", ["rope_theta", "rms_norm_eps"])
@pytest.mark.parametrize("value", [..., None, *WRONG_NUMBERS], ids=repr)
def test_a_wrong_number_is_named(name: str, value: Any) -> None:
    refused(edited(Z_LAB, **{name: value}), f"{name}: found ")


@pytest.mark.parametrize("name", ["input_embedding_scale", "output_multiplier", "final_logit_softcapping"])
@pytest.mark.parametrize("value", [v for v in WRONG_NUMBERS if v != 0 or v is True], ids=repr)
def test_a_wrong_scale_is_named(name: str, value: Any) -> None:
    refused(edited(Z_LAB, **{name: value}), f"{name}: found ")
    refused(edited(Z_LAB, **{f"dflash_config__{name}": value}), f"dflash_config.{name}: found ")


Z_LAB_FAULTS: list[tuple[dict[str, Any], str]] = [
    # two places that disagree
    ({"dflash_config__block_size": 8}, "block_size: found 6, expected the same as dflash_config.block_size, 8"),
    ({"mask_token_id": 59}, "mask_token_id: found 59, expected the same as dflash_config.mask_token_id, 60"),
    ({"target_layer_ids": [1, 5, 8]}, "target_layer_ids: found [1, 5, 8]"),
    ({"dflash_config__num_target_layers": 11}, "num_target_layers: found 12"),
    ({"rope_parameters": {"rope_theta": 1e6}}, "rope_parameters.rope_theta: found 1000000.0, expected the same as"),
    ({"rope_scaling": {"rope_theta": 1e6}}, "rope_scaling.rope_theta: found 1000000.0"),
    ({"is_causal": True, "dflash_config__causal": False}, "dflash_config.causal: found False"),
    ({"output_multiplier": 2.0, "dflash_config__output_multiplier": 1.0}, "output_multiplier: found 2.0"),
    ({"final_logit_softcapping": 2.0, "dflash_config__final_logit_softcapping": 0}, "final_logit_softcapping: found"),
    ({"dflash_config__swa_window_size": 8}, "dflash_config.swa_window_size: found 8"),
    # RoPE
    ({"rope_theta": ..., "rope_parameters": {"rope_type": "default"}}, "rope_theta: found None"),
    ({"rope_theta": ..., "rope_parameters": {"rope_theta": NAN}}, "rope_parameters.rope_theta: found nan"),
    ({"rope_theta": ..., "rope_parameters": {"rope_theta": "1e4"}}, "rope_parameters.rope_theta: found '1e4'"),
    ({"rope_parameters": {"rope_type": "yarn", "factor": 4.0}}, "rope_parameters.rope_type: found 'yarn'"),
    ({"rope_scaling": {"type": "linear", "factor": 4.0}}, "rope_scaling.type: found 'linear'"),
    ({"rope_scaling": {"rope_type": "llama3"}}, "rope_scaling.rope_type: found 'llama3'"),
    ({"rope_parameters": {"rope_theta": 10000.0, "factor": 2.0}}, "rope_parameters.factor: found 2.0"),
    ({"rope_parameters": {"partial_rotary_factor": 0.5}}, "rope_parameters.partial_rotary_factor: found 0.5"),
    ({"rope_parameters": {FULL: {"rope_theta": 1.0}}}, f"rope_parameters.{FULL}: found"),
    ({"rope_parameters": [1]}, "rope_parameters: found [1], expected an object"),
    # layer types and windows
    ({"layer_types": [S, S, "chunked_attention"]}, "layer_types: found 'chunked_attention'"),
    ({"layer_types": [S, S, "linear_attention"]}, "layer_types: found 'linear_attention'"),
    ({"layer_types": [S, S, None]}, "layer_types: found None"),
    ({"layer_types": [S, S, [FULL]]}, "layer_types: found ['full_attention']"),
    ({"layer_types": "full_attention"}, "layer_types: found 'full_attention'"),
    ({"layer_types": []}, "layer_types: found []"),
    ({"layer_types": [S, S]}, "layer_types: found 2, expected one for each of the num_hidden_layers, 3"),
    ({"layer_types": ...}, "layer_types: found None, expected 3 layer types"),
    ({"sliding_window": ...}, "sliding_window: found None"),
    ({"sliding_window": None}, "sliding_window: found None"),
    ({"sliding_window": 0}, "sliding_window: found 0"),
    ({"sliding_window": -4}, "sliding_window: found -4"),
    ({"sliding_window": 9.5}, "sliding_window: found 9.5"),
    ({"sliding_window": True}, "sliding_window: found True"),
    ({"use_sliding_window": False}, "use_sliding_window: found False, expected true"),
    ({"use_sliding_window": ...}, "use_sliding_window: found None, expected true"),
    ({"use_sliding_window": "yes"}, "use_sliding_window: found 'yes'"),
    ({"is_causal": 1}, "is_causal: found 1, expected true or false"),
    ({"dflash_config__causal": "no"}, "dflash_config.causal: found 'no'"),
    # taps, mask, target
    ({"dflash_config__target_layer_ids": []}, "dflash_config.target_layer_ids: found []"),
    ({"dflash_config__target_layer_ids": [-1]}, "dflash_config.target_layer_ids: found [-1]"),
    ({"dflash_config__target_layer_ids": [1, 1]}, "target_layer_ids: found [1, 1], expected distinct"),
    ({"dflash_config__target_layer_ids": [1.0]}, "dflash_config.target_layer_ids: found [1.0]"),
    ({"dflash_config__target_layer_ids": "1,5"}, "dflash_config.target_layer_ids: found '1,5'"),
    ({"dflash_config__target_layer_ids": {"0": 1}}, "dflash_config.target_layer_ids: found"),
    ({"dflash_config__target_layer_ids": [1, 12]}, "target_layer_ids: found 12"),
    ({"dflash_config__target_layer_ids": [True]}, "dflash_config.target_layer_ids: found [True]"),
    ({"dflash_config__target_layer_ids": ..., "num_target_layers": 3}, "target_layer_ids: found None"),
    ({"dflash_config__mask_token_id": ...}, "mask_token_id: found None"),
    ({"dflash_config__mask_token_id": VOCAB}, "mask_token_id: found 61, expected less than 61"),
    ({"dflash_config__mask_token_id": -1}, "mask_token_id: found -1"),
    ({"num_target_layers": ...}, "num_target_layers: found None"),
    ({"num_target_layers": 0}, "num_target_layers: found 0"),
    ({"dflash_config": ...}, "mask_token_id: found None"),
    ({"dflash_config": []}, "dflash_config: found [], expected an object"),
    ({"dflash_config": "x"}, "dflash_config: found 'x', expected an object"),
    # shapes
    ({"num_key_value_heads": 3}, "num_attention_heads: found 4, expected a multiple of num_key_value_heads, 3"),
    ({"head_dim": 15}, "head_dim: found 15, expected an even number"),
    ({"draft_vocab_size": 20}, "draft_vocab_size: found 20, expected vocab_size, 61"),
    ({"attention_bias": 0}, "attention_bias: found 0"),
    # other maths
    ({"hidden_act": "gelu"}, "hidden_act: found 'gelu', expected silu"),
    ({"hidden_act": 3}, "hidden_act: found 3, expected silu"),
    ({"logit_scale": 0.5}, "logit_scale: found 0.5"),
    ({"is_neox_style": False}, "is_neox_style: found False, expected true"),
    ({"quantization_config": {"bits": 4}}, "quantization_config: found {'bits': 4}"),
    ({"dflash_config__use_swa": True}, "dflash_config.use_swa: found True"),
    ({"dflash_config__attention_sink_bias": True}, "dflash_config.attention_sink_bias: found True"),
    ({"dflash_config__fc_layernorm": True}, "dflash_config.fc_layernorm: found True"),
    ({"dflash_config__shift_label": True}, "dflash_config.shift_label: found True"),
    ({"sample_from_anchor": True}, "sample_from_anchor: found True"),
    ({"use_qk_norm": False}, "use_qk_norm: found False"),
    ({"residual_multiplier": 0.2}, "residual_multiplier: found 0.2, expected no such field: it is unknown"),
    ({"dflash_config__is_causal": True}, "dflash_config.is_causal: found True, expected no such field"),
    ({"initializer_range": NAN}, "initializer_range: found nan, expected a finite number"),
    ({"dflash_config__note": [1, {"a": INF}]}, "dflash_config.note.a: found inf"),
    # other drafters
    ({"architectures": ["DFlash2DraftModel"]}, "architectures: found 'DFlash2DraftModel'"),
    ({"architectures": ["Qwen3DSparkModel"]}, "DSpark drafters are not supported"),
    ({"architectures": ["DominoDraftModel"]}, "Domino drafters are not supported"),
    ({"architectures": ["LlamaForCausalLMEagle3"]}, "EAGLE drafters are not supported"),
    ({"architectures": ["Qwen3ForCausalLM"]}, "architectures: found 'Qwen3ForCausalLM', expected DFlashDraftModel"),
    ({"architectures": ["DFlashDraftModel", "Other"]}, "architectures: found 'Other'"),
    ({"architectures": []}, "architectures: found None"),
    ({"architectures": ...}, "architectures: found None"),
    ({"architectures": 5}, "architectures: found 5"),
    ({"dflash_config__projector_type": "domino"}, "dflash_config.projector_type: found 'domino'"),
    ({"dflash_config__selector_rank": 256}, "dflash_config.selector_rank: found 256, expected no such field: DFlash2"),
    ({"dflash_config__conv_kernel_size": 2}, "DFlash2 is not supported"),
    ({"markov_rank": 256}, "markov_rank: found 256, expected no such field: DSpark is not supported"),
]


@pytest.mark.parametrize(("changes", "words"), Z_LAB_FAULTS)
def test_a_fault_in_the_z_lab_format_is_named(changes: dict[str, Any], words: str) -> None:
    refused(edited(Z_LAB, **changes), words)


SPECULATORS_FAULTS: list[tuple[dict[str, Any], str]] = [
    ({"speculators_model_type": "dflash2"}, "speculators_model_type: found 'dflash2', expected dflash; DFlash2"),
    ({"speculators_model_type": "dspark"}, "DSpark drafters are not supported"),
    ({"speculators_model_type": "eagle3"}, "EAGLE drafters are not supported"),
    ({"speculators_model_type": ...}, "speculators_model_type: found None"),
    ({"speculators_model_type": ["dflash", "x"]}, "speculators_model_type: found 'x'"),
    ({"architectures": ["Eagle3Speculator"]}, "EAGLE drafters are not supported"),
    ({LAYER: ...}, f"{LAYER}.hidden_size: found None"),
    ({LAYER: 3}, f"{LAYER}: found 3, expected an object"),
    ({"aux_hidden_state_layer_ids": ...}, "aux_hidden_state_layer_ids: found None"),
    ({"aux_hidden_state_layer_ids": [0, 6]}, "layer_ids: found [0, 6], expected a list of integers from 1"),
    ({"mask_token_id": None}, "mask_token_id: found None"),
    ({"mask_token_id": 61}, "mask_token_id: found 61, expected less than 61"),
    ({"draft_vocab_size": ...}, "draft_vocab_size: found None"),
    ({"draft_vocab_size": 62}, "draft_vocab_size: found 62, expected at most 61"),
    ({"sliding_window_non_causal": ...}, "sliding_window_non_causal: found None"),
    ({"sliding_window_non_causal": 0}, "sliding_window_non_causal: found 0"),
    ({"sample_from_anchor": True}, "sample_from_anchor: found True"),
    ({"dflash2_dynamic_conv": True}, "dflash2_dynamic_conv: found True, expected no such field"),
    ({"dflash_context_residual": True}, "dflash_context_residual: found True"),
    ({"dflash_config": {"mask_token_id": 60}}, "dflash_config: found"),
    ({f"{LAYER}__rope_parameters": ...}, f"{LAYER}.rope_theta: found None"),
    ({f"{LAYER}__rope_parameters__rope_type": "yarn"}, f"{LAYER}.rope_parameters.rope_type: found 'yarn'"),
    ({f"{LAYER}__num_experts": 8}, f"{LAYER}.num_experts: found 8"),
    ({f"{LAYER}__sliding_window": None}, f"{LAYER}.sliding_window: found None"),
    ({f"{LAYER}__use_sliding_window": False}, f"{LAYER}.use_sliding_window: found False"),
    ({f"{LAYER}__hidden_act": "relu"}, f"{LAYER}.hidden_act: found 'relu'"),
    ({f"{LAYER}__hc_mult": 4}, f"{LAYER}.hc_mult: found 4"),
]  # fmt: skip


@pytest.mark.parametrize(("changes", "words"), SPECULATORS_FAULTS)
def test_a_fault_in_the_speculators_format_is_named(changes: dict[str, Any], words: str) -> None:
    refused(edited(SPECULATORS, **changes), words)


@pytest.mark.parametrize("name", sorted(set(Z_LAB) - {"auto_map", "dtype", "model_type", "use_cache"}))
def test_no_field_that_matters_may_be_unread(name: str) -> None:
    """Renaming a field must never leave the result as it was without a word."""
    values = edited(Z_LAB, **{name: ..., f"{name}_renamed": Z_LAB[name]})
    if Z_LAB[name] is None:
        assert parse_config(values, "a") == parse_config(Z_LAB, "a")
    else:
        with pytest.raises(UserError, match=name):
            parse_config(values, "a")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "not valid JSON"),
        (b"{", "not valid JSON"),
        (b"[1]", "found list, expected a JSON object"),
        (b"null", "found NoneType, expected a JSON object"),
        (b'{"a": 1, "a": 2}', "a: found twice, expected once"),
        (b"\xff\xfe{}", "cannot be read"),
        (b"[" * 100_000, "not valid JSON"),
        (b'{"rope_theta": ' + b"1" * 5000 + b"}", "not valid JSON"),
    ],
)
def test_a_file_that_is_no_object_is_named(content: bytes, words: str, tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_bytes(content)
    with pytest.raises(UserError) as caught:
        read_config(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"none\.json: cannot be read"):
        read_config(tmp_path / "none.json")


def test_nan_in_a_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(edited(Z_LAB, rope_theta=NAN)))
    with pytest.raises(UserError, match="rope_theta: found nan"):
        read_config(path)
    path.write_text(json.dumps(Z_LAB).replace("10000.0", "1e999"))
    with pytest.raises(UserError, match="rope_theta: found inf"):
        read_config(path)


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-3, 70)
    | st.integers()
    | st.floats()
    | st.sampled_from([S, FULL, "default", "dflash", "DFlashDraftModel", "\n", "x" * 300])
    | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)
KNOWN = sorted({*Z_LAB, *SPECULATORS, *SPECULATORS[LAYER], *Z_LAB["dflash_config"], "rope_parameters", "is_causal"})


def paths(value: Any, prefix: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path for key, inner in items for path in ((*prefix, key), *paths(inner, (*prefix, key)))]


@st.composite
def damaged(draw: st.DrawFn) -> dict[str, Any]:
    """A good file with a few values replaced, removed or added."""
    values = copy.deepcopy(draw(st.sampled_from([Z_LAB, SPECULATORS])))
    for _ in range(draw(st.integers(1, 3))):
        path = draw(st.sampled_from(paths(values) or [("empty",)]))
        place: Any = values
        for key in path[:-1]:
            place = place[key]
        action = draw(st.sampled_from(["replace", "remove", "add"]))
        if action == "remove" and path[-1] in (place if isinstance(place, dict) else range(len(place))):
            del place[path[-1]]
        elif action == "add" and isinstance(place, dict):
            place[draw(st.sampled_from(KNOWN) | st.text(max_size=12))] = draw(JSON)
        else:
            place[path[-1]] = draw(JSON)
    return values


def config_or_one_line(values: dict[str, Any]) -> None:
    before = copy.deepcopy(values)
    try:
        config = parse_config(values, "config.json")
    except UserError as error:
        assert str(error).startswith("config.json: ")
        assert "\n" not in str(error)
    else:
        assert isinstance(config, DrafterConfig)
        assert DrafterConfig(**config.model_dump()) == config
    assert repr(values) == repr(before)


@settings(max_examples=400, deadline=None)
@given(damaged())
def test_a_damaged_file_gives_a_configuration_or_one_line(values: dict[str, Any]) -> None:
    config_or_one_line(values)


@settings(max_examples=200, deadline=None)
@given(st.dictionaries(st.sampled_from(KNOWN) | st.text(max_size=12), JSON, max_size=12))
def test_any_object_gives_a_configuration_or_one_line(values: dict[str, Any]) -> None:
    config_or_one_line(values)


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=60) | JSON.map(lambda v: json.dumps(v).encode()))
def test_any_file_gives_a_configuration_or_one_line(tmp_path_factory: Any, content: bytes) -> None:
    path = tmp_path_factory.mktemp("any") / "config.json"
    path.write_bytes(content)
    try:
        read_config(path)
    except UserError as error:
        assert "\n" not in str(error)
