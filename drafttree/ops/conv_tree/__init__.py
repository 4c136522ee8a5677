"""The short convolution of a Gated DeltaNet layer over a tree, and the commit of its window."""

from drafttree.ops.conv_tree.naive import commit_window, conv_paths, conv_tree, tap_rows

__all__ = ["commit_window", "conv_paths", "conv_tree", "tap_rows"]
