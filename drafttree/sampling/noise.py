"""Gumbel noise addressed by (seed, position, token): the same wherever and in whatever batch it is asked for.

The generator has no state. A number is a hash of its address: the seed and the position make a row's key, the row's key
and the token make the number. The hash is the finaliser of SplitMix64 (Steele, Lea and Flood, "Fast Splittable
Pseudorandom Number Generators", 2014; constants of David Stafford's variant 13), which over a counter in steps of the
golden ratio is SplitMix64 itself: each row is a run of that generator from a start of its own. Two rows of V tokens
share numbers only if their 64-bit keys lie within V steps of each other, chance V / 2**63.

Integer arithmetic is modulo 2**64, the wrap-around of int64, and so exact on every device. The noise is made from 53 of
the bits in float64; two devices may differ in its last bit, by their logarithms.
"""

from __future__ import annotations

from functools import lru_cache

import torch

GOLDEN = -0x61C8864680B583EB  # 0x9E3779B97F4A7C15 as int64
FIRST = -0x40A7B892E31B1A47  # 0xBF58476D1CE4E5B9
SECOND = -0x6B2FB644ECCEEE15  # 0x94D049BB133111EB
_CACHED_NUMBERS = 2**16  # a block of so many stays in a CPU's cache through the dozen passes


def gumbel(seed: int, positions: torch.Tensor, vocab: int) -> torch.Tensor:
    """Standard Gumbel noise for every token at every position.

    Args:
        seed: 0 to 2**63 - 1.
        positions: [N] int64, absolute position of the token being chosen.
        vocab: V.

    Returns:
        [N, V] float64 on the device of ``positions``, finite.
    """
    noise = torch.empty(positions.numel(), vocab, dtype=torch.float64, device=positions.device)
    counters = _counters(vocab, positions.device)
    keys = row_keys(seed, positions)
    if positions.device.type != "cpu":
        noise.copy_(_gumbel_of_bits(_mix(keys[:, None] + counters)))
        return noise
    rows = max(1, _CACHED_NUMBERS // max(1, vocab))
    for block in range(0, positions.numel(), rows):
        noise[block : block + rows] = _gumbel_of_bits(_mix(keys[block : block + rows, None] + counters))
    return noise


def gumbel_at(seed: int, positions: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
    """``gumbel`` at some tokens only: positions [N], tokens [N, M] int64 -> [N, M] float64."""
    return _gumbel_of_bits(_mix(row_keys(seed, positions)[:, None] + tokens * GOLDEN))


def row_keys(seed: int, positions: torch.Tensor) -> torch.Tensor:
    """[N] int64 keys of the rows, each seed and position hashed so that neighbours share nothing."""
    # The seed is hashed before the position is added, else (seed + 1, position) would be (seed, position + 1).
    return _mix(_seed_key(seed) + _mix(positions.to(torch.int64) * GOLDEN + FIRST))


@lru_cache(maxsize=1024)
def _seed_key(seed: int) -> int:
    return int(_mix(torch.tensor([seed]) + GOLDEN))


@lru_cache(maxsize=8)
def _counters(vocab: int, device: torch.device) -> torch.Tensor:
    """[V] int64, the golden ratio times the token."""
    return torch.arange(vocab, dtype=torch.int64, device=device) * GOLDEN


def _mix(value: torch.Tensor) -> torch.Tensor:
    """SplitMix64's finaliser of every element; ``value`` is a temporary and is overwritten."""
    value ^= (value >> 30) & 0x3FFFFFFFF  # ">>" copies the sign: the mask makes it a shift of unsigned bits
    value *= FIRST
    value ^= (value >> 27) & 0x1FFFFFFFFF
    value *= SECOND
    value ^= (value >> 31) & 0x1FFFFFFFF
    return value


def _gumbel_of_bits(bits: torch.Tensor) -> torch.Tensor:
    """-log(-log(1 - u)), u uniform in the middle of 2**53 cells of (0, 1), so that both logarithms are finite.

    A large value comes from a small u, where float64 is finest: the tail that lets an unlikely token win is exact.
    """
    uniform = ((bits >> 11) & 0x1FFFFFFFFFFFFF).to(torch.float64).add_(0.5).mul_(2.0**-53)
    # The last cell's middle rounds up to 1.
    return uniform.clamp_(max=1.0 - 2.0**-53).neg_().log1p_().neg_().log_().neg_()
