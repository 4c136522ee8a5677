"""The path of a tree that the target itself takes.

``naive`` is the specification, ``doubling`` a tensor form for one request, ``batched`` the function for a batch, which
is a Triton kernel on a GPU.
"""

from drafttree.ops.tree_walk.batched import Walks, walk_trees
from drafttree.ops.tree_walk.doubling import walk_by_doubling
from drafttree.ops.tree_walk.naive import walk_nodes

__all__ = ["Walks", "walk_by_doubling", "walk_nodes", "walk_trees"]
