"""The short convolution of a Gated DeltaNet layer over a tree, and the commit of its window.

``naive``: one window a sequence; ``paged``: a pool of windows, as a server keeps them, and ``triton`` its kernels.
"""

from __future__ import annotations

from torch import Tensor

from drafttree.ops.conv_tree.naive import commit_window, conv_paths, conv_tree, tap_rows
from drafttree.ops.conv_tree.paged import commit_windows_naive, conv_pooled_naive

__all__ = ["commit_tree_windows", "commit_window", "conv_paths", "conv_tree", "conv_trees", "tap_rows"]


def conv_trees(rows: Tensor, window: Tensor, slots: Tensor, weight: Tensor, taps: Tensor) -> Tensor:
    """As ``paged.conv_pooled_naive``; on a GPU its kernel."""
    if not rows.is_cuda:
        return conv_pooled_naive(rows, window, slots, weight, taps)
    from drafttree.ops.conv_tree.triton import conv_pooled  # late: a CPU needs no Triton

    return conv_pooled(rows, window, slots, weight, taps)


def commit_tree_windows(rows: Tensor, window: Tensor, slots: Tensor, paths: Tensor, lengths: Tensor) -> None:
    """As ``paged.commit_windows_naive``; on a GPU one launch for all layers."""
    if not rows.is_cuda:
        commit_windows_naive(rows, window, slots, paths, lengths)
        return
    from drafttree.ops.conv_tree.triton import commit_windows  # late: a CPU needs no Triton

    commit_windows(rows, window, slots, paths, lengths)
