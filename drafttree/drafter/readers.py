"""Public configuration formats of DFlash drafters (z-lab, speculators), read into one DrafterConfig.

A missing, unknown or contradictory field that could change the result is an error that names it; nothing that
changes the maths has a silent default.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import ValidationError

from drafttree.drafter.config import MAX_BLOCK_SIZE, DrafterConfig, default_target_layer_ids
from drafttree.drafter.fields import Fields, one_line, read_json
from drafttree.errors import UserError

LAYER_TYPES = ("full_attention", "sliding_attention")

# Fields that do not change what the network computes.
HARMLESS = (
    "_name_or_path", "add_cross_attention", "attention_dropout", "attn_implementation", "_attn_implementation",
    "auto_map", "begin_suppress_tokens", "bos_token_id", "chunk_size_feed_forward", "cross_attention_hidden_size",
    "decoder_start_token_id", "dropout", "dtype", "eos_token_id", "finetuning_task", "forced_bos_token_id",
    "forced_eos_token_id", "gradient_checkpointing", "id2label", "initializer_range", "is_decoder",
    "is_encoder_decoder", "label2id", "max_length", "max_window_layers", "model_type", "output_attentions",
    "output_hidden_states", "pad_token_id", "prefix", "pretraining_tp", "problem_type", "return_dict",
    "return_dict_in_generate", "sep_token_id", "tie_encoder_decoder", "tie_word_embeddings", "tokenizer_class",
    "torch_dtype", "torchscript", "transformers_version", "use_cache",
)  # fmt: skip

# Fields that change the maths, with the values that leave it as it is.
NEUTRAL: dict[str, tuple[Any, ...]] = {
    "add_swa_attention_sink_bias": (False,),
    "attention_sink_bias": (False,),
    "fc_layernorm": (False,),
    "is_neox_style": (True,),
    "logit_scale": (1, 1.0),
    "mlp_bias": (False,),
    "partial_rotary_factor": (1, 1.0),
    "projector_type": ("dflash",),
    "quantization_config": (),
    "sample_from_anchor": (False,),
    "shift_label": (False,),
    "use_aux_hidden_state": (True,),
    "use_qk_norm": (True,),
    "use_swa": (False,),
}

# Other drafters, by what their architecture or type is called.
OTHER_DRAFTERS = {
    "dflash2": "DFlash2", "dspark": "DSpark", "domino": "Domino", "dflare": "DFlare", "dfly": "DFly", "eagle": "EAGLE",
    "medusa": "Medusa", "mtp": "multi-token prediction", "mlp_speculator": "MLP speculator", "hydra": "Hydra",
}  # fmt: skip

# Fields that only such a drafter has.
OTHER_FEATURES = {
    "confidence_head_with_markov": "DSpark", "conv_group_size": "DFlash2", "conv_kernel_size": "DFlash2",
    "dspark_bonus_anchor": "DSpark", "emb_dim": "Domino", "enable_confidence_head": "DSpark",
    "gru_hidden_dim": "Domino", "markov_head_type": "DSpark", "markov_rank": "DSpark",
    "pure_draft_prefix_len": "Domino", "selector_rank": "DFlash2", "selector_top_k": "DFlash2",
}  # fmt: skip


def read_config(path: Path) -> DrafterConfig:
    """The drafter configuration in the file ``path``, in either public format; UserError names what is wrong."""
    return parse_config(read_json(path), path)


def parse_config(values: dict[str, Any], source: object) -> DrafterConfig:
    """The drafter configuration in a decoded config.json; ``source`` names it in errors."""
    fields = Fields(source, values)
    found = _read_speculators(fields) if is_speculators(values) else _read_z_lab(fields)
    fields.finish(OTHER_FEATURES)
    try:
        return DrafterConfig(**found)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        text = first["msg"].removeprefix("Value error, ")
        raise UserError(one_line(f"{source}: {where + ': ' if where else ''}{text}")) from None


def is_speculators(values: dict[str, Any]) -> bool:
    """Whether a decoded config.json is in the speculators format."""
    return "speculators_model_type" in values or "transformer_layer_config" in values


def _refuse_other_drafters(fields: Fields, name: str, expected: tuple[str, ...]) -> None:
    value = fields.take(name)
    items = value if isinstance(value, list) else [value]
    for item in items or [None]:
        if item in expected:
            continue
        text = str(item).lower()
        other = next((title for key, title in OTHER_DRAFTERS.items() if key in text), None)
        what = " or ".join(expected)
        raise fields.error(name, item, f"{what}; {other} drafters are not supported" if other else what)


def _read_z_lab(top: Fields) -> dict[str, Any]:
    """Fields of the z-lab format: a Qwen3 configuration with ``dflash_config`` inside."""
    _refuse_other_drafters(top, "architectures", ("DFlashDraftModel",))
    inner = top.section("dflash_config")
    for part in (top, inner):
        part.neutral(NEUTRAL)
        part.ignore(("mask_token",))
    top.ignore(HARMLESS)
    found = _transformer(top)
    found["num_target_layers"] = _either(inner, top, "num_target_layers", lambda f: f.integer("num_target_layers"))
    found["target_hidden_size"] = found["hidden_size"]
    if top.has("target_hidden_size"):
        found["target_hidden_size"] = top.integer("target_hidden_size")
    found["block_size"] = _either(inner, top, "block_size", lambda f: f.integer("block_size", 2, MAX_BLOCK_SIZE))
    found["mask_token_id"] = _either(inner, top, "mask_token_id", lambda f: f.integer("mask_token_id", 0))
    if inner.has("target_layer_ids") or top.has("target_layer_ids"):
        taps = _either(inner, top, "target_layer_ids", lambda f: f.integers("target_layer_ids"))
    else:
        layers = len(found["layer_types"])
        if found["num_target_layers"] < 4:
            raise inner.error("target_layer_ids", None, "a list, because num_target_layers is below 4")
        taps = default_target_layer_ids(found["num_target_layers"], layers)
    found["target_layer_ids"] = taps
    for name in ("input_embedding_scale", "output_multiplier"):
        if inner.has(name) or top.has(name):
            found[name] = _either(inner, top, name, lambda f, n=name: f.positive(n))
    found["final_logit_softcapping"] = _soft_cap(inner, top)
    if top.has("draft_vocab_size") and top.integer("draft_vocab_size") != found["vocab_size"]:
        raise top.error("draft_vocab_size", top.take("draft_vocab_size"), f"vocab_size, {found['vocab_size']}")
    if found["sliding_window"] is not None and inner.has("swa_window_size"):
        _same(inner, "swa_window_size", inner.integer("swa_window_size"), found["sliding_window"], "sliding_window")
    causal = _causal(inner, top)
    if causal is not None:
        found["sliding_is_causal"] = found["full_is_causal"] = causal
    inner.finish(OTHER_FEATURES)
    return found


def _read_speculators(top: Fields) -> dict[str, Any]:
    """Fields of the speculators format: the layers in ``transformer_layer_config``, the rest around it."""
    _refuse_other_drafters(top, "speculators_model_type", ("dflash",))
    if top.has("architectures"):
        _refuse_other_drafters(top, "architectures", ("DFlashSpeculator", "DFlashDraftModel"))
    top.neutral(NEUTRAL)
    top.ignore(HARMLESS)
    top.ignore(("speculators_version", "speculators_config", "max_anchors", "has_no_defaults_at_init"))
    layers = top.section("transformer_layer_config")
    layers.neutral(NEUTRAL)
    layers.ignore(HARMLESS)
    layers.ignore(("architectures",))
    found = _transformer(layers)
    layers.finish(OTHER_FEATURES)
    found["block_size"] = top.integer("block_size", 2, MAX_BLOCK_SIZE)
    found["mask_token_id"] = top.integer("mask_token_id", 0)
    # Entry 0 of the target's hidden states is the embedding, so entry l + 1 is the output of layer l.
    found["target_layer_ids"] = tuple(i - 1 for i in top.integers("aux_hidden_state_layer_ids", 1))
    found["num_target_layers"] = None
    found["target_hidden_size"] = found["hidden_size"]
    if top.has("target_hidden_size"):
        found["target_hidden_size"] = top.integer("target_hidden_size")
    size = top.integer("draft_vocab_size")
    found["draft_vocab_size"] = None if size == found["vocab_size"] else size
    if "sliding_attention" in found["layer_types"]:
        found["sliding_is_causal"] = not top.flag("sliding_window_non_causal")
    elif top.has("sliding_window_non_causal"):
        top.flag("sliding_window_non_causal")
    return found


def _transformer(fields: Fields) -> dict[str, Any]:
    """The Qwen3 part that both formats share."""
    sizes = ("hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads", "head_dim", "vocab_size")
    found: dict[str, Any] = {name: fields.integer(name) for name in sizes}
    found["rms_norm_eps"] = fields.positive("rms_norm_eps")
    found["rope_theta"] = _rope_theta(fields)
    if fields.has("max_position_embeddings"):
        found["max_position_embeddings"] = fields.integer("max_position_embeddings")
    if fields.has("attention_bias"):
        found["attention_bias"] = fields.flag("attention_bias")
    if fields.has("hidden_act") and fields.take("hidden_act") != "silu":
        raise fields.error("hidden_act", fields.take("hidden_act"), "silu, the only activation supported")
    layers = fields.integer("num_hidden_layers", 1, 1024)
    found["layer_types"], found["sliding_window"] = _layer_types(fields, layers)
    return found


def _layer_types(fields: Fields, layers: int) -> tuple[tuple[str, ...], int | None]:
    """Layer types, and the window if any layer slides; a window switched off while layers slide is an error."""
    use = fields.flag("use_sliding_window") if fields.has("use_sliding_window") else None
    window = fields.integer("sliding_window") if fields.has("sliding_window") else None
    if not fields.has("layer_types"):
        if use:
            raise fields.error("layer_types", None, f"{layers} layer types, because use_sliding_window is true")
        return ("full_attention",) * layers, None
    types = fields.names("layer_types", LAYER_TYPES)
    if len(types) != layers:
        raise fields.error("layer_types", len(types), f"one for each of the num_hidden_layers, {layers}")
    if "sliding_attention" not in types:
        return types, None
    if use is not True:
        raise fields.error("use_sliding_window", use, "true, because layer_types has sliding layers")
    if window is None:
        raise fields.error("sliding_window", None, "a number, because layer_types has sliding layers")
    return types, window


def _rope_theta(fields: Fields) -> float:
    """Theta, flat or nested in ``rope_parameters`` (``rope_scaling`` in older files); only plain RoPE is supported."""
    found: list[tuple[str, float]] = []
    if fields.has("rope_theta"):
        found.append(("rope_theta", fields.positive("rope_theta")))
    for name in ("rope_parameters", "rope_scaling"):
        nested = fields.section(name)
        for key in ("rope_type", "type"):
            if nested.has(key) and nested.take(key) != "default":
                raise nested.error(key, nested.take(key), "default, the only RoPE type supported")
        nested.neutral({"partial_rotary_factor": (1, 1.0)})
        if nested.has("rope_theta"):
            found.append((f"{name}.rope_theta", nested.positive("rope_theta")))
        nested.finish()
    if not found:
        raise fields.error("rope_theta", None, "a number, here or in rope_parameters")
    for name, value in found[1:]:
        if value != found[0][1]:
            raise fields.error(name, value, f"the same as {found[0][0]}, {found[0][1]}")
    return found[0][1]


def _either(inner: Fields, top: Fields, name: str, read: Any) -> Any:
    """A required field that stands in ``dflash_config`` or at the top level; two different values are an error."""
    if not inner.has(name) or not top.has(name):
        return read(top if top.has(name) else inner)
    value, other = read(inner), read(top)
    _same(top, name, other, value, f"dflash_config.{name}")
    return value


def _same(fields: Fields, name: str, value: Any, expected: Any, where: str) -> None:
    if value != expected:
        shown = list(value) if isinstance(value, tuple) else value
        raise fields.error(name, shown, f"the same as {where}, {expected}")


def _soft_cap(inner: Fields, top: Fields) -> float | None:
    """The cap, None if absent or 0; both places must agree."""
    caps = []
    for part in (inner, top):
        value = part.take("final_logit_softcapping")
        if value is None:
            continue
        off = not isinstance(value, bool) and value == 0
        caps.append((part, None if off else part.positive("final_logit_softcapping")))
    if len(caps) == 2:
        _same(top, "final_logit_softcapping", caps[1][1], caps[0][1], "dflash_config.final_logit_softcapping")
    return caps[0][1] if caps else None


def _causal(inner: Fields, top: Fields) -> bool | None:
    """``is_causal``, or ``dflash_config.causal``, for all layers; None if neither is set."""
    outer = top.flag("is_causal") if top.has("is_causal") else None
    nested = inner.flag("causal") if inner.has("causal") else None
    if outer is not None and nested is not None:
        _same(inner, "causal", nested, outer, "is_causal")
    return nested if outer is None else outer
