"""Random candidate tables and the brute-force tree that the builders are held against."""

from __future__ import annotations

import itertools

import numpy as np
import torch
from hypothesis import strategies as st

ABSENT = float("-inf")


@st.composite
def score_tables(draw, max_levels=16, max_ranks=40):
    """[L, K] float32 log-probabilities falling along K; coarse steps make ties, some candidates are absent."""
    levels = draw(st.integers(1, max_levels))
    ranks = draw(st.integers(1, max_ranks))
    step = draw(st.sampled_from([0.0, 0.125, 0.5, 1.0]))
    absent = draw(st.sampled_from([0.0, 0.0, 0.2]))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))
    scores = -3.0 * torch.rand(levels, ranks, generator=generator)
    if step:
        scores = torch.round(scores / step) * step
    scores[torch.rand(levels, ranks, generator=generator) < absent] = ABSENT
    return scores.sort(dim=-1, descending=True).values


def brute_force(scores: list[list[float]], budget: int, forced: int):
    """Every prefix there is, sorted whole by (score, depth, order of the parent, rank): rank tuples and float32 sums.

    No heap, no pruning, no levels: the order of parents is found by sorting each depth in full before the next.
    """
    best_at_depth: list[list[tuple[tuple[int, ...], np.float32]]] = [[((), np.float32(0.0))]]
    chain: list[tuple[int, ...]] = []
    for depth in range(1, len(scores) + 1):
        level = []
        for order, (parent, total) in enumerate(best_at_depth[-1]):
            for rank, score in enumerate(scores[depth - 1]):
                new = np.float32(total + np.float32(score))
                if new > ABSENT:
                    level.append((-new, order, rank, (*parent, rank), new))
        first = [entry for entry in level if depth <= min(forced, budget) and entry[3] == (0,) * depth]
        rest = sorted(entry for entry in level if entry not in first)
        chain += [entry[3] for entry in first]
        best_at_depth.append([(entry[3], entry[4]) for entry in first + rest])
    everything = [
        (-total, len(path), order, path, total)
        for level in best_at_depth[1:]
        for order, (path, total) in enumerate(level)
        if path not in chain
    ]
    total_of = {path: total for path, total in itertools.chain(*best_at_depth)}
    nodes = [(path, total_of[path]) for path in chain] + [(e[3], e[4]) for e in sorted(everything)]
    return nodes[:budget]


def paths_of(ranks: list[int], parents: list[int]) -> list[tuple[int, ...]]:
    """Rank tuple of every node, which names it in any tree."""
    paths: list[tuple[int, ...]] = [()]
    for rank, parent in zip(ranks, parents, strict=True):
        paths.append((*paths[parent], rank))
    return paths[1:]


def difference(left, right):
    """None, or where two trees given as lists first differ: one line, where pytest's own would take minutes."""
    for part, (ours, theirs) in enumerate(zip(left, right, strict=True)):
        if len(ours) != len(theirs):
            return f"part {part}: {len(ours)} and {len(theirs)} entries"
        for entry, (one, other) in enumerate(zip(ours, theirs, strict=True)):
            if one != other:
                return f"part {part}, entry {entry}: {one} and {other}"
    return None


def tensors_difference(found, expected):
    """None, or the first field and place where two batches of tree tensors differ."""
    for name, part in vars(expected).items():
        places = (getattr(found, name).cpu() != part).nonzero()
        if len(places):
            return f"{name} at {places[0].tolist()}: {len(places)} differ"
    return None
