"""The attention mask of a verify step, in one buffer that is updated in place."""

from __future__ import annotations

import torch
from torch import Tensor


class TreeMask:
    """Which row sees which: every row sees the committed text, and of the tree its ancestors and itself.

    The buffer [rows, capacity] is made once. Its columns of committed text are opened as the text grows, so a step
    writes only its own square. ``sdpa`` attention takes it as booleans, ``eager`` as numbers to add.
    """

    def __init__(self, rows: int, capacity: int, attention: str, dtype: torch.dtype, device: torch.device) -> None:
        self.boolean = attention == "sdpa"
        if self.boolean:
            self.buffer = torch.zeros(rows, capacity, dtype=torch.bool, device=device)
        else:
            self.buffer = torch.full((rows, capacity), torch.finfo(dtype).min, dtype=dtype, device=device)
        self._opened = 0

    def view(self, length: int, square: Tensor) -> Tensor:
        """Mask [1, 1, n, length + n] for ``square`` [n, n] bool behind ``length`` committed tokens."""
        count = square.shape[0]
        if length > self._opened:
            self.buffer[:, self._opened : length] = True if self.boolean else 0.0
            self._opened = length
        block = self.buffer[:count, length : length + count]
        if self.boolean:
            block.copy_(square)
        else:
            block.zero_().masked_fill_(~square, torch.finfo(self.buffer.dtype).min)
        return self.buffer[None, None, :count, : length + count]
