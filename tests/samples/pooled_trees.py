"""Random trees of a batch as kernels read them."""

from __future__ import annotations

import random

import torch
from torch import Tensor

from drafttree.ops.tree_build.tensors import TreeTensors

SHAPES = ("mixed", "chain", "star", "deep")


def parents_of(shape: str, rows: int, chance: random.Random) -> list[int]:
    """Parents of rows 1 .. rows - 1 of a tree, row 0 the root."""
    if shape == "chain":
        return list(range(rows - 1))
    if shape == "star":
        return [0] * (rows - 1)
    first = (lambda row: max(0, row - 3)) if shape == "deep" else (lambda row: 0)
    return [chance.randrange(first(row), row) for row in range(1, rows)]


def random_trees(counts: list[int], rows: int, shape: str = "mixed", seed: int = 0) -> TreeTensors:
    """A tree of ``counts[b]`` rows, the root counted, for every request, padded to ``rows``."""
    chance = random.Random(seed)
    trees = TreeTensors.empty(len(counts), rows)
    for request, count in enumerate(counts):
        trees.fill_(request, 7, [1] * (count - 1), parents_of(shape, count, chance))
    return trees


def random_paths(trees: TreeTensors, longest: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """A path from the root to a random row for every request: [B, longest] int32, -1 behind its end; lengths [B]."""
    chance = random.Random(seed)
    paths = torch.full((len(trees.counts), longest), -1, dtype=torch.int32)
    lengths = []
    for request, count in enumerate(trees.counts.tolist()):
        parents = trees.parents[request].tolist()
        row, path = chance.randrange(count), []
        while row >= 0:
            path.append(row)
            row = parents[row]
        kept = path[::-1][:longest]
        paths[request, : len(kept)] = torch.tensor(kept)
        lengths.append(len(kept))
    return paths, torch.tensor(lengths, dtype=torch.int32)
