"""Commit of accepted paths through Gated DeltaNet layers as a Triton kernel: the recurrence, all layers in one launch.

A program has some value rows of one head's state, reads them once, runs the path over them and writes them once: the
time is that of moving the states. The rows of the next step are asked for before the step at hand is computed.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator, misc"

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from drafttree.ops.gated_delta_tree.layout import check_layout
from drafttree.ops.gated_delta_tree.triton import NORM_EPS
from drafttree.ops.gated_delta_tree.triton_dots import gate


@triton.jit
def _row(k_ptr, v_ptr, a_ptr, b_ptr, node, stride_kn, stride_vn, stride_gn, dims, values):
    """Raw row ``node`` of a head: key [K], value [VALUES], the two gates' projections."""
    node = tl.maximum(node, 0)  # behind the end of a path: read, but not used
    k = tl.load(k_ptr + node * stride_kn + dims).to(tl.float32)
    v = tl.load(v_ptr + node * stride_vn + values).to(tl.float32)
    a = tl.load(a_ptr + node * stride_gn).to(tl.float32)
    b = tl.load(b_ptr + node * stride_gn).to(tl.float32)
    return k, v, a, b


@triton.jit
def _replay(
    k_ptr, v_ptr, a_ptr, b_ptr, a_log_ptr, dt_bias_ptr, state_ptr, slots_ptr, paths_ptr, lengths_ptr, at_ptr, to_ptr, M,
    stride_kl, stride_kb, stride_kn, stride_vl, stride_vb, stride_vn, stride_gl, stride_gb, stride_gn,
    stride_sl, stride_slot,
    HK: tl.constexpr, HV: tl.constexpr, K: tl.constexpr, V: tl.constexpr, VALUES: tl.constexpr, SNAPSHOT: tl.constexpr,
):  # fmt: skip
    part, layer, request, head = tl.program_id(0), tl.program_id(1), tl.program_id(2) // HV, tl.program_id(2) % HV
    slot = tl.load(slots_ptr + request).to(tl.int64)
    if slot < 0:
        return
    wide, batch, key_head = layer.to(tl.int64), request.to(tl.int64), head // (HV // HK)
    dims, values = tl.arange(0, K), part * VALUES + tl.arange(0, VALUES)
    state_ptr += wide * stride_sl + head * V * K
    tile = values[:, None] * K + dims[None, :]
    state = tl.load(state_ptr + slot * stride_slot + tile)  # [VALUES, K]
    k_ptr += wide * stride_kl + batch * stride_kb + key_head * K
    v_ptr += wide * stride_vl + batch * stride_vb + head * V
    a_ptr += wide * stride_gl + batch * stride_gb + head
    b_ptr += wide * stride_gl + batch * stride_gb + head
    paths_ptr += batch * M
    a_log = tl.load(a_log_ptr + layer * HV + head).to(tl.float32)
    dt_bias = tl.load(dt_bias_ptr + layer * HV + head).to(tl.float32)
    length = tl.load(lengths_ptr + request)
    snapshot = -1
    if SNAPSHOT:
        snapshot = tl.load(at_ptr + request)

    node = tl.load(paths_ptr)
    k, v, a, b = _row(k_ptr, v_ptr, a_ptr, b_ptr, node, stride_kn, stride_vn, stride_gn, dims, values)
    for place in range(0, length):
        node = tl.load(paths_ptr + tl.minimum(place + 1, M - 1))
        next_k, next_v, next_a, next_b = _row(
            k_ptr, v_ptr, a_ptr, b_ptr, node, stride_kn, stride_vn, stride_gn, dims, values
        )
        key = k * tl.rsqrt(tl.sum(k * k, axis=0) + NORM_EPS)
        state *= tl.exp(gate(a, a_log, dt_bias))
        u = tl.sigmoid(b) * (v - tl.sum(state * key[None, :], axis=1))
        state += u[:, None] * key[None, :]
        if SNAPSHOT:  # noqa: SIM102 - decided when the kernel is compiled, the other when it runs
            if place == snapshot:
                target = tl.load(to_ptr + request).to(tl.int64)
                tl.store(state_ptr + target * stride_slot + tile, state)
        k, v, a, b = next_k, next_v, next_a, next_b
    tl.store(state_ptr + slot * stride_slot + tile, state)


def replay_pooled(
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
    *,
    values: int = 8,
    warps: int = 1,
) -> None:
    """``paged.replay_pooled_naive`` on a GPU, float32 states.

    ``values``, rows of a program, and ``warps`` are for tuning.
    """
    layers, batch, _, key_heads, dim = k.shape
    heads, size = v.shape[3:]
    check_layout({"k": k, "v": v}, a, b, state)
    if not (paths.is_contiguous() and a_log.is_contiguous() and dt_bias.is_contiguous()):
        raise ValueError("paths, a_log and dt_bias have to be contiguous")
    if (snapshot_at is None) != (snapshot_slots is None):
        raise ValueError("snapshot_at and snapshot_slots: one without the other")
    values = min(values, size)
    _replay[(size // values, layers, batch * heads)](
        k, v, a, b, a_log, dt_bias, state, slots, paths, lengths,
        lengths if snapshot_at is None else snapshot_at, lengths if snapshot_slots is None else snapshot_slots,
        paths.shape[1], *k.stride()[:3], *v.stride()[:3], *a.stride()[:3], *state.stride()[:2],
        HK=key_heads, HV=heads, K=dim, V=size, VALUES=values, SNAPSHOT=snapshot_at is not None, num_warps=warps,
    )  # fmt: skip
