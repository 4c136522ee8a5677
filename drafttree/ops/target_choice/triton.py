"""The choice on a GPU: the vocabulary is split among programs, a second launch takes the best of their results."""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator, misc"

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from drafttree.sampling import noise

_GOLDEN = tl.constexpr(noise.GOLDEN)
_FIRST = tl.constexpr(noise.FIRST)
_SECOND = tl.constexpr(noise.SECOND)
_CELLS = tl.constexpr(2**53 - 1)
_CELL = tl.constexpr(2.0**-53)


@triton.jit
def _mix(value):
    """SplitMix64's finaliser, as in ``sampling.noise``."""
    value = (value ^ ((value >> 30) & 0x3FFFFFFFF)) * _FIRST
    value = (value ^ ((value >> 27) & 0x1FFFFFFFFF)) * _SECOND
    return value ^ ((value >> 31) & 0x1FFFFFFFF)


@triton.jit
def _gumbel(key, ids):
    """Noise of the tokens ``ids`` of the row with that key, float64."""
    cell = (_mix(key + ids.to(tl.int64) * _GOLDEN) >> 11) & _CELLS
    # The last cell's middle would round up to 1.
    u = tl.where(cell == _CELLS, cell.to(tl.float64), cell.to(tl.float64) + 0.5) * _CELL
    # log(1 - u) without losing a small u: the rounding of 1 - u is made good by the factor u / (1 - (1 - u)).
    rest = 1.0 - u
    lost = tl.where(rest == 1.0, 1.0, 1.0 - rest)
    return -tl.log(tl.where(rest == 1.0, u, -tl.log(rest) * (u / lost)))


@triton.jit
def _best_of_part(
    logits,
    temperatures,
    seeds,
    positions,
    best_out,
    index_out,
    vocab,
    stride,
    length,
    BLOCK: tl.constexpr,
    SAMPLE: tl.constexpr,
    WIDE: tl.constexpr,
):
    """One program: ``length`` tokens of one row, BLOCK at a time; every lane keeps the first of its largest."""
    part, row = tl.program_id(0), tl.program_id(1)
    lane = tl.arange(0, BLOCK)
    base = logits + row.to(tl.int64) * stride
    start = part * length
    best = tl.full([BLOCK], float("-inf"), tl.float64 if WIDE else tl.float32)
    index = start + lane
    if SAMPLE:
        temperature = tl.load(temperatures + row).to(tl.float64)
        sampled = temperature > 0
        inverse = 1.0 / tl.where(sampled, temperature, 1.0)
        place = _mix(tl.load(positions + row) * _GOLDEN + _FIRST)
        key = _mix(_mix(tl.load(seeds + row) + _GOLDEN) + place)
    for offset in range(0, length, BLOCK):
        ids = start + offset + lane
        x = tl.load(base + ids, mask=ids < vocab, other=float("-inf")).to(best.dtype)
        x = tl.where(x != x, float("inf"), x)
        if SAMPLE:  # noqa: SIM102 (known at compile time, the other is not)
            if sampled:
                x = x * inverse + _gumbel(key, ids)
        better = x > best
        best = tl.where(better, x, best)
        index = tl.where(better, ids, index)
    top = tl.max(best, axis=0)
    out = row * tl.num_programs(0) + part
    tl.store(best_out + out, top)
    tl.store(index_out + out, tl.min(tl.where(best == top, index, vocab), axis=0))


@triton.jit
def _best_of_row(bests, indices, tokens, parts, vocab, LANES: tl.constexpr):
    row = tl.program_id(0)
    lane = tl.arange(0, LANES)
    real = lane < parts
    best = tl.load(bests + row * parts + lane, mask=real, other=float("-inf"))
    index = tl.load(indices + row * parts + lane, mask=real, other=vocab)
    first = tl.min(tl.where(best == tl.max(best, axis=0), index, vocab), axis=0)
    tl.store(tokens + row, first.to(tl.int64))


def choose_tokens_triton(
    logits: Tensor,
    temperatures: Tensor | None,
    seeds: Tensor | None,
    positions: Tensor | None,
    *,
    block: int = 1024,
    warps: int = 8,
    programs: int = 1024,
) -> Tensor:
    """``choose.choose_tokens`` for checked arguments on a GPU; the rest are launch shapes, for tuning.

    Args:
        logits, temperatures, seeds, positions: as there.
        block: tokens that a program takes at a time, a power of two.
        warps: of a program.
        programs: about how many there are; 1024 fill a large GPU.
    """
    rows, vocab = logits.shape
    tokens = torch.empty(rows, dtype=torch.int64, device=logits.device)
    if rows == 0:
        return tokens
    sample = temperatures is not None
    wide = sample or logits.dtype == torch.float64
    block = min(block, triton.next_power_of_2(vocab))
    parts = min(triton.cdiv(vocab, block), max(1, programs // rows))
    length = triton.cdiv(vocab, parts * block) * block
    parts = triton.cdiv(vocab, length)
    bests = torch.empty(rows, parts, dtype=torch.float64 if wide else torch.float32, device=logits.device)
    indices = torch.empty(rows, parts, dtype=torch.int32, device=logits.device)
    _best_of_part[(parts, rows)](
        logits,
        temperatures.contiguous() if temperatures is not None else logits,
        seeds.contiguous() if seeds is not None else logits,
        positions.contiguous() if positions is not None else logits,
        bests,
        indices,
        vocab,
        logits.stride(0),
        length,
        BLOCK=block,
        SAMPLE=sample,
        WIDE=wide,
        num_warps=warps,
    )
    _best_of_row[(rows,)](bests, indices, tokens, parts, vocab, LANES=triton.next_power_of_2(parts), num_warps=1)
    return tokens
