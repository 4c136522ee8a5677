"""A Gated DeltaNet layer of Qwen3-Next or Qwen3.5 over a tree, in place of the model's own forward for one verify."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from drafttree.ops.conv_tree import conv_tree, tap_rows
from drafttree.ops.gated_delta_tree import gated_delta_tree, gates
from drafttree.transformers.hybrid_state import GatedDeltaState


@dataclass(frozen=True)
class TreeStep:
    """What all layers need to know about the tree under verification; made once a step.

    mask [1, N, N] bool, depths [1, N], taps [1, N, W] rows that the convolution reads, ``deepest`` of the depths.
    """

    mask: Tensor
    depths: Tensor
    taps: Tensor
    deepest: int

    @classmethod
    def of(cls, mask: Tensor, depths: Tensor, taps: int) -> TreeStep:
        """For ``mask`` [N, N] and ``depths`` [N], the root first, and a convolution of ``taps`` taps."""
        return cls(mask[None], depths[None], tap_rows(mask[None], depths[None], taps), int(depths.max()))


def projections(mixer: Any, hidden: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Raw rows [1, N, C] (queries, keys, values), z [1, N, Hv, dv], a and b [1, N, Hv] of ``hidden`` [1, N, H]."""
    if hasattr(mixer, "in_proj_qkvz"):  # Qwen3-Next interleaves them by key head
        mixed, gate_rows = mixer.in_proj_qkvz(hidden), mixer.in_proj_ba(hidden)
        q, k, v, z, b, a = mixer.fix_query_key_value_ordering(mixed, gate_rows)
        return torch.cat([rows.flatten(2) for rows in (q, k, v)], dim=-1), z, a, b
    z = mixer.in_proj_z(hidden).unflatten(-1, (mixer.num_v_heads, mixer.head_v_dim))
    return mixer.in_proj_qkv(hidden), z, mixer.in_proj_a(hidden), mixer.in_proj_b(hidden)


def tree_forward(
    mixer: Any, layer: int, state: GatedDeltaState, step: TreeStep, hidden_states: Tensor, **_unused: Any
) -> Tensor:
    """The mixer's output [1, N, H] at every node of the tree, from the committed state, which is only read."""
    raw, z, a, b = projections(mixer, hidden_states)
    g, beta = gates(a, b, mixer.A_log, mixer.dt_bias, state.states.dtype)
    state.stash(layer, raw[0], g[0], beta[0])
    mixed = conv_tree(raw, state.windows[layer, None], state.weights[layer], step.taps)
    q, k, v = torch.split(mixed, [mixer.key_dim, mixer.key_dim, mixer.value_dim], dim=-1)
    out = gated_delta_tree(
        torch.unflatten(q, -1, (mixer.num_k_heads, -1)),
        torch.unflatten(k, -1, (mixer.num_k_heads, -1)),
        torch.unflatten(v, -1, (mixer.num_v_heads, -1)),
        g,
        beta,
        state.states[layer, None],
        step.mask,
        depths=step.depths,
        deepest=step.deepest,
    )  # [1, N, Hv, dv]
    normed = mixer.norm(out.to(raw.dtype).flatten(0, 2), z.flatten(0, 2))
    projected: Tensor = mixer.out_proj(normed.unflatten(0, z.shape[:3]).flatten(2))
    return projected


@contextmanager
def tree_forwards(mixers: Sequence[Any], state: GatedDeltaState, step: TreeStep) -> Iterator[None]:
    """Inside the block the ``mixers`` run :func:`tree_forward`; behind it they are as they were."""
    before = [mixer.__dict__.get("forward") for mixer in mixers]
    try:
        for layer, mixer in enumerate(mixers):
            mixer.forward = partial(tree_forward, mixer, layer, state, step)
        yield
    finally:
        for mixer, forward in zip(mixers, before, strict=True):
            if forward is None:
                mixer.__dict__.pop("forward", None)
            else:
                mixer.forward = forward
