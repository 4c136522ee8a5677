"""Best-first tree from ranked candidates with a lazy heap: the specification, and the path on a CPU."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from heapq import heappop, heappush

_FLOAT32 = struct.Struct("f")  # native: a value beyond float32 becomes infinite


def add_float32(left: float, right: float) -> float:
    """Sum of two float32 values rounded to float32 (a double holds enough digits for the one rounding to be exact)."""
    total: float = _FLOAT32.unpack(_FLOAT32.pack(left + right))[0]
    return total


def best_first(
    scores: Sequence[Sequence[float]], budget: int, forced: int
) -> tuple[list[int], list[int], list[int], list[float]]:
    """The ``budget`` best prefixes, the first ``forced`` nodes of the top-1 chain ahead of them.

    A node's score is its parent's plus its candidate's, in float32. A total order decides: higher score, then smaller
    depth, then the earlier parent, then the smaller rank. A prefix comes after its parent and after its own better
    siblings in that order, so it is enough to push, for each node popped, its next sibling and its first child.

    Args:
        scores: [L][K] float32 log-probabilities (<= 0), falling along K; -inf is an absent candidate.
        budget: largest number of nodes.
        forced: nodes of the top-1 chain that come first in the node order, whatever their score.

    Returns:
        ranks, parents, depths, scores: [n] each in node order; parents as in ``DraftTree``. Entry i's candidate is
        ``scores[depths[i] - 1][ranks[i]]``.
    """
    ranks: list[int] = []
    parents: list[int] = []
    depths: list[int] = []
    totals: list[float] = []
    heap: list[tuple[float, int, int, int]] = []  # (-score, depth, parent, rank)
    absent = float("-inf")

    def total_of(parent: int) -> float:
        return totals[parent - 1] if parent else 0.0

    def push(parent: int, depth: int, rank: int) -> None:
        if depth > len(scores) or rank >= len(scores[depth - 1]) or scores[depth - 1][rank] == absent:
            return
        total = add_float32(total_of(parent), scores[depth - 1][rank])
        if total != absent:
            heappush(heap, (-total, depth, parent, rank))

    def append(parent: int, depth: int, rank: int, total: float) -> None:
        ranks.append(rank)
        parents.append(parent)
        depths.append(depth)
        totals.append(total)

    end = 0  # the last node of the forced chain; each node before it competes from its second child on
    for depth in range(1, min(forced, budget, len(scores)) + 1):
        total = add_float32(total_of(end), scores[depth - 1][0])
        if total == absent:
            break
        append(end, depth, 0, total)
        push(end, depth, 1)
        end = depth
    push(end, end + 1, 0)

    while heap and len(ranks) < budget:
        negative, depth, parent, rank = heappop(heap)
        append(parent, depth, rank, -negative)
        push(parent, depth, rank + 1)
        push(len(ranks), depth + 1, 0)
    return ranks, parents, depths, totals
