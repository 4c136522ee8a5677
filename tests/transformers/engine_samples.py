"""Tiny targets of every supported family, and a drafter that knows the future."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

VOCABULARY = 53
FAMILIES: dict[str, tuple[Any, Any]] = {
    "llama": (LlamaConfig, LlamaForCausalLM),
    "qwen2": (Qwen2Config, Qwen2ForCausalLM),
    "qwen3": (Qwen3Config, Qwen3ForCausalLM),
}


def tiny_target(family: str, *, context: int = 4096, dtype: torch.dtype = torch.float64, **options: Any) -> Any:
    """A random model whose text neither loops at once nor is uniform."""
    config_class, model_class = FAMILIES[family]
    torch.manual_seed(11)
    settings = dict(
        vocab_size=VOCABULARY,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        max_position_embeddings=context,
        eos_token_id=None,
        bos_token_id=None,
        pad_token_id=None,
        tie_word_embeddings=False,
        initializer_range=0.3,
    )
    if family == "qwen2":
        del settings["head_dim"]
    return model_class(config_class(**{**settings, **options})).to(dtype).eval()


class OracleContext:
    """Counts the committed tokens as a drafter's context does."""

    length = 0


class OracleDrafter:
    """Hides the true continuation among decoys: at every depth the true token gets a random rank, now and then none.

    ``truth``: the whole text, prompt and continuation, by position. A real drafter's interface, so that the loop under
    test runs unchanged.
    """

    def __init__(self, truth: list[int], *, block_size: int = 6, layer_ids: tuple[int, ...] = (0, 2), seed: int = 0):
        self.truth = truth
        self.config = SimpleNamespace(block_size=block_size, target_layer_ids=layer_ids)
        self.generator = torch.Generator().manual_seed(seed)

    def new_context(self, capacity: int) -> OracleContext:
        return OracleContext()

    def extend(self, context: OracleContext, taps: torch.Tensor, start_position: int) -> None:
        assert start_position == context.length
        context.length += taps.shape[1]

    def draft(self, context: OracleContext, anchor: int, block_size: int | None = None) -> torch.Tensor:
        size = block_size or self.config.block_size
        logits = torch.randn(size - 1, VOCABULARY, generator=self.generator)
        for row in range(size - 1):
            position = context.length + 1 + row
            if position < len(self.truth) and torch.rand((), generator=self.generator) < 0.9:
                order = logits[row].sort(descending=True).values
                rank = int(torch.randint(0, 3, (), generator=self.generator))
                logits[row, self.truth[position]] = order[rank] + 1e-3
        return logits
