"""The EAGLE-style builder: the same shape every step, given as paths of ranks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch

from drafttree.errors import UserError
from drafttree.tree.candidates import ranked_candidates
from drafttree.tree.draft_tree import DraftTree


def build_static_tree(logits: torch.Tensor, paths: Iterable[Sequence[int]]) -> DraftTree:
    """Tree with a node for every path, such as ``[(0,), (0, 0), (1,)]``: (0, 2) is rank 2 at depth 2 below rank 0.

    Args:
        logits: [L, V] floating point, row d - 1 for the token at depth d; taken in float32.
        paths: ranks by depth. Their order is the node order; a path comes after its parent. Paths deeper than L are
            an error; a path through an absent (-inf) token is left out.

    Raises:
        UserError: a path that is empty, repeated, too deep, before or without its parent, or of a rank outside 0..V-1;
            on a CPU also NaN or +inf in the logits.
    """
    if logits.dim() != 2 or not logits.is_floating_point():
        raise UserError.field(
            "build_static_tree", "logits", f"{logits.dtype} {tuple(logits.shape)}", "floating point [L, V]"
        )
    shape = [tuple(path) for path in paths]
    _check_paths(shape, *logits.shape)
    if not shape:
        return DraftTree.root_only(logits.device)
    count = 1 + max(path[-1] for path in shape)
    tokens, scores = (table.tolist() for table in ranked_candidates(logits, count))
    number: dict[tuple[int, ...], int] = {(): 0}
    total: dict[tuple[int, ...], float] = {(): 0.0}
    chosen: list[int] = []
    parents: list[int] = []
    totals: list[float] = []
    for path in shape:
        score = scores[len(path) - 1][path[-1]]
        if path[:-1] not in number or score == float("-inf"):
            continue
        number[path] = len(chosen) + 1
        total[path] = total[path[:-1]] + score
        chosen.append(tokens[len(path) - 1][path[-1]])
        parents.append(number[path[:-1]])
        totals.append(total[path])
    return DraftTree.from_lists(chosen, parents, totals, device=logits.device)


def _check_paths(shape: list[tuple[int, ...]], levels: int, vocabulary: int) -> None:
    seen: set[tuple[int, ...]] = {()}
    for path in shape:
        if not path or len(path) > levels:
            raise UserError.field("static tree", "path", path, f"1 to {levels} ranks")
        if path in seen:
            raise UserError.field("static tree", "path", path, "every path once")
        if path[:-1] not in seen:
            raise UserError.field("static tree", "path", path, f"its parent {path[:-1]} before it")
        if not 0 <= path[-1] < vocabulary:
            raise UserError.field("static tree", "path", path, f"ranks from 0 to {vocabulary - 1}")
        seen.add(path)
