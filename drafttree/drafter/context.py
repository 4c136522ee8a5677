"""The drafter's memory of the committed text: keys and values in buffers of a fixed size."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from drafttree.drafter.config import DrafterConfig
from drafttree.drafter.network import Join, LayerContext


class DrafterContext:
    """Context keys and values of every layer, for one sequence.

    Row j belongs to the token at absolute position j; ``length`` rows are valid, ``capacity`` fit. Behind the context
    each buffer has room for one block: a draft writes its own keys and values there and attends over a view, so
    nothing is copied, and the next ``append`` overwrites them.
    """

    def __init__(self, config: DrafterConfig, capacity: int, dtype: torch.dtype, device: torch.device) -> None:
        self.config = config
        self.capacity = capacity
        self.length = 0
        shape = (1, config.num_key_value_heads, capacity + config.block_size, config.head_dim)
        self._buffers = [
            LayerContext(torch.zeros(shape, dtype=dtype, device=device), torch.zeros(shape, dtype=dtype, device=device))
            for _ in config.layer_types
        ]  # [1, kv heads, capacity + block, head dim] each

    def nbytes(self) -> int:
        """Memory of the buffers, in bytes."""
        return sum(t.numel() * t.element_size() for buffer in self._buffers for t in buffer)

    def append(self, rows: Sequence[LayerContext], start: int) -> None:
        """Write ``rows`` (one a layer, each [1, kv heads, T, head dim]) at positions ``start`` to ``start + T - 1``.

        ``start`` may lie before ``length``: later rows are then forgotten. Raises ValueError on a gap or on overflow.
        """
        count = rows[0].keys.shape[2]
        if not 0 <= start <= self.length:
            raise ValueError(f"context rows must follow each other: start {start}, length {self.length}")
        if start + count > self.capacity:
            raise ValueError(f"context of {start + count} rows exceeds the capacity of {self.capacity}")
        for buffer, row in zip(self._buffers, rows, strict=True):
            buffer.keys[:, :, start : start + count] = row.keys
            buffer.values[:, :, start : start + count] = row.values
        self.length = start + count

    def first_visible(self, layer_type: str) -> int:
        """First row that a block behind the context can see in a layer of ``layer_type``."""
        window = self.config.sliding_window
        return 0 if layer_type == "full_attention" or window is None else max(0, self.length - window + 1)

    def join(self, layer: int) -> Join:
        """Joins a block to the context of ``layer`` in place: the visible rows, then the block, as one view."""
        buffer, length = self._buffers[layer], self.length
        first = self.first_visible(self.config.layer_types[layer])

        def put_behind(block: LayerContext) -> LayerContext:
            end = length + block.keys.shape[2]
            buffer.keys[:, :, length:end] = block.keys
            buffer.values[:, :, length:end] = block.values
            return LayerContext(buffer.keys[:, :, first:end], buffer.values[:, :, first:end])

        return put_behind

    def clear(self) -> None:
        """Forget everything; the buffers stay."""
        self.length = 0

    def positions(self, first: int) -> Tensor:
        """Positions [1, length - first] of the rows from ``first`` on."""
        return torch.arange(first, self.length, device=self._buffers[0].keys.device)[None]
