"""The convolution over trees for a pool of windows, as a server keeps them: the specification of the kernels.

Shapes, for B requests of at most N rows, C channels and W taps::

    rows    [B, N, C]            raw rows, before the convolution
    window  [slots, C, W - 1]    the last raw rows of the committed text, oldest first; any strides
    slots   [B]                  where a request's window lies
    weight  [C, W]               the last column meets the newest row
    taps    [B, N, W - 1] int32  row of the (j + 1)-th ancestor; past the root -1 is the newest committed row, -2 ...
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F


def conv_pooled_naive(rows: Tensor, window: Tensor, slots: Tensor, weight: Tensor, taps: Tensor) -> Tensor:
    """SiLU of the convolution [B, N, C]: sums in float32 (float64 for float64), rounds before and after the SiLU.

    A row of padding may hold anything and its taps too, as long as they lie in [1 - W, N).
    """
    wide = torch.promote_types(rows.dtype, torch.float32)
    reach = window.shape[2]
    text = torch.cat([window[slots.long()].transpose(1, 2).to(rows.dtype), rows], dim=1)  # [B, W - 1 + N, C]
    batch = torch.arange(len(rows), device=rows.device)[:, None]
    total = rows.to(wide) * weight[:, reach].to(wide)
    for back in range(reach):
        total += text[batch, taps[:, :, back].long() + reach].to(wide) * weight[:, reach - 1 - back].to(wide)
    return F.silu(total.to(rows.dtype))


def commit_windows_naive(rows: Tensor, window: Tensor, slots: Tensor, paths: Tensor, lengths: Tensor) -> None:
    """Move the windows of all layers in place to behind the accepted paths: a copy, bit by bit.

    rows and window have a first dimension for the layers; ``paths`` [B, M] int32 row numbers, root first, ``lengths``
    [B] of them in use. A slot below 0 is skipped.
    """
    for request, (slot, length) in enumerate(zip(slots.tolist(), lengths.tolist(), strict=True)):
        if slot >= 0:
            kept = rows[:, request, paths[request, :length].long()].transpose(1, 2)  # [layers, C, length]
            text = torch.cat([window[:, slot], kept.to(window.dtype)], dim=2)
            window[:, slot] = text[:, :, text.shape[2] - window.shape[3] :]
