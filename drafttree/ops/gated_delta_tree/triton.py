"""Verification of trees through a Gated DeltaNet layer as a Triton kernel: the closed form, block of rows by block.

One program has a request, a value head and some of its value columns, which are independent of each other. It goes over
the rows in blocks: what earlier blocks add is a matrix product, the block itself is solved level of depth by level. The
Gram matrices are products of raw rows, scaled by float32 norms afterwards, so that no normalised key is ever rounded.
Node order breadth first keeps the levels of a block few.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator, misc"

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from drafttree.ops.gated_delta_tree.layout import check_layout
from drafttree.ops.gated_delta_tree.triton_dots import INTERPRETED, gate, split_dot, wide_dot

NORM_EPS = tl.constexpr(1e-6)


@dataclass(frozen=True)
class Blocks:
    """Sizes of a program: rows of a block, value columns, warps; terms of the state; precision of products with U."""

    rows: int = 32
    columns: int = 64
    warps: int = 8
    terms: int = 2
    precision: str = "tf32"


@triton.jit
def _unit(rows):
    """1 / length of every row [T, K]."""
    wide = rows.to(tl.float32)
    return tl.rsqrt(tl.sum(wide * wide, axis=1) + NORM_EPS)


@triton.jit
def _sees(ancestors, row, column, count, WORDS):
    """[T, T] bool: column is an ancestor of row, or row itself; both in use."""
    inside = (row < count)[:, None] & (column < count)[None, :]
    word = tl.load(ancestors + row[:, None] * WORDS + (column // 32)[None, :], mask=inside, other=0)
    return ((word >> (column % 32)[None, :]) & 1) != 0


@triton.jit
def _decay(sees, total, other):
    """exp(G_t - G_s) where t sees s, 0 elsewhere; the exponent is masked, as it overflows elsewhere."""
    return tl.exp(tl.where(sees, total[:, None] - other[None, :], float("-inf")))


@triton.jit
def _verify(
    q_ptr, k_ptr, v_ptr, a_ptr, b_ptr, a_log_ptr, dt_bias_ptr, state_ptr, slots_ptr, ancestors_ptr, depths_ptr,
    counts_ptr, out_ptr, u_ptr, total_ptr, N, WORDS, scale,
    stride_qb, stride_qn, stride_kb, stride_kn, stride_vb, stride_vn, stride_gb, stride_gn, stride_slot,
    HK: tl.constexpr, HV: tl.constexpr, K: tl.constexpr, V: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
    TERMS: tl.constexpr, PRECISION: tl.constexpr, INTERPRET: tl.constexpr,
):  # fmt: skip
    part, request, head = tl.program_id(0), tl.program_id(1) // HV, tl.program_id(1) % HV
    key_head = head // (HV // HK)
    count = tl.load(counts_ptr + request)
    slot = tl.load(slots_ptr + request).to(tl.int64)
    dims, columns, lanes = tl.arange(0, K), part * COLUMNS + tl.arange(0, COLUMNS), tl.arange(0, ROWS)
    wide = request.to(tl.int64)
    q_ptr += wide * stride_qb + key_head * K
    k_ptr += wide * stride_kb + key_head * K
    v_ptr += wide * stride_vb + head * V
    a_ptr += wide * stride_gb + head
    b_ptr += wide * stride_gb + head
    out_ptr += (wide * N * HV + head) * V
    # U and G of earlier blocks are read back from here; a program has its own columns of U and writes the same G as all
    u_ptr += (wide * HV + head) * N * V
    total_ptr += (wide * HV + head) * N
    ancestors_ptr += wide * N * WORDS
    depths_ptr += wide * N
    a_log, dt_bias = tl.load(a_log_ptr + head).to(tl.float32), tl.load(dt_bias_ptr + head).to(tl.float32)
    state_ptr += slot * stride_slot + head * V * K

    for block in range(0, tl.cdiv(count, ROWS)):
        row = block * ROWS + lanes
        real = row < count
        total = tl.zeros((ROWS,), tl.float32)  # G: the gates of a row's ancestors and its own
        for other in range(0, block + 1):
            column = other * ROWS + lanes
            raw = tl.load(a_ptr + column * stride_gn, mask=column < count, other=0.0).to(tl.float32)
            sees = _sees(ancestors_ptr, row, column, count, WORDS)
            total += tl.sum(tl.where(sees, gate(raw, a_log, dt_bias)[None, :], 0.0), axis=1)
        tl.store(total_ptr + row, total, mask=real)
        beta = tl.sigmoid(tl.load(b_ptr + row * stride_gn, mask=real, other=0.0).to(tl.float32))
        beta = tl.where(real, beta, 0.0)
        q = tl.load(q_ptr + row[:, None] * stride_qn + dims[None, :], mask=real[:, None], other=0.0)
        k = tl.load(k_ptr + row[:, None] * stride_kn + dims[None, :], mask=real[:, None], other=0.0)
        v = tl.load(v_ptr + row[:, None] * stride_vn + columns[None, :], mask=real[:, None], other=0.0)
        unit_q, unit_k, fade = _unit(q), _unit(k), tl.exp(total)
        # read again for every block, from the cache: held over the loop it would not fit into registers
        state = tl.load(state_ptr + columns[None, :] * K + dims[:, None]).to(tl.float32)  # [K, COLUMNS]
        right = v.to(tl.float32) - (fade * unit_k)[:, None] * split_dot(k, state, TERMS, INTERPRET)
        right = beta[:, None] * right
        out = (fade * unit_q)[:, None] * split_dot(q, state, TERMS, INTERPRET)

        tl.debug_barrier()  # U and G of the blocks before are complete
        for other in range(0, block):
            column = other * ROWS + lanes
            keys = tl.load(k_ptr + column[:, None] * stride_kn + dims[None, :])
            decay = _decay(
                _sees(ancestors_ptr, row, column, count, WORDS), total, tl.load(total_ptr + column)
            ) * _unit(keys)[None, :]  # fmt: skip
            u = tl.load(u_ptr + column[:, None] * V + columns[None, :])
            keys = tl.trans(keys)
            system = (beta * unit_k)[:, None] * decay * wide_dot(k, keys, INTERPRET)
            right -= tl.dot(system, u, input_precision=PRECISION)
            mixed = unit_q[:, None] * decay * wide_dot(q, keys, INTERPRET)
            out += tl.dot(mixed, u, input_precision=PRECISION)

        decay = _decay(_sees(ancestors_ptr, row, row, count, WORDS), total, total) * unit_k[None, :]
        keys = tl.trans(k)
        system = (beta * unit_k)[:, None] * decay * wide_dot(k, keys, INTERPRET)
        system = tl.where(row[:, None] == row[None, :], 0.0, system)
        depth = tl.load(depths_ptr + row, mask=real, other=0)
        lowest = tl.min(tl.where(real, depth, 2147483647))
        u = right
        for level in range(lowest + 1, tl.max(depth) + 1):
            u = tl.where((depth == level)[:, None], right - tl.dot(system, u, input_precision=PRECISION), u)
        mixed = unit_q[:, None] * decay * wide_dot(q, keys, INTERPRET)
        out += tl.dot(mixed, u, input_precision=PRECISION)
        tl.store(u_ptr + row[:, None] * V + columns[None, :], u, mask=real[:, None])
        place = row[:, None] * (HV * V) + columns[None, :]
        tl.store(out_ptr + place, (out * scale).to(out_ptr.dtype.element_ty), mask=real[:, None])
        tl.debug_barrier()  # before another block reads U


def verify_pooled(
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
    *,
    blocks: Blocks | None = None,
) -> Tensor:
    """``paged.verify_pooled_naive`` on a GPU, float32 states; rows of padding of the result hold anything.

    q, k and v may be parts of one wider tensor: heads lie side by side, other strides are free. ``blocks`` is for
    tuning.
    """
    batch, rows, key_heads, dim = q.shape
    heads, values = v.shape[2:]
    check_layout({"q": q, "k": k, "v": v}, a, b, state)
    if not (ancestors.is_contiguous() and depths.is_contiguous()):
        raise ValueError("ancestors and depths have to be contiguous")
    chosen = blocks or Blocks()
    out = torch.empty(batch, rows, heads, values, dtype=v.dtype, device=v.device)
    u = torch.empty(batch, heads, rows, values, dtype=torch.float32, device=v.device)
    total = torch.empty(batch, heads, rows, dtype=torch.float32, device=v.device)
    columns = min(chosen.columns, values)
    _verify[(values // columns, batch * heads)](
        q, k, v, a, b, a_log, dt_bias, state, slots, ancestors, depths, counts, out, u, total,
        rows, ancestors.shape[2], dim**-0.5, *q.stride()[:2], *k.stride()[:2], *v.stride()[:2], *a.stride()[:2],
        state.stride(0),
        HK=key_heads, HV=heads, K=dim, V=values, ROWS=chosen.rows, COLUMNS=columns, TERMS=chosen.terms,
        PRECISION="ieee" if INTERPRETED else chosen.precision, INTERPRET=INTERPRETED, num_warps=chosen.warps,
    )  # fmt: skip
    return out
