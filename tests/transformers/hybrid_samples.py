"""Tiny hybrid targets whose recurrent state remembers, so that a wrong one shows."""

from __future__ import annotations

from typing import Any

import torch
from transformers import (
    Qwen3_5Config,
    Qwen3_5ForCausalLM,
    Qwen3_5ForConditionalGeneration,
    Qwen3_5TextConfig,
    Qwen3NextConfig,
    Qwen3NextForCausalLM,
)

VOCABULARY = 53
HYBRIDS = ("qwen3_next", "qwen3_5", "qwen3_5_vision")
SHAPE: dict[str, Any] = dict(
    vocab_size=VOCABULARY,
    hidden_size=32,
    intermediate_size=32,
    num_hidden_layers=4,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=8,
    linear_num_key_heads=2,
    linear_num_value_heads=4,
    linear_key_head_dim=8,
    linear_value_head_dim=6,
    max_position_embeddings=4096,
    eos_token_id=None,
    bos_token_id=None,
    pad_token_id=None,
    tie_word_embeddings=False,
    initializer_range=0.3,
)
EXPERTS = dict(num_experts=4, num_experts_per_tok=2, moe_intermediate_size=16, shared_expert_intermediate_size=16)
VISION = dict(depth=1, hidden_size=16, intermediate_size=16, num_heads=2, out_hidden_size=32)


def tiny_hybrid(family: str, *, dtype: torch.dtype = torch.float64, seed: int = 11, **options: Any) -> Any:
    """A random hybrid: three Gated DeltaNet layers, one attention layer; decays from about 0.5 to 0.999."""
    torch.manual_seed(seed)
    shape = SHAPE | options
    if family == "qwen3_next":
        model: Any = Qwen3NextForCausalLM(Qwen3NextConfig(**shape, **EXPERTS))
        model.set_experts_implementation("eager")  # the grouped ones refuse float64
    elif family == "qwen3_5":
        model = Qwen3_5ForCausalLM(Qwen3_5TextConfig(**shape))
    else:
        model = Qwen3_5ForConditionalGeneration(Qwen3_5Config(text_config=shape, vision_config=VISION))
    for layer in model.get_decoder().layers:
        if hasattr(layer, "linear_attn"):
            heads = len(layer.linear_attn.A_log)
            layer.linear_attn.A_log.data = torch.logspace(-3, -0.3, heads).log()
    return model.to(dtype).eval().requires_grad_(False)
