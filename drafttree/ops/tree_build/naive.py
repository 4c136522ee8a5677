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


def best_first_pairwise(
    scores: Sequence[float], pairwise: Sequence[Sequence[Sequence[float]]], budget: int, forced: int
) -> tuple[list[int], list[int], list[int], list[float]]:
    """``best_first`` where a candidate's score depends on the candidate before it.

    A node's children are ranked by the row of its own candidate: higher score first, equal ones by the smaller
    candidate number. Everything else, the total order too, is as in ``best_first`` with that rank.

    Args:
        scores: [K] float32 log-probabilities (<= 0) of depth 1; -inf is an absent candidate.
        pairwise: [L][K][K]: entry [d - 1][a][b] is the score of candidate b at depth d below candidate a at depth
            d - 1; entry 0 is not read. Not ranked, <= 0, -inf is absent.
        budget, forced: as in ``best_first``; the forced chain takes every node's first child.

    Returns:
        candidates, parents, depths, scores: [n] each in node order.
    """
    candidates: list[int] = []
    parents: list[int] = []
    depths: list[int] = []
    totals: list[float] = []
    heap: list[tuple[float, int, int, int]] = []  # (-score, depth, parent, rank)
    absent = float("-inf")

    def children(parent: int) -> list[int]:
        row = row_of(parent)
        present = [candidate for candidate, score in enumerate(row) if score != absent]
        return sorted(present, key=lambda candidate: (-row[candidate], candidate))

    def row_of(parent: int) -> Sequence[float]:
        return pairwise[depths[parent - 1]][candidates[parent - 1]] if parent else scores

    def child(parent: int, rank: int) -> tuple[int, float] | None:
        """Candidate and total of a node's child of that rank."""
        depth = depths[parent - 1] + 1 if parent else 1
        if depth > len(pairwise) or rank >= len(children(parent)):
            return None
        candidate = children(parent)[rank]
        total = add_float32(totals[parent - 1] if parent else 0.0, row_of(parent)[candidate])
        return None if total == absent else (candidate, total)

    def push(parent: int, rank: int) -> None:
        found = child(parent, rank)
        if found is not None:
            heappush(heap, (-found[1], depths[parent - 1] + 1 if parent else 1, parent, rank))

    def append(parent: int, rank: int) -> bool:
        found = child(parent, rank)
        if found is None:
            return False
        candidates.append(found[0])
        parents.append(parent)
        depths.append(depths[parent - 1] + 1 if parent else 1)
        totals.append(found[1])
        return True

    while len(candidates) < min(forced, budget) and append(len(candidates), 0):
        pass
    for node in range(len(candidates) + 1):  # each node of the chain competes from its second child on
        push(node, 0 if node == len(candidates) else 1)
    while heap and len(candidates) < budget:
        _, _, parent, rank = heappop(heap)
        append(parent, rank)
        push(parent, rank + 1)
        push(len(candidates), 0)
    return candidates, parents, depths, totals
