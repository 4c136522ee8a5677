"""Which targets the embedded engine can run, told from their config.json alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from drafttree.errors import UserError

DENSE = {"llama": "Llama", "qwen2": "Qwen2", "qwen3": "Qwen3"}
HYBRID = {"qwen3_next": "Qwen3-Next", "qwen3_5_text": "Qwen3.5"}
SUPPORTED = DENSE | HYBRID


def check_architecture(values: Mapping[str, Any], source: object) -> None:
    """UserError unless the engine runs the model of this configuration.

    ``values``: the object in config.json; ``source`` names it in the message. The message for another architecture
    lists the supported ones.
    """
    kind = values.get("model_type")
    text = values.get("text_config")
    if kind == "qwen3_5" and isinstance(text, Mapping):  # beside a vision tower; the text part is loaded alone
        inside = {"model_type": "qwen3_5_text", "quantization_config": values.get("quantization_config"), **text}
        check_architecture(inside, source)
        return
    if not isinstance(kind, str) or kind not in SUPPORTED:
        names = ", ".join(f"{name} ({kind})" for kind, name in SUPPORTED.items())
        raise UserError.field(source, "model_type", kind, f"a supported architecture: {names}")
    if values.get("quantization_config") is not None:
        raise UserError(f"{source}: quantization_config: found one, expected unquantised weights")
    for name in ("rope_parameters", "rope_scaling"):
        rope = values.get(name)
        if isinstance(rope, Mapping) and "longrope" in (rope.get("rope_type"), rope.get("type")):
            # its frequencies change with the last position of a forward: a tree that reaches over would turn them early
            raise UserError.field(source, f"{name}.rope_type", "longrope", "one that does not depend on the length")
    layer_types = values.get("layer_types")
    if layer_types is not None and not isinstance(layer_types, list):
        raise UserError.field(source, "layer_types", layer_types, "a list, one entry a layer")
    known = ("full_attention", "linear_attention") if kind in HYBRID else ("full_attention",)
    for layer_type in layer_types or ():
        if layer_type not in known:
            raise UserError.field(source, "layer_types", layer_type, " or ".join(known))
    if kind in HYBRID and values.get("hidden_act", "silu") != "silu":
        raise UserError.field(source, "hidden_act", values["hidden_act"], "silu, the convolution's activation")
    if values.get("use_sliding_window"):
        raise UserError.field(source, "use_sliding_window", True, "false: sliding layers are not supported")


def attention_layers(config: Any) -> list[int]:
    """Numbers of the layers that keep keys and values."""
    types = getattr(config, "layer_types", None) or ["full_attention"] * config.num_hidden_layers
    return [layer for layer, kind in enumerate(types) if kind == "full_attention"]


def head_size(config: Any) -> int:
    """Width of an attention head; most configurations of older models leave it to be derived."""
    return int(getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads)
