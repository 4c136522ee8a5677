"""Ancestor sets as bit words, the form in which kernels read them."""

from __future__ import annotations

import torch
from torch import Tensor


def words_to_mask(words: Tensor, counts: Tensor) -> Tensor:
    """[B, N, N] bool: row i sees row j, its ancestor or itself; a row of padding sees nothing.

    ``words`` [B, N, ceil(N / 32)] int32, bit j % 32 of word j // 32; ``counts`` [B] rows in use.
    """
    at = torch.arange(words.shape[1], device=words.device)
    mask = ((words[:, :, at // 32] >> (at % 32)) & 1).bool()
    real = at < counts[:, None]  # [B, N]
    return mask & real[:, :, None] & real[:, None]
