"""Best prefixes of ranked candidates, as trees.

``naive`` is the specification, ``levelwise`` a tensor form for one request, ``batched`` the functions for a batch,
which are Triton kernels on a GPU.
"""

from drafttree.ops.tree_build.batched import build_trees, build_trees_from_logits, rank_candidates
from drafttree.ops.tree_build.levelwise import best_levelwise
from drafttree.ops.tree_build.naive import best_first, best_first_pairwise
from drafttree.ops.tree_build.tensors import TreeTensors

__all__ = [
    "TreeTensors",
    "best_first",
    "best_first_pairwise",
    "best_levelwise",
    "build_trees",
    "build_trees_from_logits",
    "rank_candidates",
]
