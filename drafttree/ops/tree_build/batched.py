"""Candidates and trees of a batch: the public functions and, for a CPU, one request at a time by ``naive``."""

from __future__ import annotations

import torch
from torch import Tensor

from drafttree.ops.tree_build.naive import best_first, best_first_pairwise
from drafttree.ops.tree_build.tensors import TreeTensors

CANDIDATE_LIMIT = 128  # most candidates a position
ROW_LIMIT = 1024  # most rows of a tree
LEVEL_LIMIT = 254  # most positions


def rank_candidates(logits: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The ``count`` likeliest tokens of every position, ranked exactly.

    Ranked by logit, equal logits by the smaller token id. On a GPU the logits are read once, without a float32 copy and
    without synchronisation.

    Args:
        logits: [B, L, V] floating point, the last dimension contiguous; taken in float32. -inf is an absent token.
        count: K, 1 <= K <= min(V, 128).

    Returns:
        tokens [B, L, K] int32 and scores [B, L, K] float32: log-probabilities over the full vocabulary, <= 0, falling
        along K. An absent candidate has score -inf and token 0. NaN or +inf anywhere in a request leaves it without
        candidates.

    Raises:
        ValueError: logits or a count outside of these.
    """
    if logits.dim() != 3 or not logits.is_floating_point() or logits.stride(-1) != 1:
        raise ValueError(
            f"logits {logits.dtype} {tuple(logits.shape)}, expected floating point [B, L, V], contiguous V"
        )
    if not 1 <= count <= min(logits.shape[-1], CANDIDATE_LIMIT):
        raise ValueError(f"count {count} is not in 1 to {min(logits.shape[-1], CANDIDATE_LIMIT)}")
    if logits.shape[1] > LEVEL_LIMIT:
        raise ValueError(f"{logits.shape[1]} positions, expected at most {LEVEL_LIMIT}")
    logits = logits.detach()
    if logits.device.type == "cpu":
        return rank_candidates_naive(logits, count)
    from drafttree.ops.tree_build.triton_candidates import rank_candidates_triton

    return rank_candidates_triton(logits, count)


def rank_candidates_naive(logits: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """``rank_candidates`` by a full sort: the specification."""
    wide = logits.to(torch.float32) + 0.0  # -0.0 ranks with 0.0
    values, tokens = wide.sort(dim=-1, descending=True, stable=True)
    values, tokens = values[..., :count], tokens[..., :count]
    scores = wide.log_softmax(dim=-1).gather(-1, tokens)
    broken = (wide.isnan() | (wide == float("inf"))).flatten(1).any(-1)  # [B]
    present = values.isfinite() & ~broken[:, None, None]
    scores = torch.where(present, scores.clamp(max=0.0), float("-inf"))
    return torch.where(present, tokens, 0).to(torch.int32), scores


def build_trees(
    anchors: Tensor,
    tokens: Tensor,
    scores: Tensor,
    budgets: Tensor,
    rows: int,
    *,
    pairwise: Tensor | None = None,
    forced: int = 0,
    taps: int = 3,
    out: TreeTensors | None = None,
) -> TreeTensors:
    """The tree of ``naive.best_first`` (``best_first_pairwise``), node for node, for every request of a batch.

    Args:
        anchors: [B] int32 or int64, the last committed token of each request.
        tokens: [B, L, K] int32, candidates of each position.
        scores: [B, L, K] float32 log-probabilities (<= 0, no NaN), falling along K; -inf is an absent candidate.
        budgets: [B] int32, nodes without the root; above ``rows`` - 1 it counts as ``rows`` - 1.
        rows: N, rows of the result, the root counted; at most 1024.
        pairwise: [B, L, K, K] float32: [b, d - 1, i, j] is the score of candidate j at depth d below candidate i at
            depth d - 1. It replaces ``scores`` from depth 2 on; its rows need no order.
        forced: nodes of the top-1 chain ahead of the others (the spine), the same for all requests.
        taps: T, convolution width - 1.
        out: tensors to build into, of these sizes.

    Returns:
        TreeTensors; ``out`` where it is given.

    Raises:
        ValueError: shapes, dtypes or devices other than these.
    """
    _check(anchors, tokens, scores, budgets, rows, pairwise, forced)
    batch = tokens.shape[0]
    if out is None:
        out = TreeTensors.empty(batch, rows, taps, tokens.device)
    else:
        out.check(batch, rows, taps, tokens.device)
    if tokens.device.type == "cpu":
        build_trees_naive(anchors, tokens, scores, budgets, pairwise, forced, out)
    else:
        from drafttree.ops.tree_build.triton import build_trees_triton

        build_trees_triton(anchors, tokens, scores, budgets, pairwise, forced, out)
    return out


def build_trees_from_logits(
    anchors: Tensor,
    logits: Tensor,
    budgets: Tensor,
    rows: int,
    *,
    count: int | None = None,
    forced: int = 0,
    taps: int = 3,
    out: TreeTensors | None = None,
) -> TreeTensors:
    """``build_trees`` of ``rank_candidates``: NaN or +inf in a request's logits gives it the bare root.

    ``count`` candidates a position; None takes min(N - 1, V, 128), which is exact for budgets up to 128.
    """
    if count is None:
        count = max(1, min(rows - 1, logits.shape[-1], CANDIDATE_LIMIT))
    tokens, scores = rank_candidates(logits, count)
    return build_trees(anchors, tokens, scores, budgets, rows, forced=forced, taps=taps, out=out)


def build_trees_naive(
    anchors: Tensor,
    tokens: Tensor,
    scores: Tensor,
    budgets: Tensor,
    pairwise: Tensor | None,
    forced: int,
    out: TreeTensors,
) -> None:
    """``build_trees`` request by request: the specification."""
    ids = tokens.tolist()
    rows = out.tokens.shape[1]
    for request, (anchor, budget) in enumerate(zip(anchors.tolist(), budgets.tolist(), strict=True)):
        budget = max(0, min(budget, rows - 1))
        table = scores[request].tolist() if tokens.shape[2] else []
        if pairwise is None or not table:
            ranks, parents, depths, _ = best_first(table, budget, forced)
        else:
            ranks, parents, depths, _ = best_first_pairwise(table[0], pairwise[request].tolist(), budget, forced)
        chosen = [ids[request][depth - 1][rank] for depth, rank in zip(depths, ranks, strict=True)]
        out.fill_(request, anchor, chosen, parents)


def _check(
    anchors: Tensor, tokens: Tensor, scores: Tensor, budgets: Tensor, rows: int, pairwise: Tensor | None, forced: int
) -> None:
    if tokens.dim() != 3 or tokens.shape != scores.shape or anchors.shape != tokens.shape[:1]:
        shapes = f"anchors {tuple(anchors.shape)}, tokens {tuple(tokens.shape)}, scores {tuple(scores.shape)}"
        raise ValueError(f"{shapes}, expected [B], [B, L, K] and [B, L, K]")
    if budgets.shape != anchors.shape:
        raise ValueError(f"budgets {tuple(budgets.shape)}, expected {tuple(anchors.shape)}")
    _, levels, count = tokens.shape
    if pairwise is not None and (pairwise.shape != (*tokens.shape, count) or pairwise.dtype != torch.float32):
        raise ValueError(f"pairwise {pairwise.dtype} {tuple(pairwise.shape)}, expected float32 [B, L, K, K]")
    if tokens.dtype != torch.int32 or scores.dtype != torch.float32 or budgets.dtype != torch.int32:
        dtypes = f"tokens {tokens.dtype}, scores {scores.dtype}, budgets {budgets.dtype}"
        raise ValueError(f"{dtypes}, expected int32, float32 and int32")
    if not 1 <= rows <= ROW_LIMIT or levels > LEVEL_LIMIT or count > CANDIDATE_LIMIT or forced < 0:
        limits = f"rows 1 to {ROW_LIMIT}, at most {LEVEL_LIMIT} levels and {CANDIDATE_LIMIT} candidates, forced >= 0"
        raise ValueError(f"rows {rows}, {levels} levels, {count} candidates, forced {forced}; expected {limits}")
    given = [anchors, scores, budgets] + ([] if pairwise is None else [pairwise])
    if any(part.device != tokens.device for part in given):
        raise ValueError("anchors, tokens, scores, budgets and pairwise are not on one device")
