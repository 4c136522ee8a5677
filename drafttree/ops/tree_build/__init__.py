"""Best prefixes of ranked candidates: ``naive`` is the specification, ``levelwise`` the tensor form."""

from drafttree.ops.tree_build.levelwise import best_levelwise
from drafttree.ops.tree_build.naive import best_first

__all__ = ["best_first", "best_levelwise"]
