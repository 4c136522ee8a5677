"""Attention of a tree's rows over pages as a Triton kernel: split over the text, then joined.

The queries of a key head's group stand together as the rows of one matrix product, so a tile of keys is read once for
all of them. A program goes over its part of the committed text without a mask, and meets the ancestor bits only at the
end.
Softmax by running maximum and sum (Dao et al. 2022, FlashAttention; Dao et al. 2023, Flash-Decoding, for the split).
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator, misc"
from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from drafttree.errors import UserError

PROGRAMS = 264  # two for every multiprocessor of an H100 or H200
LARGEST_SPLIT = 32


@dataclass(frozen=True)
class Tiles:
    """Sizes of a program: query rows, keys, warps and pipeline stages."""

    rows: int
    keys: int
    warps: int
    stages: int


TILES = {64: Tiles(64, 64, 4, 2), 128: Tiles(64, 64, 4, 2), 256: Tiles(64, 32, 4, 2)}  # by head dimension


@triton.jit
def _dot(a, b, INTERPRET: tl.constexpr):
    if INTERPRET:  # the interpreter multiplies the bit patterns of bfloat16
        return tl.dot(a.to(tl.float32), b.to(tl.float32), input_precision="ieee")
    else:
        return tl.dot(a, b, input_precision="ieee")


@triton.jit
def _tile(
    q, top, total, acc, places, known, visible, cache_ptr, table_ptr, scale,
    stride_block, stride_place,
    MASKED: tl.constexpr, SIZE: tl.constexpr, D: tl.constexpr, INTERPRET: tl.constexpr,
):  # fmt: skip
    """One tile of keys: the running maximum, sum and output with it."""
    dims = tl.arange(0, D)
    if MASKED:
        block = tl.load(table_ptr + places // SIZE, mask=known, other=0).to(tl.int64)
    else:
        block = tl.load(table_ptr + places // SIZE).to(tl.int64)
    rows = cache_ptr + block * stride_block + (places % SIZE) * stride_place  # [K]
    if MASKED:
        keys = tl.load(rows[None, :] + dims[:, None], mask=known[None, :], other=0.0)  # [D, K]
    else:
        keys = tl.load(rows[None, :] + dims[:, None])
    scores = _dot(q, keys, INTERPRET) * scale  # [M, K]
    if MASKED:
        scores = tl.where(visible, scores, float("-inf"))
    new_top = tl.maximum(top, tl.max(scores, 1))
    base = tl.where(new_top == float("-inf"), 0.0, new_top)  # nothing seen yet: the difference would be NaN
    fade = tl.exp2(top - base)
    p = tl.exp2(scores - base[:, None])
    if MASKED:
        values = tl.load(rows[:, None] + D + dims[None, :], mask=known[:, None], other=0.0)  # [K, D]
    else:
        values = tl.load(rows[:, None] + D + dims[None, :])
    acc = acc * fade[:, None] + _dot(p.to(values.dtype), values, INTERPRET)
    return new_top, total * fade + tl.sum(p, 1), acc


@triton.jit
def _attend_kernel(
    q_ptr, cache_ptr, table_ptr, lengths_ptr, counts_ptr, ancestors_ptr, part_ptr, weight_ptr, scale,
    stride_qb, stride_qn, stride_qh, stride_block, stride_head, stride_place, stride_table,
    N, WORDS, HEADS: tl.constexpr, GROUP: tl.constexpr, D: tl.constexpr, SIZE: tl.constexpr, SPLITS: tl.constexpr,
    M: tl.constexpr, K: tl.constexpr, INTERPRET: tl.constexpr,
):  # fmt: skip
    """One program: a tile of (row, head of the group), a key head, a request and a part of the text."""
    tile, head, rest = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    b, split = rest // SPLITS, rest % SPLITS
    length, count = tl.load(lengths_ptr + b), tl.load(counts_ptr + b)
    if tile * M >= count * GROUP:
        return
    at = tile * M + tl.arange(0, M)
    row, member = at // GROUP, at % GROUP
    real = row < count
    dims = tl.arange(0, D)
    query_head = head * GROUP + member
    q_rows = q_ptr + b * stride_qb + row * stride_qn + query_head * stride_qh
    q = tl.load(q_rows[:, None] + dims[None, :], mask=real[:, None], other=0.0)
    cache_ptr += head * stride_head
    table_ptr += b.to(tl.int64) * stride_table
    ancestors_ptr += b.to(tl.int64) * N * WORDS

    text = length + count
    share = tl.cdiv(tl.cdiv(text, SPLITS), K) * K
    start = split * share
    end = tl.minimum(start + share, text)
    plain = tl.maximum(tl.minimum(end, length // K * K), start)  # whole tiles of committed text
    top = tl.full((M,), float("-inf"), tl.float32)
    total = tl.zeros((M,), tl.float32)
    acc = tl.zeros((M, D), tl.float32)
    lanes = tl.arange(0, K)
    for place in range(start, plain, K):
        top, total, acc = _tile(
            q, top, total, acc, place + lanes, real, real, cache_ptr, table_ptr, scale, stride_block, stride_place,
            False, SIZE, D, INTERPRET,
        )  # fmt: skip
    for place in range(plain, end, K):
        places = place + lanes
        node = places - length
        word = tl.load(
            ancestors_ptr + row[:, None] * WORDS + (tl.maximum(node, 0) // 32)[None, :],
            mask=real[:, None] & ((node >= 0) & (node < count))[None, :], other=0,
        )  # fmt: skip
        below = ((word >> (tl.maximum(node, 0) % 32)[None, :]) & 1) != 0
        visible = (places < length)[None, :] | below
        top, total, acc = _tile(
            q, top, total, acc, places, places < end, visible, cache_ptr, table_ptr, scale, stride_block, stride_place,
            True, SIZE, D, INTERPRET,
        )  # fmt: skip

    slot = ((b * N + row) * HEADS + query_head).to(tl.int64) * SPLITS + split
    some = tl.where(total > 0, total, 1.0)
    tl.store(part_ptr + slot[:, None] * D + dims[None, :], acc / some[:, None], mask=real[:, None])
    tl.store(weight_ptr + slot, tl.where(total > 0, top + tl.log2(some), float("-inf")), mask=real)


@triton.jit
def _join_kernel(
    part_ptr, weight_ptr, out_ptr, counts_ptr, N, HEADS: tl.constexpr, D: tl.constexpr, SPLITS: tl.constexpr,
    SPLITS_UP: tl.constexpr,
):  # fmt: skip
    """One program: an output row of a head, from its parts."""
    at, b = tl.program_id(0), tl.program_id(1)
    if at // HEADS >= tl.load(counts_ptr + b):
        return
    slot = (b * N * HEADS + at).to(tl.int64)
    splits, dims = tl.arange(0, SPLITS_UP), tl.arange(0, D)
    inside = splits < SPLITS
    weights = tl.load(weight_ptr + slot * SPLITS + splits, mask=inside, other=float("-inf"))
    weights = tl.exp2(weights - tl.max(weights, 0))
    parts = tl.load(part_ptr + (slot * SPLITS + splits[:, None]) * D + dims[None, :], mask=inside[:, None], other=0.0)
    joined = tl.sum(parts * weights[:, None], 0) / tl.sum(weights, 0)
    tl.store(out_ptr + slot * D + dims, joined.to(out_ptr.dtype.element_ty))


def attend(
    queries: Tensor,
    cache: Tensor,
    table: Tensor,
    lengths: Tensor,
    counts: Tensor,
    ancestors: Tensor,
    *,
    scale: float | None = None,
    tiles: Tiles | None = None,
    splits: int | None = None,
) -> Tensor:
    """As ``naive.tree_attention_naive`` for bfloat16, float16 and float32; rows of padding hold anything.

    ``tiles`` and ``splits`` (parts of the text that are worked on at the same time) are chosen by shape unless given,
    and by nothing else, so a captured graph serves every length. UserError for another head dimension.
    """
    batch, rows, heads, dim = queries.shape
    if dim not in TILES:
        raise UserError.field("tree_attention", "head_dim", dim, f"one of {', '.join(map(str, TILES))}")
    if queries.stride(-1) != 1 or cache.stride(-1) != 1 or not ancestors.is_contiguous():
        raise ValueError("tree_attention: queries and cache need a dense last dimension, ancestors all dense")
    chosen = tiles or TILES[dim]
    key_heads, size = cache.shape[1], cache.shape[2]
    group = heads // key_heads
    count = triton.cdiv(rows * group, chosen.rows)
    if splits is None:
        wanted = max(1, PROGRAMS // (count * key_heads * batch))
        splits = min(wanted, LARGEST_SPLIT, triton.cdiv(table.shape[1] * size, chosen.keys))
    out = torch.empty(batch, rows, heads, dim, dtype=queries.dtype, device=queries.device)
    part = torch.empty(batch, rows, heads, splits, dim, dtype=torch.float32, device=queries.device)
    weight = torch.empty(batch, rows, heads, splits, dtype=torch.float32, device=queries.device)
    factor = (dim**-0.5 if scale is None else scale) * math.log2(math.e)
    _attend_kernel[(count, key_heads, batch * splits)](
        queries, cache, table, lengths, counts, ancestors, part, weight, factor,
        queries.stride(0), queries.stride(1), queries.stride(2),
        cache.stride(0), cache.stride(1), cache.stride(2), table.stride(0),
        rows, ancestors.shape[2], HEADS=heads, GROUP=group, D=dim, SIZE=size, SPLITS=splits,
        M=chosen.rows, K=chosen.keys, INTERPRET=not isinstance(_attend_kernel, triton.JITFunction),
        num_warps=chosen.warps, num_stages=chosen.stages,
    )  # fmt: skip
    _join_kernel[(rows * heads, batch)](
        part, weight, out, counts, rows, HEADS=heads, D=dim, SPLITS=splits,
        SPLITS_UP=triton.next_power_of_2(splits), num_warps=2,
    )  # fmt: skip
    return out
