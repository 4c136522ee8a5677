"""Small deterministic drafters and targets."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from transformers import LlamaConfig, LlamaForCausalLM

from drafttree.drafter.config import DrafterConfig
from drafttree.drafter.network import DFlashDrafter
from drafttree.drafter.readers import parse_config

HIDDEN, VOCAB, LAYERS = 32, 61, 12

Z_LAB: dict[str, Any] = {
    "architectures": ["DFlashDraftModel"],
    "model_type": "qwen3",
    "auto_map": {"AutoModel": "dflash.DFlashDraftModel"},
    "dtype": "bfloat16",
    "hidden_size": HIDDEN,
    "intermediate_size": 48,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "num_hidden_layers": 3,
    "vocab_size": VOCAB,
    "rms_norm_eps": 1e-6,
    "hidden_act": "silu",
    "attention_bias": False,
    "max_position_embeddings": 512,
    "num_target_layers": LAYERS,
    "rope_theta": 10000.0,
    "rope_scaling": None,
    "use_cache": True,
    "layer_types": ["sliding_attention", "sliding_attention", "full_attention"],
    "use_sliding_window": True,
    "sliding_window": 9,
    "max_window_layers": 3,
    "block_size": 6,
    "dflash_config": {"mask_token_id": 60, "target_layer_ids": [1, 5, 9]},
}

SPECULATORS: dict[str, Any] = {
    "architectures": ["DFlashDraftModel"],
    "speculators_model_type": "dflash",
    "speculators_version": "0.5.0",
    "speculators_config": {"algorithm": "dflash", "verifier": {"name_or_path": "some/target"}},
    "transformers_version": "5.15.0",
    "dtype": "bfloat16",
    "aux_hidden_state_layer_ids": [2, 6, 10],
    "block_size": 6,
    "draft_vocab_size": VOCAB,
    "mask_token_id": 60,
    "max_anchors": 512,
    "sample_from_anchor": False,
    "sliding_window_non_causal": False,
    "target_hidden_size": None,
    "tie_word_embeddings": False,
    "transformer_layer_config": {
        "attention_bias": False,
        "head_dim": 16,
        "hidden_act": "silu",
        "hidden_size": HIDDEN,
        "intermediate_size": 48,
        "layer_types": ["sliding_attention", "sliding_attention", "full_attention"],
        "max_position_embeddings": 512,
        "model_type": "qwen3",
        "num_attention_heads": 4,
        "num_hidden_layers": 3,
        "num_key_value_heads": 2,
        "rms_norm_eps": 1e-6,
        "rope_parameters": {"rope_theta": 10000.0, "rope_type": "default"},
        "sliding_window": 9,
        "use_sliding_window": True,
        "vocab_size": VOCAB,
    },
}


def edited(values: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """A copy of ``values``; ``a__b=1`` sets b inside a, and ... removes a field."""
    copy: dict[str, Any] = json.loads(json.dumps(values))
    for path, value in changes.items():
        *parents, name = path.split("__")
        place = copy
        for parent in parents:
            place = place.setdefault(parent, {})
        if value is ...:
            place.pop(name, None)
        else:
            place[name] = value
    return copy


def series(count: int, seed: int, scale: float, shift: float = 0.0) -> torch.Tensor:
    i = torch.arange(count, dtype=torch.float64)
    inner = 0.7 * seed + 1.3 + i * (1.618033988749895 + 0.01 * seed) + 0.5 * torch.sin(i * 0.37)
    return shift + scale * torch.sin(inner)


def fill(shape: tuple[int, ...], seed: int, scale: float, shift: float = 0.0) -> torch.Tensor:
    return series(math.prod(shape), seed, scale, shift).reshape(shape)


def weights(config: DrafterConfig) -> dict[str, torch.Tensor]:
    """Float64 weights of a drafter, by name."""
    with torch.device("meta"):
        shapes = {name: tuple(t.shape) for name, t in DFlashDrafter(config).state_dict().items()}
    return {
        name: fill(shapes[name], n, 0.3, 1.0) if name.endswith("norm.weight") else fill(shapes[name], n, 0.25)
        for n, name in enumerate(sorted(shapes))
    }


def embedding() -> torch.Tensor:
    return fill((VOCAB, HIDDEN), 100, 1.0)


def head() -> torch.Tensor:
    return fill((VOCAB, HIDDEN), 101, 0.6)


def taps(count: int, length: int) -> torch.Tensor:
    return fill((1, length, count * HIDDEN), 102, 1.0)


def make_target(dtype: torch.dtype = torch.float64, **changes: Any) -> LlamaForCausalLM:
    """A target whose embedding and head are the fixed ones; its layers do not matter here."""
    sizes = {"vocab_size": VOCAB, "hidden_size": HIDDEN, "num_hidden_layers": LAYERS} | changes
    config = LlamaConfig(intermediate_size=8, num_attention_heads=2, num_key_value_heads=1, **sizes)
    target = LlamaForCausalLM(config).eval().to(dtype)
    if not changes:
        with torch.no_grad():
            target.model.embed_tokens.weight.copy_(embedding())
            target.lm_head.weight.copy_(head())
    return target


def write_drafter(
    directory: Path,
    values: dict[str, Any],
    *,
    dtype: torch.dtype = torch.float64,
    extra: dict[str, torch.Tensor] | None = None,
) -> Path:
    """A directory with the configuration ``values`` and the fixed weights."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "config.json").write_text(json.dumps(values))
    tensors = {name: w.to(dtype) for name, w in weights(parse_config(values, "sample")).items()}
    save_file(tensors | (extra or {}), directory / "model.safetensors")
    return directory
