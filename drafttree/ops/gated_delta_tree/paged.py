"""The gated delta rule over trees for a pool of states, as a server keeps them: the specification of the kernels.

Shapes, for B requests of at most N rows, the root first, parents before children::

    q, k       [B, N, Hk, dk]          raw rows behind the convolution; normalised here
    v          [B, N, Hv, dv]          value head h reads key head h // (Hv // Hk)
    a, b       [B, N, Hv]              the layer's projections: g = -exp(a_log) softplus(a + dt_bias), beta = sigmoid(b)
    state      [slots, Hv, dv, dk]     float32 (or float64) after the committed text; vLLM's layout
    slots      [B]                     where a request's state lies
    ancestors  [B, N, ceil(N / 32)]    int32 bit words
    depths     [B, N]                  int32, the root 0
    counts     [B]                     int32, rows in use; the others are padding and may hold anything
"""

from __future__ import annotations

from torch import Tensor

from drafttree.ops.ancestors import words_to_mask
from drafttree.ops.gated_delta_tree.naive import gated_delta_replay, gated_delta_tree, gates


def verify_pooled_naive(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    a: Tensor,
    b: Tensor,
    a_log: Tensor,
    dt_bias: Tensor,
    state: Tensor,
    slots: Tensor,
    ancestors: Tensor,
    depths: Tensor,
    counts: Tensor,
) -> Tensor:
    """Outputs [B, N, Hv, dv] in the dtype of ``v`` from the committed states, which are only read.

    Rows of padding are 0 here; a kernel may leave anything there.
    """
    del depths  # they follow from the ancestors
    g, beta = gates(a, b, a_log, dt_bias, state.dtype)
    mask = words_to_mask(ancestors, counts)
    return gated_delta_tree(q, k, v, g, beta, state[slots.long()].transpose(-1, -2), mask).to(v.dtype)


def replay_pooled_naive(
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
    """Advance the states of all layers in place over the accepted paths, one step of the recurrence a row.

    k, v, a, b, a_log, dt_bias and state have a first dimension for the layers. ``paths`` [B, M] int32 row numbers, root
    first; ``lengths`` [B] of them in use. A slot below 0 is skipped. ``snapshot_at`` [B]: after this place of the path,
    -1 for none, the state is also written to ``snapshot_slots`` [B].
    """
    for request, (slot, length) in enumerate(zip(slots.tolist(), lengths.tolist(), strict=True)):
        if slot < 0:
            continue
        here = state[:, slot].transpose(-1, -2).clone()  # [layers, Hv, dk, dv]
        for place, row in enumerate(paths[request, :length].tolist()):
            at = (slice(None), slice(request, request + 1), row)
            g, beta = gates(a[at], b[at], a_log[:, None], dt_bias[:, None], state.dtype)  # [layers, 1, Hv]
            gated_delta_replay(k[at], v[at], g, beta, here)
            if snapshot_at is not None and snapshot_slots is not None and int(snapshot_at[request]) == place:
                state[:, int(snapshot_slots[request])] = here.transpose(-1, -2)
        state[:, slot] = here.transpose(-1, -2)
