"""Commit of attention rows, one row of one layer at a time: the specification."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor


def commit_rows_naive(buffers: Tensor, start: int, path: Sequence[int]) -> None:
    """Move the rows ``start + node`` of the accepted ``path`` to ``start``, ``start + 1``, ..., in place.

    ``buffers`` [layers, 2, kv heads, capacity, head dim]: keys and values of every layer. ``path``: node numbers,
    rising, the root (0) first. A rising path never overwrites a row that is still to be moved.
    """
    for layer in range(buffers.shape[0]):
        for place, node in enumerate(path):
            buffers[layer, :, :, start + place] = buffers[layer, :, :, start + node].clone()
