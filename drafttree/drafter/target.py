"""What a drafter needs of its target, and the checks that the two belong together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from drafttree.drafter.config import DrafterConfig
from drafttree.errors import UserError


@dataclass(frozen=True)
class TargetFacts:
    """Embedding [V, H] and output head [V, H] of a target, shared with it, its head's layer, and its sizes."""

    embedding: Tensor
    head: Tensor
    vocab_size: int
    hidden_size: int
    num_layers: int
    head_layer: nn.Module | None = None

    @classmethod
    def of(cls, target: nn.Module) -> TargetFacts:
        """Facts of a Hugging Face causal language model; UserError if its embedding or head cannot be used."""
        name = type(target).__name__
        config: Any = getattr(target, "config", None)
        if config is None:
            raise UserError(f"target {name}: found no config, expected a Hugging Face causal language model")
        config = config.get_text_config() if hasattr(config, "get_text_config") else config
        sizes: list[Any] = [getattr(config, name, None) for name in ("vocab_size", "hidden_size", "num_hidden_layers")]
        if not all(isinstance(size, int) for size in sizes):
            raise UserError(f"target {name}: found no vocabulary size, hidden size or number of layers in its config")
        shape = (sizes[0], sizes[1])
        embedding = _matrix(name, "input embedding", _module(target, "get_input_embeddings"), shape)
        layer = _module(target, "get_output_embeddings")
        head = _matrix(name, "output head", layer, shape)
        return cls(embedding, head, sizes[0], sizes[1], sizes[2], layer)


def _module(target: nn.Module, getter: str) -> nn.Module | None:
    try:
        module = getattr(target, getter)()
    except (AttributeError, NotImplementedError):
        return None
    return module if isinstance(module, nn.Module) else None


def _matrix(name: str, role: str, module: nn.Module | None, shape: tuple[int, int]) -> Tensor:
    """The weight [V, H] of an embedding or head, provided that it is a plain float matrix without a bias."""
    if module is None:
        raise UserError(f"target {name}: {role}: found none, expected one that the drafter can share")
    weight = getattr(module, "weight", None)
    kind = type(module).__name__
    if not isinstance(weight, Tensor) or type(weight) not in (Tensor, nn.Parameter) or weight.dim() != 2:
        raise UserError(f"target {name}: {role}: found {kind} without a plain weight, expected an unquantised matrix")
    if weight.dtype not in (torch.float64, torch.float32, torch.bfloat16, torch.float16):
        raise UserError.field(f"target {name}", role, f"{kind} of {weight.dtype}", "an unquantised float matrix")
    if getattr(module, "bias", None) is not None:
        raise UserError.field(f"target {name}", role, f"{kind} with a bias", "one without a bias")
    if weight.is_meta:
        raise UserError(f"target {name}: {role}: found it offloaded, expected it on a device")
    if tuple(weight.shape) != shape:
        raise UserError.field(f"target {name}", role, list(weight.shape), f"vocabulary and hidden size {list(shape)}")
    return weight.detach()


def check_fit(config: DrafterConfig, target: TargetFacts, source: object) -> None:
    """Raise UserError unless the drafter of ``config`` was made for a target of this shape."""
    if config.hidden_size != target.hidden_size:
        raise UserError.field(source, "hidden_size", config.hidden_size, f"the target's {target.hidden_size}")
    if config.target_hidden_size != target.hidden_size:
        raise UserError.field(
            source, "target_hidden_size", config.target_hidden_size, f"the target's {target.hidden_size}"
        )
    if config.vocab_size != target.vocab_size:
        raise UserError.field(source, "vocab_size", config.vocab_size, f"the target's {target.vocab_size}")
    if config.num_target_layers not in (None, target.num_layers):
        raise UserError.field(
            source, "num_target_layers", config.num_target_layers, f"the target's {target.num_layers}"
        )
    for tap in config.target_layer_ids:
        if not 0 <= tap < target.num_layers:
            raise UserError.field(
                source, "target_layer_ids", tap, f"layers of the target, 0 to {target.num_layers - 1}"
            )
