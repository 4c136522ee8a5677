"""Keys and values of the committed text and of the tree under verification, in buffers of a fixed size."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from drafttree.ops.kv_commit import commit_rows


class KeyValueCache:
    """Attention cache for one sequence, in the form that Transformers' attention layers call.

    Row j of the first ``length`` rows belongs to the token at position j. A forward writes its rows behind them, at
    consecutive slots whatever their positions; :meth:`commit` keeps the accepted ones. Buffers [layers, 2, kv heads,
    capacity, head dim] are made once; attention reads a view of the rows in use.
    """

    is_compileable = False

    def __init__(
        self, layers: Sequence[int], heads: int, head_dim: int, capacity: int, dtype: torch.dtype, device: torch.device
    ) -> None:
        """``layers``: the numbers of the model's attention layers, in the order of the buffers."""
        self.buffers = torch.zeros(len(layers), 2, heads, capacity, head_dim, dtype=dtype, device=device)
        self.length = 0
        self._place = {layer: place for place, layer in enumerate(layers)}

    @property
    def capacity(self) -> int:
        """Rows that fit."""
        return self.buffers.shape[3]

    def nbytes(self) -> int:
        """Memory of the buffers, in bytes."""
        return self.buffers.numel() * self.buffers.element_size()

    def update(
        self, keys: Tensor, values: Tensor, layer_idx: int, *_args: Any, **_kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Write ``keys`` and ``values`` [1, kv heads, T, head dim] of a layer behind the committed rows; all rows."""
        end = self.length + keys.shape[2]
        layer = self.buffers[self._place[layer_idx]]  # [2, kv heads, capacity, head dim]
        layer[0, :, self.length : end] = keys[0]
        layer[1, :, self.length : end] = values[0]
        return layer[None, 0, :, :end], layer[None, 1, :, :end]

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Number of committed tokens."""
        return self.length

    def commit(self, path: Sequence[int]) -> None:
        """Keep the rows of the accepted ``path`` (node numbers, the root first) and forget the rest."""
        commit_rows(self.buffers, self.length, path)
        self.length += len(path)
