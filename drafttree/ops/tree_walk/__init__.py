"""The path of a tree that the target itself takes: ``naive`` is the specification, ``doubling`` the tensor form."""

from drafttree.ops.tree_walk.doubling import walk_by_doubling
from drafttree.ops.tree_walk.naive import walk_nodes

__all__ = ["walk_by_doubling", "walk_nodes"]
