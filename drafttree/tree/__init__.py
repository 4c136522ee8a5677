"""Draft trees: the noun, its builders and the walk. Knows no engine."""

from drafttree.tree.draft_tree import DraftTree
from drafttree.tree.marginal import build_tree, tree_of_candidates
from drafttree.tree.static import build_static_tree
from drafttree.tree.walk import Walk, walk

__all__ = ["DraftTree", "Walk", "build_static_tree", "build_tree", "tree_of_candidates", "walk"]
