"""The short causal convolution of a Gated DeltaNet layer over a tree: along every path, and as one gather.

Shapes, for B sequences of N nodes, the root first, parents before children, C channels and W taps::

    rows    [B, N, C]         raw rows, before the convolution
    window  [B, W - 1, C]     the last raw rows of the committed text, oldest first
    weight  [C, W]            the last column meets the newest row; in conv_tree also [B, C, W]
    mask    [B, N, N] bool    row: the node, column: itself or an ancestor; a row without itself is padding
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F


def conv_paths(rows: Tensor, window: Tensor, weight: Tensor, mask: Tensor) -> Tensor:
    """The specification: SiLU of the convolution along every node's own path [B, N, C]; 0 where a node is padding."""
    out = torch.zeros_like(rows)
    for b in range(rows.shape[0]):
        for node in range(rows.shape[1]):
            if mask[b, node, node]:
                path = mask[b, node].nonzero().flatten()  # rising, so root first
                text = torch.cat([window[b], rows[b, path]])[-weight.shape[1] :]  # [W, C]
                out[b, node] = F.silu((text * weight.T).sum(0))
    return out


def tap_rows(mask: Tensor, depths: Tensor, taps: int) -> Tensor:
    """Where every node's taps lie in [window ; rows]: [B, N, taps] int64, the newest tap last.

    The same for all layers, so made once a step. Tap j back is the j-th ancestor; past the root, the committed text.
    """
    back = torch.arange(taps - 1, -1, -1, device=mask.device)
    wanted = depths[..., None] - back  # [B, N, taps] depth of the row that a tap reads
    found = mask[:, :, None] & (depths[:, None, None] == wanted[..., None])  # [B, N, taps, N]
    ancestor = found.to(torch.int8).argmax(-1)
    return torch.where(wanted >= 0, ancestor + taps - 1, (wanted + taps - 1).clamp_min(0))


def conv_tree(rows: Tensor, window: Tensor, weight: Tensor, taps: Tensor) -> Tensor:
    """SiLU of the convolution [B, N, C] at every node; ``taps`` from :func:`tap_rows`.

    Sums in float32 (float64 for float64 rows) and rounds once before the SiLU. A row of padding harms no other row.
    """
    wide = torch.promote_types(rows.dtype, torch.float32)
    text = torch.cat([window.to(rows.dtype), rows], dim=1)  # [B, W - 1 + N, C]
    start = torch.arange(text.shape[0], device=rows.device)[:, None, None] * text.shape[1]
    places, flat = taps + start, text.flatten(0, 1)
    total = torch.zeros(rows.shape, dtype=wide, device=rows.device)
    for tap in range(weight.shape[-1]):
        read = flat.index_select(0, places[:, :, tap].flatten()).view(rows.shape)
        total.addcmul_(read.to(wide), weight[..., None, :, tap].to(wide))
    return F.silu(total.to(rows.dtype))


def commit_window(rows: Tensor, window: Tensor) -> None:
    """Make ``window`` that of the text with an accepted path behind it; ``rows`` [B, T, C] are the path's raw rows."""
    text = torch.cat([window, rows.to(window.dtype)], dim=1)
    window.copy_(text[:, text.shape[1] - window.shape[1] :])
