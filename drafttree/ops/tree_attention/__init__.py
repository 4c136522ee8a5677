"""Attention of a tree's rows to the committed text and to their own ancestors, keys and values in pages.

``naive`` is the specification, ``triton`` the kernel; :func:`tree_attention` picks by device.
"""

from __future__ import annotations

from torch import Tensor

from drafttree.ops.tree_attention.naive import tree_attention_naive

__all__ = ["tree_attention", "tree_attention_naive"]


def tree_attention(
    queries: Tensor,
    cache: Tensor,
    table: Tensor,
    lengths: Tensor,
    counts: Tensor,
    ancestors: Tensor,
    *,
    scale: float | None = None,
) -> Tensor:
    """As ``naive.tree_attention_naive``; on a GPU one pass over the pages and no wait for the host."""
    if not queries.is_cuda:
        return tree_attention_naive(queries, cache, table, lengths, counts, ancestors, scale=scale)
    from drafttree.ops.tree_attention.triton import attend  # late: a CPU needs no Triton

    return attend(queries, cache, table, lengths, counts, ancestors, scale=scale)
