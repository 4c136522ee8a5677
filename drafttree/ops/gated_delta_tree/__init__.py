"""Verification of a tree through a Gated DeltaNet layer, and the commit of the accepted path."""

from drafttree.ops.gated_delta_tree.naive import (
    delta_step,
    gated_delta_paths,
    gated_delta_replay,
    gated_delta_tree,
    gates,
)

__all__ = ["delta_step", "gated_delta_paths", "gated_delta_replay", "gated_delta_tree", "gates"]
