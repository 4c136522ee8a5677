"""Verification of a tree through a Gated DeltaNet layer, and the commit of the accepted path.

``naive``: one sequence's own state; ``paged``: a pool of states, as a server keeps them, and ``triton`` its kernels.
"""

from __future__ import annotations

from torch import Tensor

from drafttree.ops.gated_delta_tree.naive import (
    delta_step,
    gated_delta_paths,
    gated_delta_replay,
    gated_delta_tree,
    gates,
)
from drafttree.ops.gated_delta_tree.paged import replay_pooled_naive, verify_pooled_naive

__all__ = [
    "delta_step",
    "gated_delta_paths",
    "gated_delta_replay",
    "gated_delta_tree",
    "gates",
    "replay_trees",
    "verify_trees",
]


def verify_trees(q: Tensor, *arguments: Tensor) -> Tensor:
    """As ``paged.verify_pooled_naive``, same arguments; on a GPU its kernel, which does not wait for the host."""
    if not q.is_cuda:
        return verify_pooled_naive(q, *arguments)
    from drafttree.ops.gated_delta_tree.triton import verify_pooled  # late: a CPU needs no Triton

    return verify_pooled(q, *arguments)


def replay_trees(
    k: Tensor,
    v: Tensor,
    a: Tensor,
    b: Tensor,
    a_log: Tensor,
    dt_bias: Tensor,
    state: Tensor,
    slots: Tensor,
    paths: Tensor,
    lengths: Tensor,
    snapshot_at: Tensor | None = None,
    snapshot_slots: Tensor | None = None,
) -> None:
    """As ``paged.replay_pooled_naive``; on a GPU one launch for all layers."""
    arguments = (k, v, a, b, a_log, dt_bias, state, slots, paths, lengths, snapshot_at, snapshot_slots)
    if not k.is_cuda:
        replay_pooled_naive(*arguments)
        return
    from drafttree.ops.gated_delta_tree.triton_replay import replay_pooled  # late: a CPU needs no Triton

    replay_pooled(*arguments)
