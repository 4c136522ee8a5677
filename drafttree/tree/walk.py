"""Walk: the longest path of a tree that the target itself would have taken, and the token after it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from drafttree.ops.tree_walk import walk_by_doubling, walk_nodes
from drafttree.tree.draft_tree import DraftTree


@dataclass(frozen=True)
class Walk:
    """Result of a step: accepted nodes and the target's token after them.

    Attributes:
        path: node numbers, the root (0) first; its length is the acceptance length of the step.
        bonus: the target's choice at the last node of the path.
    """

    path: list[int]
    bonus: int


def walk(tree: DraftTree, choices: torch.Tensor) -> Walk:
    """Follow the target's choices from the root while a child carries them.

    Args:
        tree: n nodes; siblings differ in token.
        choices: [n + 1] int64, the target's token after each node, the root first.

    Raises:
        ValueError: choices of another shape.
    """
    if choices.shape != (len(tree) + 1,):
        raise ValueError(f"choices {tuple(choices.shape)}, expected ({len(tree) + 1},): one a node and the root's")
    if choices.device.type == "cpu":
        return Walk(*walk_nodes(tree.tokens.tolist(), tree.parents.tolist(), choices.tolist()))
    path, length, bonus = walk_by_doubling(tree.tokens, tree.parents, tree.depths, choices)
    # One copy to the host for the three results.
    *nodes, length_on_host, bonus_on_host = torch.cat([path, length[None], bonus[None]]).tolist()
    return Walk(nodes[:length_on_host], bonus_on_host)


def walk_lazily(tree: DraftTree, choose_at: Callable[[int], int]) -> Walk:
    """``walk`` that asks for the choice only at the nodes it reaches: cheaper where a choice costs more than a step.

    Args:
        tree: n nodes; siblings differ in token.
        choose_at: node number -> the target's token after that node; called once for every node of the path.
    """
    tokens, parents = tree.tokens.tolist(), tree.parents.tolist()
    path, choice = [0], choose_at(0)
    for node, (token, parent) in enumerate(zip(tokens, parents, strict=True), start=1):
        if parent == path[-1] and token == choice:
            path.append(node)
            choice = choose_at(node)
    return Walk(path, choice)
