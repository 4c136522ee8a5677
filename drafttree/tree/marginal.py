"""The DDTree builder: the best prefixes under per-position (marginal) distributions.

DDTree is by Ringel and Romano, 2026. Node order: the forced part of the spine, then the other nodes best first (higher
score; then smaller depth, earlier parent, smaller rank). Two things follow. Every prefix of the node order is closed
under parents; and the tree of a budget, cut to a smaller width, is the tree of that smaller budget.
"""

from __future__ import annotations

import torch

from drafttree.errors import UserError
from drafttree.ops.tree_build import best_first, best_levelwise
from drafttree.tree.candidates import ranked_candidates
from drafttree.tree.draft_tree import DraftTree


def build_tree(logits: torch.Tensor, budget: int, *, spine: bool | int = True, top_k: int | None = None) -> DraftTree:
    """Tree of the likeliest continuations under independent distributions a position.

    Args:
        logits: [L, V] floating point, row d - 1 for the token at depth d; taken in float32. -inf is an absent token.
        budget: nodes without the root; 0 gives the root alone.
        spine: True keeps the whole top-1 chain in the tree, outside the competition for the rest of the budget; an
            integer keeps that many of its nodes; False none, which is exactly the ``budget`` best prefixes (DDTree).
        top_k: look at this many tokens a position only. An approximation where smaller than min(budget, V); None is
            exact.

    Returns:
        At most ``budget`` nodes on the device of ``logits``.

    Raises:
        UserError: a bad argument; on a CPU also NaN or +inf in the logits. On a device, where looking would
            synchronise, such logits give the bare root.
    """
    if logits.dim() != 2 or not logits.is_floating_point():
        raise UserError.field("build_tree", "logits", f"{logits.dtype} {tuple(logits.shape)}", "floating point [L, V]")
    _check_count("budget", budget, least=0)
    if top_k is not None:
        _check_count("top_k", top_k, least=1)
    levels, vocabulary = logits.shape
    count = min(budget, vocabulary, vocabulary if top_k is None else top_k)
    if count == 0 or levels == 0:
        _forced(spine, levels)
        return DraftTree.root_only(logits.device)
    tokens, scores = ranked_candidates(logits, count)
    return tree_of_candidates(tokens, scores, budget, spine=spine)


def tree_of_candidates(
    tokens: torch.Tensor, scores: torch.Tensor, budget: int, *, spine: bool | int = True
) -> DraftTree:
    """``build_tree`` from candidates ranked already.

    Args:
        tokens: [L, K] int64.
        scores: [L, K] log-probabilities, taken in float32, falling along K (equal ones by the smaller token id); -inf
            is an absent candidate.
        budget: nodes without the root.
        spine: as in ``build_tree``.

    Raises:
        UserError: a bad argument.
    """
    if tokens.shape != scores.shape or tokens.dim() != 2:
        raise UserError.field("tree", "shapes", (tuple(tokens.shape), tuple(scores.shape)), "[L, K] twice")
    _check_count("budget", budget, least=0)
    levels, count = tokens.shape
    forced = _forced(spine, levels)
    if budget == 0 or levels == 0 or count == 0:
        return DraftTree.root_only(tokens.device)
    scores = scores.detach().to(torch.float32)
    if scores.device.type == "cpu":
        ranks, parents, depths, totals = best_first(scores.tolist(), budget, forced)
        depth = torch.tensor(depths, dtype=torch.int64)
        chosen = tokens[depth - 1, torch.tensor(ranks, dtype=torch.int64)]
        return DraftTree(
            chosen, torch.tensor(parents, dtype=torch.int64), depth, torch.tensor(totals, dtype=torch.float32)
        )
    return _on_device(tokens, scores, budget, forced)


def _on_device(tokens: torch.Tensor, scores: torch.Tensor, budget: int, forced: int) -> DraftTree:
    """The tensor form; its one synchronisation reads the number of nodes. ``best_levelwise`` itself has none."""
    rank, parent, depth, total, number = best_levelwise(scores, budget, forced)
    nodes = int(number)
    rank, parent, depth, total = rank[:nodes], parent[:nodes], depth[:nodes], total[:nodes]
    return DraftTree(tokens[depth - 1, rank], parent, depth, total)


def _forced(spine: bool | int, levels: int) -> int:
    """Nodes of the top-1 chain that ``spine`` asks for."""
    if isinstance(spine, bool):
        return levels if spine else 0
    _check_count("spine", spine, least=0)
    return min(spine, levels)


def _check_count(name: str, value: object, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise UserError.field("tree", name, value, f"an integer >= {least}")
