"""Best-first trees on a GPU: one program a request pops one node at a time.

A node's children come in rank order, so of each only its best child not yet taken can be next: the frontier is one
entry a node, lane i of a vector for node i. An entry is one int64 that orders as the specification says: score, then
smaller depth, then earlier parent; below that the rank, which decides nothing, as a parent has one entry. A step is one
maximum over the lanes.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator, misc"

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from drafttree.ops.tree_build.tensors import TreeTensors, words_of
from drafttree.ops.tree_build.triton_candidates import rising_bits

# Bits of an entry: 32 score, 8 depth, 12 parent, 12 rank; the smaller depth and parent are larger by their complement.
_NOTHING = tl.constexpr(-(2**63))
_LAST_DEPTH = tl.constexpr(2**8 - 1)
_LAST_LANE = tl.constexpr(2**12 - 1)
_ABSENT = tl.constexpr(-0x7F800001)  # rising bits of -inf


@triton.jit
def _entry(score, depth, lane, rank):
    low = ((depth ^ _LAST_DEPTH).to(tl.int64) << 24) | ((lane ^ _LAST_LANE).to(tl.int64) << 12) | rank.to(tl.int64)
    return (rising_bits(score).to(tl.int64) << 32) | low


@triton.jit
def _next_of_row(row, count, score, candidate, LANES: tl.constexpr):
    """The first entry of a row after (score, candidate), by score, then smaller candidate: its score and number."""
    lane = tl.arange(0, LANES)
    value = tl.load(row + lane, mask=lane < count, other=float("-inf"))
    after = (value < score) | ((value == score) & (lane > candidate))
    key = (rising_bits(value).to(tl.int64) << 32) | (lane ^ _LAST_LANE).to(tl.int64)
    best = tl.max(tl.where(after, key, _NOTHING), axis=0)
    bits = (best >> 32).to(tl.int32)
    found = bits > _ABSENT
    bits = tl.where(bits < 0, bits ^ 0x7FFFFFFF, bits)
    score = tl.where(found, bits.to(tl.float32, bitcast=True), float("-inf"))
    return score, (best & _LAST_LANE).to(tl.int32) ^ _LAST_LANE


@triton.jit
def _build(
    anchors,
    candidates,
    scores,
    pairwise,
    budgets,
    tokens,
    parents,
    depths,
    counts,
    ancestors,
    taps,
    levels,
    ranks,
    rows,
    words,
    forced,
    LANES: tl.constexpr,
    WORD_LANES: tl.constexpr,
    RANK_LANES: tl.constexpr,
    TAPS: tl.constexpr,
    PAIRWISE: tl.constexpr,
):
    request = tl.program_id(0)
    lane = tl.arange(0, LANES)
    tokens += request * rows
    parents += request * rows
    depths += request * rows
    candidates += request.to(tl.int64) * levels * ranks
    scores += request.to(tl.int64) * levels * ranks
    budget = tl.minimum(tl.load(budgets + request), rows - 1)

    parent = tl.full([LANES], -1, tl.int32)
    depth = tl.full([LANES], 0, tl.int32)
    rank = tl.full([LANES], 0, tl.int32)
    total = tl.full([LANES], 0.0, tl.float32)
    first = tl.load(scores, mask=levels > 0, other=float("-inf"))
    entry = tl.where(lane == 0, _entry(first + total, depth + 1, lane, rank), _NOTHING)

    count = tl.full([], 1, tl.int32)  # rows so far
    chain = tl.full([], 0, tl.int32) + forced  # nodes of the forced chain
    going = budget > 0
    while going:
        on_chain = count <= chain
        # The next node of the chain is the first child of the newest one, whatever its score.
        best = tl.max(tl.where(on_chain & (lane != count - 1), _NOTHING, entry), axis=0)
        bits = (best >> 32).to(tl.int32)
        found = bits > _ABSENT
        score = tl.where(bits < 0, bits ^ 0x7FFFFFFF, bits).to(tl.float32, bitcast=True)
        at = ((best >> 12) & _LAST_LANE).to(tl.int32) ^ _LAST_LANE
        deep = ((best >> 24) & _LAST_DEPTH).to(tl.int32) ^ _LAST_DEPTH
        place = (best & _LAST_LANE).to(tl.int32)

        here = found & (lane == count)
        parent = tl.where(here, at, parent)
        depth = tl.where(here, deep, depth)
        total = tl.where(here, score, total)

        # The next child of its parent, and its own first child.
        below = found & (deep < levels)
        if PAIRWISE:
            before = tl.sum(tl.where(lane == at, rank, 0), axis=0)  # the parent's own candidate
            matrix = pairwise + (request.to(tl.int64) * levels + deep) * ranks * ranks
            row = tl.where(deep == 1, scores, matrix - (ranks - before) * ranks)
            taken = tl.load(row + place, mask=found, other=0.0)
            sibling, sibling_place = _next_of_row(row, tl.where(found, ranks, 0), taken, place, RANK_LANES)
            row = matrix + place * ranks
            child, child_place = _next_of_row(row, tl.where(below, ranks, 0), float("inf"), -1, RANK_LANES)
        else:
            sibling_place = place + 1
            child_place = place * 0
            level = scores + (deep - 1) * ranks
            sibling = tl.load(level + sibling_place, mask=found & (sibling_place < ranks), other=float("-inf"))
            child = tl.load(level + ranks, mask=below, other=float("-inf"))
        rank = tl.where(here, place, rank)
        fresh = _entry(
            total + tl.where(here, child, sibling),
            tl.where(here, deep + 1, deep),
            lane,
            tl.where(here, child_place, sibling_place),
        )
        entry = tl.where(here | (found & (lane == at)), fresh, entry)
        count += found.to(tl.int32)
        # A chain that ends before it is as long as asked for leaves the others to come.
        chain = tl.where(on_chain & (found == 0), 0, chain)
        going = (count <= budget) & (found | on_chain)

    real = lane < count
    stored = lane < rows
    node = real & (lane > 0)
    token = tl.load(candidates + (depth - 1) * ranks + rank, mask=node, other=0)
    token = tl.where(lane == 0, tl.load(anchors + request).to(tl.int32), token)
    tl.store(tokens + lane, token, mask=stored)
    tl.store(parents + lane, parent, mask=stored)
    tl.store(depths + lane, depth, mask=stored)
    tl.store(counts + request, count)
    tl.debug_barrier()

    # Up from all rows together, by the parents just stored.
    at = tl.where(stored, lane, -1)
    word = tl.arange(0, WORD_LANES)[None, :]
    held = tl.full([LANES, WORD_LANES], 0, tl.int32)
    for _ in range(levels + 1):
        mine = (at >= 0)[:, None] & (word == (at >> 5)[:, None])
        held |= tl.where(mine, (1 << (at & 31))[:, None], 0)
        at = tl.load(parents + at, mask=at >= 0, other=-1)
    place = (request * rows + lane)[:, None] * words + word
    tl.store(ancestors + place, held, mask=stored[:, None] & (word < words))
    at = lane
    for tap in tl.static_range(TAPS):
        above = tl.load(parents + at, mask=stored & (at >= 0), other=-1)
        at = tl.where(at >= 0, above, at - 1)
        tl.store(taps + (request * rows + lane) * TAPS + tap, at, mask=stored)


def build_trees_triton(
    anchors: Tensor,
    tokens: Tensor,
    scores: Tensor,
    budgets: Tensor,
    pairwise: Tensor | None,
    forced: int,
    out: TreeTensors,
    *,
    warps: int | None = None,
) -> None:
    """``batched.build_trees`` for checked arguments on a GPU. ``warps`` is for tuning: of a program, None picks."""
    batch, levels, ranks = tokens.shape
    if batch == 0:
        return
    rows = out.tokens.shape[1]
    lanes = triton.next_power_of_2(rows)
    if warps is None:
        # One warp finds a maximum without a barrier; more rows need more registers for the ancestor words.
        warps = 1 if lanes <= 128 else 4 if lanes <= 512 else 16
    _build[(batch,)](
        anchors.contiguous(),
        tokens.contiguous(),
        scores.contiguous(),
        scores if pairwise is None else pairwise.contiguous(),
        budgets.contiguous(),
        out.tokens,
        out.parents,
        out.depths,
        out.counts,
        out.ancestors,
        out.taps,
        levels if ranks else 0,
        ranks,
        rows,
        words_of(rows),
        min(forced, torch.iinfo(torch.int32).max),
        LANES=lanes,
        WORD_LANES=triton.next_power_of_2(words_of(rows)),
        RANK_LANES=triton.next_power_of_2(max(ranks, 1)),
        TAPS=out.taps.shape[2],
        PAIRWISE=pairwise is not None,
        num_warps=warps,
    )
