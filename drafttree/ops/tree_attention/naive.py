"""Attention of a tree's rows, one request, row and head at a time: the specification.

Shapes, for B requests of at most N rows, the root first, Hq query and Hkv key heads of dimension D::

    queries    [B, N, Hq, D]                     query head h reads key head h // (Hq // Hkv)
    cache      [blocks, Hkv, block size, 2 x D]  keys, then values; vLLM's layout of a paged cache
    table      [B, pages] int32                  block that holds tokens p x block size, ... of a request
    lengths    [B] int32                         committed tokens; row i of the tree is stored at place lengths + i
    counts     [B] int32                         rows of the tree, the root counted; the others are padding
    ancestors  [B, N, ceil(N / 32)] int32        bit j % 32 of word j // 32: row j is an ancestor of the row, or itself
"""

from __future__ import annotations

import torch
from torch import Tensor


def tree_attention_naive(
    queries: Tensor,
    cache: Tensor,
    table: Tensor,
    lengths: Tensor,
    counts: Tensor,
    ancestors: Tensor,
    *,
    scale: float | None = None,
) -> Tensor:
    """Outputs [B, N, Hq, D] in the dtype of ``queries``: softmax over the whole committed text and the ancestors.

    Computed in float32, float64 for float64. ``scale``: of the products, 1 / sqrt(D) by default. Rows of padding are 0
    here; a kernel may leave anything there.
    """
    wide = torch.promote_types(queries.dtype, torch.float32)
    dim, size = queries.shape[-1], cache.shape[2]
    group = queries.shape[2] // cache.shape[1]
    factor = dim**-0.5 if scale is None else scale
    out = torch.zeros_like(queries)
    for b, (length, count) in enumerate(zip(lengths.tolist(), counts.tolist(), strict=True)):
        places = torch.arange(length + count, device=cache.device)
        rows = cache[table[b, places // size].long(), :, places % size].to(wide)  # [T, Hkv, 2 D]
        keys, values = rows[..., :dim], rows[..., dim:]
        for i in range(count):
            words = ancestors[b, i].tolist()
            seen = [j for j in range(count) if words[j // 32] >> (j % 32) & 1]
            visible = [*range(length), *(length + j for j in seen)]
            for head in range(queries.shape[2]):
                scores = keys[visible, head // group] @ queries[b, i, head].to(wide) * factor
                out[b, i, head] = (scores.softmax(0) @ values[visible, head // group]).to(out.dtype)
    return out
