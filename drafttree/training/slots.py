"""Batched generation in slots: every row decodes at its own position, and a finished row is refilled at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import AttentionInterface, DynamicCache

from drafttree.transformers.architectures import head_size
from drafttree.transformers.compat import cache_keyword

GROUPED = "drafttree_grouped"


def grouped_attention(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **kwargs: Any
) -> tuple[Tensor, None]:
    """Attention in which the queries that share a key head are rows of one product.

    ``query`` [S, heads, Q, D], ``key`` and ``value`` [S, kv heads, T, D]. Decoding (Q = 1) reads each key once,
    without the copies that repeating the key heads would make.
    """
    scale = kwargs.get("scaling")
    slots, heads, rows, dim = query.shape
    if rows == 1 and attention_mask is not None:
        grouped = query.view(slots, key.shape[1], heads // key.shape[1], dim)
        out = F.scaled_dot_product_attention(grouped, key, value, attn_mask=attention_mask, scale=scale)
        return out.reshape(slots, 1, heads, dim), None
    out = F.scaled_dot_product_attention(
        query, key, value, is_causal=True, scale=scale, enable_gqa=heads != key.shape[1]
    )
    return out.transpose(1, 2).contiguous(), None


def sample(logits: Tensor, temperature: Tensor) -> Tensor:
    """Argmax where ``temperature`` [S] is 0, else a sample; ``logits`` [S, V] -> [S]."""
    wide = logits.float()
    noise = -torch.log(-torch.log(torch.rand_like(wide).clamp_(1e-10, 1 - 1e-7)))
    return (wide + noise * temperature[:, None]).argmax(-1)


class SlotCache:
    """Static keys and values [S, kv heads, capacity, D] a layer; ``position`` [S] is where each row writes."""

    is_compileable = False

    def __init__(self, config: Any, slots: int, capacity: int, dtype: torch.dtype, device: torch.device) -> None:
        shape = (slots, config.num_key_value_heads, capacity, head_size(config))
        self.keys = [torch.zeros(shape, dtype=dtype, device=device) for _ in range(config.num_hidden_layers)]
        self.values = [torch.zeros_like(k) for k in self.keys]
        self.position = torch.zeros(slots, dtype=torch.long, device=device)

    def update(
        self, keys: Tensor, values: Tensor, layer_idx: int, *_args: Any, **_kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Write one row a slot and return the whole buffers."""
        index = self.position[:, None, None, None].expand(-1, keys.shape[1], 1, keys.shape[3])
        self.keys[layer_idx].scatter_(2, index, keys)
        self.values[layer_idx].scatter_(2, index, values)
        return self.keys[layer_idx], self.values[layer_idx]

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Unused: positions and mask are given explicitly."""
        return 0


class SlotDecoder:
    """Decodes all slots one token at a time; on CUDA a step is one graph replay."""

    def __init__(self, model: Any, slots: int, capacity: int) -> None:
        AttentionInterface.register(GROUPED, grouped_attention)
        parameter = next(model.parameters())
        self.model: Any = model
        self._attention_before = self.model.config._attn_implementation
        self.model.set_attn_implementation(GROUPED)
        self.cache_word = cache_keyword(model)
        self.device: torch.device = parameter.device
        self.capacity = capacity
        self.cache = SlotCache(self.model.config, slots, capacity, parameter.dtype, self.device)
        self.tokens = torch.zeros(slots, 1, dtype=torch.long, device=self.device)
        self.temperature = torch.zeros(slots, dtype=torch.float32, device=self.device)
        self._columns = torch.arange(capacity, device=self.device)
        self._replay: Callable[[], None] | None = None

    def close(self) -> None:
        """Give the model its attention back."""
        self.model.set_attn_implementation(self._attention_before)

    @torch.inference_mode()
    def prefill(self, prompts: list[list[int]], slots: list[int], temperatures: list[float]) -> list[int]:
        """Put ``prompts`` into ``slots`` and return each one's first token."""
        longest = max(map(len, prompts))
        ids = torch.zeros(len(prompts), longest, dtype=torch.long)
        for row, prompt in enumerate(prompts):
            ids[row, : len(prompt)] = torch.tensor(prompt)
        ids = ids.to(self.device)
        last = torch.tensor([len(p) - 1 for p in prompts], device=self.device)
        where = torch.tensor(slots, device=self.device)
        cache = DynamicCache()
        # padding stands right of the prompt, so causal attention never sees it
        out = self.model.model(input_ids=ids, use_cache=True, **{self.cache_word: cache})
        hidden = out.last_hidden_state[torch.arange(len(prompts), device=self.device), last]
        warmth = torch.tensor(temperatures, device=self.device)
        first = sample(self.model.lm_head(hidden), warmth)
        for index, layer in enumerate(cache.layers):
            self.cache.keys[index][where, :, :longest] = layer.keys
            self.cache.values[index][where, :, :longest] = layer.values
        self.tokens[where, 0] = first
        self.cache.position[where] = last + 1
        self.temperature[where] = warmth
        return [int(t) for t in first.tolist()]

    @torch.inference_mode()
    def _step(self) -> None:
        mask = (self._columns <= self.cache.position[:, None])[:, None, None, :]  # [S, 1, 1, capacity]
        out = self.model.model(
            input_ids=self.tokens,
            position_ids=self.cache.position[:, None],
            attention_mask=mask,
            use_cache=True,
            **{self.cache_word: self.cache},
        )
        chosen = sample(self.model.lm_head(out.last_hidden_state[:, 0]), self.temperature)
        self.tokens.copy_(chosen[:, None])
        # an idle row stays at the last column until it is refilled
        self.cache.position.add_(1).clamp_(max=self.capacity - 1)

    @torch.inference_mode()
    def steps(self, count: int) -> Tensor:
        """Decode ``count`` tokens in every slot; returns them as [count, S] on the CPU."""
        out = torch.empty(count, self.tokens.shape[0], dtype=torch.long, device=self.device)
        for row in range(count):
            self._run()
            out[row] = self.tokens[:, 0]
        return out.cpu()

    def _run(self) -> None:
        if self.device.type != "cuda":
            return self._step()
        if self._replay is None:
            kept = [x.clone() for x in (self.tokens, self.cache.position)]
            stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                self._step()  # warm-up; it writes only rows that the first replay writes again
            torch.cuda.current_stream().wait_stream(stream)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                self._step()
            self.tokens.copy_(kept[0])
            self.cache.position.copy_(kept[1])
            self._replay = graph.replay
        self._replay()
