"""A new drafter for a target: its configuration and its first weights."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import nn

from drafttree.drafter.config import DrafterConfig, default_target_layer_ids
from drafttree.drafter.network import DFlashDrafter
from drafttree.errors import UserError
from drafttree.training.config import TrainingConfig


def drafter_config(config: TrainingConfig, target: Any) -> DrafterConfig:
    """The configuration of a new drafter for ``target``; what the settings leave open is taken from the target."""
    shape = target.config.get_text_config()
    heads = config.num_attention_heads or shape.num_attention_heads
    rope = getattr(shape, "rope_parameters", None) or {}
    theta = rope.get("rope_theta", getattr(shape, "rope_theta", None))
    if theta is None:
        raise UserError("target config.json: rope_theta: not found, expected a number")
    taps = config.taps or default_target_layer_ids(shape.num_hidden_layers, config.layers)
    if config.mask_token_id >= shape.vocab_size:
        raise UserError.field("training", "mask_token_id", config.mask_token_id, f"a value below {shape.vocab_size}")
    if len(set(taps)) != len(taps):
        raise UserError.field("training", "taps", list(taps), "distinct layers of the target")
    if min(taps) < 0 or max(taps) >= shape.num_hidden_layers:
        raise UserError.field(
            "training", "taps", list(taps), f"layers of the target, 0 to {shape.num_hidden_layers - 1}"
        )
    return DrafterConfig(
        hidden_size=shape.hidden_size,
        intermediate_size=config.intermediate_size or shape.intermediate_size,
        num_attention_heads=heads,
        num_key_value_heads=config.num_key_value_heads or shape.num_key_value_heads,
        head_dim=config.head_dim or getattr(shape, "head_dim", None) or shape.hidden_size // heads,
        vocab_size=shape.vocab_size,
        block_size=config.block_size,
        mask_token_id=config.mask_token_id,
        target_layer_ids=taps,
        num_target_layers=shape.num_hidden_layers,
        target_hidden_size=shape.hidden_size,
        layer_types=tuple("full_attention" for _ in range(config.layers)),
        rope_theta=float(theta),
        rms_norm_eps=shape.rms_norm_eps,
        max_position_embeddings=shape.max_position_embeddings,
    )


def initialise(network: DFlashDrafter, seed: int) -> None:
    """Normal weights of deviation 0.02, output projections scaled down by the depth."""
    generator = torch.Generator().manual_seed(seed)
    scale = 1 / math.sqrt(2 * len(network.layers))
    for name, module in network.named_modules():
        if isinstance(module, nn.Linear):
            deviation = 0.02 * (scale if name.endswith(("o_proj", "down_proj")) else 1.0)
            with torch.no_grad():
                module.weight.copy_(torch.randn(module.weight.shape, generator=generator) * deviation)
