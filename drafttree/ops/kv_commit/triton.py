"""Commit of attention rows on a GPU: one launch for all layers."""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator, misc"

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from drafttree.ops.kv_commit.paged import PagedCaches

# Rows are copied as integers as wide as their alignment allows: no bit changes, whatever the format.
_INTEGERS = {1: tl.int8, 2: tl.int16, 4: tl.int32, 8: tl.int64}


@triton.jit
def _commit(
    pointers,
    slots,
    paths,
    lengths,
    heads,
    size,
    width,
    longest,
    stride_block,
    stride_head,
    stride_row,
    stride_slots,
    stride_paths,
    ELEMENT: tl.constexpr,
    PLACES: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """One program: some columns of one head of one layer, for all rows of one path."""
    layer, request, part = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    head, chunk = part % heads, part // heads
    place = tl.arange(0, PLACES)
    length = tl.minimum(tl.load(lengths + request), longest)
    row = tl.load(paths + request.to(tl.int64) * stride_paths + place, mask=place < length, other=-1)
    moves = (place < length) & (row != place)
    if tl.max(moves.to(tl.int32), axis=0) > 0:
        slots += request.to(tl.int64) * stride_slots
        source = tl.load(slots + row, mask=moves, other=-1)
        target = tl.load(slots + place, mask=moves, other=-1)
        moves = moves & (source >= 0) & (target >= 0)
        base = tl.load(pointers + layer).to(tl.pointer_type(ELEMENT)) + head.to(tl.int64) * stride_head
        column = chunk * COLUMNS + tl.arange(0, COLUMNS)
        mask = moves[:, None] & (column < width)[None, :]
        origin = (source // size) * stride_block + (source % size) * stride_row
        goal = (target // size) * stride_block + (target % size) * stride_row
        value = tl.load(base + origin[:, None] + column[None, :], mask=mask, other=0)  # [PLACES, COLUMNS]
        # A target can be the source of an earlier place, in the hands of another thread.
        tl.debug_barrier()
        tl.store(base + goal[:, None] + column[None, :], value, mask=mask)


def commit_paged_rows_triton(
    caches: PagedCaches, slots: Tensor, paths: Tensor, lengths: Tensor, *, columns: int = 32, warps: int = 8
) -> None:
    """``paged.commit_paged_rows`` for checked arguments on a GPU.

    ``columns``, integers of a row, and ``warps`` of a program are for tuning.
    """
    first = caches.layers[0]
    _, heads, size, width = first.shape
    batch, longest = paths.shape
    if batch == 0 or longest == 0 or first.numel() == 0:
        return
    slots, paths = (part if part.stride(1) == 1 else part.contiguous() for part in (slots, paths))
    unit, element = caches.unit, first.element_size()
    width = width * element // unit
    columns = min(columns, triton.next_power_of_2(width))
    _commit[(len(caches.layers), batch, heads * triton.cdiv(width, columns))](
        caches.pointers,
        slots,
        paths,
        lengths.contiguous(),
        heads,
        size,
        width,
        longest,
        first.stride(0) * element // unit,
        first.stride(1) * element // unit,
        first.stride(2) * element // unit,
        slots.stride(0),
        paths.stride(0),
        ELEMENT=_INTEGERS[unit],
        PLACES=triton.next_power_of_2(longest),
        COLUMNS=columns,
        num_warps=warps,
    )
