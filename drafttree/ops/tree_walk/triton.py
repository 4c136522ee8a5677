"""The walk on a GPU: one program a request, one comparison with all rows a step of the path."""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator, misc"

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from drafttree.ops.tree_walk.batched import Walks


@triton.jit
def _walk(
    tokens,
    parents,
    counts,
    choices,
    paths,
    lengths,
    bonus,
    rows,
    longest,
    stride_tokens,
    stride_parents,
    stride_choices,
    LANES: tl.constexpr,
    PATH_LANES: tl.constexpr,
):
    request = tl.program_id(0)
    lane, place = tl.arange(0, LANES), tl.arange(0, PATH_LANES)
    choices += request.to(tl.int64) * stride_choices
    count = tl.minimum(tl.load(counts + request), rows)
    real = lane < count
    token = tl.load(tokens + request.to(tl.int64) * stride_tokens + lane, mask=real, other=0)
    # The root is nobody's child, whatever its parent says.
    parent = tl.load(parents + request.to(tl.int64) * stride_parents + lane, mask=real & (lane > 0), other=-1)

    path = -(place > 0).to(tl.int32)
    at = tl.full([], 0, tl.int32)
    length = tl.full([], 1, tl.int32)
    choice = tl.load(choices).to(tl.int32)
    going = length < longest
    while going:
        child = tl.min(tl.where((parent == at) & (token == choice), lane, LANES), axis=0)
        found = child < LANES
        at = tl.where(found, child, at)
        path = tl.where((place == length) & found, at, path)
        length += found.to(tl.int32)
        choice = tl.load(choices + at).to(tl.int32)
        going = found & (length < longest)
    tl.store(paths + request * longest + place, path, mask=place < longest)
    tl.store(lengths + request, length)
    tl.store(bonus + request, choice)


def walk_trees_triton(tokens: Tensor, parents: Tensor, counts: Tensor, choices: Tensor, out: Walks) -> None:
    """``batched.walk_trees`` for checked arguments on a GPU."""
    batch, rows = tokens.shape
    if batch == 0:
        return
    # Rows of a wider buffer need no copy.
    tokens, parents, choices = (
        part if part.stride(1) == 1 else part.contiguous() for part in (tokens, parents, choices)
    )
    longest = out.paths.shape[1]
    _walk[(batch,)](
        tokens,
        parents,
        counts.contiguous(),
        choices,
        out.paths,
        out.lengths,
        out.bonus,
        rows,
        longest,
        tokens.stride(0),
        parents.stride(0),
        choices.stride(0),
        LANES=triton.next_power_of_2(rows),
        PATH_LANES=triton.next_power_of_2(longest),
        num_warps=1,
    )
