"""Ranked candidates on a GPU: the largest K of every row of logits and their log-probabilities, exactly.

Two launches. ``_scan`` reads the logits once: the maximum of every group of G neighbouring tokens, and maximum and sum
of exponentials of every block. ``_pick`` takes the K groups with the largest maxima, equal ones by the smaller group.
The K largest tokens, equal ones by the smaller id, lie in these: a token elsewhere comes after the largest token of
each of the K groups. So K * G numbers are left, of which the K largest are found the same way and ranked by counting.

"The K largest" is a search for the K-th largest key, two bits a step: three counts, packed into one sum.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator, misc"

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

_COUNT_BITS = tl.constexpr(20)  # of one of the three packed counts; more than any number of lanes
_COUNT_MASK = tl.constexpr(2**20 - 1)
# Low bits of the float32 that are the same for all values of a narrower type, so that the search can leave them out.
_CONSTANT_BITS = {torch.bfloat16: 16, torch.float16: 12}


@triton.jit
def rising_bits(value):
    """float32 (no NaN) -> int32 in the same order, -0.0 as 0.0; its own inverse on the bits of a float."""
    bits = tl.where(value == 0.0, 0.0, value).to(tl.int32, bitcast=True)
    return tl.where(bits < 0, bits ^ 0x7FFFFFFF, bits)


@triton.jit
def _largest(key, valid, COUNT: tl.constexpr, BITS: tl.constexpr):
    """Mask of the COUNT largest of [n] int32 keys of BITS bits, equal keys in order; all valid ones if there are fewer.

    A key that is not valid is the least of all.
    """
    low = tl.full([], 1, tl.int64) << (BITS - 1)  # keys run from -low to low - 1
    prefix = tl.full([], 0, tl.int64)
    for step in range(BITS // 2):
        unit = tl.full([], 1, tl.int64) << (BITS - 2 - 2 * step)
        first = prefix + unit - low
        counts = (key >= first.to(tl.int32)).to(tl.int64)
        counts += (key >= (first + unit).to(tl.int32)).to(tl.int64) << _COUNT_BITS
        counts += (key >= (first + 2 * unit).to(tl.int32)).to(tl.int64) << (2 * _COUNT_BITS)
        total = tl.sum(counts, axis=0)
        digit = ((total & _COUNT_MASK) >= COUNT).to(tl.int64)
        digit += (((total >> _COUNT_BITS) & _COUNT_MASK) >= COUNT).to(tl.int64)
        digit += ((total >> (2 * _COUNT_BITS)) >= COUNT).to(tl.int64)
        prefix += digit * unit
    threshold = (prefix - low).to(tl.int32)
    above = key > threshold
    equal = (key == threshold) & valid
    room = COUNT - tl.sum(above.to(tl.int32), axis=0)
    return above | (equal & (tl.cumsum(equal.to(tl.int32), 0) <= room))


@triton.jit
def _scan(
    logits, group_max, block_max, block_sum, vocab, levels, stride_b, stride_l, BLOCK: tl.constexpr, GROUP: tl.constexpr
):
    """One program: BLOCK tokens of one row. Where one is NaN or +inf, the maximum of the block is +inf."""
    block, row = tl.program_id(0), tl.program_id(1)
    blocks = tl.num_programs(0)
    GROUPS: tl.constexpr = BLOCK // GROUP
    base = logits + (row // levels).to(tl.int64) * stride_b + (row % levels).to(tl.int64) * stride_l
    group = tl.arange(0, GROUPS)
    ids = block * BLOCK + group[:, None] * GROUP + tl.arange(0, GROUP)[None, :]  # [GROUPS, GROUP]
    x = tl.load(base + ids, mask=ids < vocab, other=float("-inf")).to(tl.float32)
    x = tl.where(x != x, float("inf"), x)
    tops = tl.max(x, axis=1)  # [GROUPS]
    top = tl.max(tops, axis=0)
    shift = tl.where(top == float("-inf"), 0.0, top)
    total = tl.sum(tl.sum(tl.exp(x - shift), axis=1), axis=0)
    tl.store(group_max + (row * blocks + block).to(tl.int64) * GROUPS + group, tops)
    tl.store(block_max + row * blocks + block, top)
    tl.store(block_sum + row * blocks + block, total)


@triton.jit
def _pick(
    logits,
    group_max,
    block_max,
    block_sum,
    scratch,
    values,
    tokens,
    scores,
    vocab,
    levels,
    blocks,
    groups,
    groups_stride,
    stride_b,
    stride_l,
    COUNT: tl.constexpr,
    SLOTS: tl.constexpr,
    GROUP: tl.constexpr,
    GROUP_LANES: tl.constexpr,
    BLOCK_LANES: tl.constexpr,
    LEVEL_LANES: tl.constexpr,
    CONSTANT: tl.constexpr,
):
    """One program: the candidates of one row. ``scratch`` [rows, SLOTS] int32, ``values`` [rows, SLOTS] float32."""
    row = tl.program_id(0)
    BITS: tl.constexpr = 32 - CONSTANT
    request, level = row // levels, row % levels
    base = logits + request.to(tl.int64) * stride_b + level.to(tl.int64) * stride_l
    scratch += row * SLOTS
    values += row * SLOTS

    # Log-sum-exp of the row, and whether the request is broken.
    lane = tl.arange(0, BLOCK_LANES)
    tops = tl.load(block_max + row * blocks + lane, mask=lane < blocks, other=float("-inf"))
    sums = tl.load(block_sum + row * blocks + lane, mask=lane < blocks, other=0.0)
    top = tl.max(tops, axis=0)
    top = tl.where(top == float("-inf"), 0.0, top)
    log_total = tl.log(tl.sum(sums * tl.exp(tops - top), axis=0))
    other = tl.arange(0, LEVEL_LANES)[:, None]
    everywhere = tl.load(
        block_max + (request * levels + other) * blocks + lane[None, :],
        mask=(other < levels) & (lane[None, :] < blocks),
        other=float("-inf"),
    )
    broken = tl.max(tl.max(everywhere, axis=1), axis=0) == float("inf")

    # The COUNT largest groups, in the order of the vocabulary.
    group = tl.arange(0, GROUP_LANES)
    real = group < groups
    key = rising_bits(tl.load(group_max + row.to(tl.int64) * groups_stride + group, mask=real, other=0.0))
    key = tl.where(real, key, -0x80000000) >> CONSTANT
    chosen = _largest(key, real, COUNT, BITS)
    tl.store(scratch + tl.cumsum(chosen.to(tl.int32), 0) - 1, group, mask=chosen)
    tl.debug_barrier()

    # The COUNT largest of their tokens, in the order of the vocabulary.
    slot = tl.arange(0, SLOTS)
    group = tl.load(scratch + slot, mask=slot < tl.minimum(groups, COUNT), other=-1)  # [SLOTS]
    ids = group[:, None] * GROUP + tl.arange(0, GROUP)[None, :]  # [SLOTS, GROUP]
    real2 = (group[:, None] >= 0) & (ids < vocab)
    x2 = tl.load(base + ids, mask=real2, other=0.0).to(tl.float32)
    x2 = tl.where(x2 != x2, float("inf"), x2)
    key2 = tl.where(real2, rising_bits(x2), -0x80000000)
    key = tl.reshape(key2, (SLOTS * GROUP,))
    real = key != -0x80000000
    key = key >> CONSTANT
    chosen = _largest(key, real, COUNT, BITS)
    place = tl.cumsum(chosen.to(tl.int32), 0) - 1
    tl.debug_barrier()  # the groups have been read
    tl.store(scratch + place, tl.reshape(ids, (SLOTS * GROUP,)), mask=chosen)
    tl.store(values + place, tl.reshape(x2, (SLOTS * GROUP,)), mask=chosen)
    tl.debug_barrier()

    # Their ranks, by counting what comes before.
    used = slot < COUNT
    ids1 = tl.load(scratch + slot, mask=used, other=0)
    x = tl.load(values + slot, mask=used, other=float("-inf"))
    mine, theirs = x[:, None], x[None, :]
    before = (theirs > mine) | ((theirs == mine) & (slot[None, :] < slot[:, None]))
    rank = tl.sum((before & used[None, :]).to(tl.int32), axis=1)
    present = (x > float("-inf")) & (broken == 0)
    score = tl.minimum((x - top) - log_total, 0.0)
    out = row * COUNT + rank
    tl.store(tokens + out, tl.where(present, ids1, 0), mask=used)
    tl.store(scores + out, tl.where(present, score, float("-inf")), mask=used)


def rank_candidates_triton(
    logits: Tensor, count: int, *, block: int = 4096, scan_warps: int = 4, pick_warps: int = 8
) -> tuple[Tensor, Tensor]:
    """``batched.rank_candidates`` for checked arguments on a GPU; the rest are launch shapes, for tuning.

    Args:
        logits: [B, L, V].
        count: K.
        block: tokens of a program of the scan, a power of two.
        scan_warps, pick_warps: warps of the programs of either launch.
    """
    batch, levels, vocab = logits.shape
    device, rows = logits.device, batch * levels
    tokens = torch.empty(batch, levels, count, dtype=torch.int32, device=device)
    scores = torch.empty(batch, levels, count, dtype=torch.float32, device=device)
    if rows == 0:
        return tokens, scores
    group = group_size(vocab, count)
    block = max(group, min(block, triton.next_power_of_2(vocab)))
    blocks, groups, slots = triton.cdiv(vocab, block), triton.cdiv(vocab, group), triton.next_power_of_2(count)
    stride = blocks * (block // group)
    floats = torch.empty(rows * (stride + 2 * blocks + slots), dtype=torch.float32, device=device)
    group_max, block_max, block_sum, values = floats.split([rows * n for n in (stride, blocks, blocks, slots)])
    scratch = torch.empty(rows, slots, dtype=torch.int32, device=device)
    _scan[(blocks, rows)](
        logits,
        group_max,
        block_max,
        block_sum,
        vocab,
        levels,
        logits.stride(0),
        logits.stride(1),
        BLOCK=block,
        GROUP=group,
        num_warps=scan_warps,
    )
    _pick[(rows,)](
        logits,
        group_max,
        block_max,
        block_sum,
        scratch,
        values,
        tokens,
        scores,
        vocab,
        levels,
        blocks,
        groups,
        stride,
        logits.stride(0),
        logits.stride(1),
        COUNT=count,
        SLOTS=slots,
        GROUP=group,
        GROUP_LANES=triton.next_power_of_2(groups),
        BLOCK_LANES=triton.next_power_of_2(blocks),
        LEVEL_LANES=triton.next_power_of_2(levels),
        CONSTANT=_CONSTANT_BITS.get(logits.dtype, 0),
        num_warps=pick_warps,
    )
    return tokens, scores


def group_size(vocab: int, count: int) -> int:
    """G: about where V / G, the group maxima, and K * G, the numbers left, are as many; 8 to 128."""
    group = 8
    while group < 128 and group * group * count < vocab:
        group *= 2
    return group
