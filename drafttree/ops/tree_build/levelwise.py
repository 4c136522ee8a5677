"""The same tree level by level as tensor code: fixed shapes and no host synchronisation, so a graph can capture it."""

from __future__ import annotations

from functools import lru_cache

import torch


@lru_cache(maxsize=64)
def _competing_pairs(budget: int, ranks: int, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Pairs (parent slot, rank) that can reach the ``budget`` best of a level, parent first: two [P] int64.

    Slot 0 is the forced chain's node, outside the order, so all its ranks stay. For the i-th and j-th of the others
    every (i' <= i, j' <= j) comes first, (i + 1)(j + 1) pairs with itself: beyond the budget it cannot matter.
    """
    pairs = [(0, rank) for rank in range(ranks)]
    pairs += [(i + 1, j) for i in range(budget) for j in range(min(ranks, budget // (i + 1)))]
    slots, columns = torch.tensor(pairs, dtype=torch.int64, device=device).unbind(-1)
    return slots.contiguous(), columns.contiguous()


def best_levelwise(
    scores: torch.Tensor, budget: int, forced: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """``naive.best_first`` for tensors: at each level the best ``budget``, then the best of all levels together.

    Args:
        scores: [L, K] float32 log-probabilities (<= 0), falling along K; -inf is an absent candidate.
        budget: B >= 1, nodes to keep.
        forced: nodes of the top-1 chain that come first in the node order.

    Returns:
        ranks, parents, depths [B] int64, totals [B] float32 and the number of nodes, a 0-dimensional int64. Entries
        from that number on are unused: total -inf, rank, parent and depth 0.
    """
    levels, ranks = scores.shape
    device, width = scores.device, budget + 1  # slot 0 of a level: its forced node, absent below the forced part
    # -0.0 would sort apart from 0.0 where a sort compares bits.
    scores = scores + 0.0
    absent = scores.new_full((), float("-inf"))
    slots, columns = _competing_pairs(budget, ranks, device)  # [P]

    parents_total = torch.cat([scores.new_zeros(1), absent.expand(budget)])  # [W]
    level_total: list[torch.Tensor] = []  # L x [W] float32
    level_parent: list[torch.Tensor] = []  # L x [W] int64, slot of the parent on the level before
    level_rank: list[torch.Tensor] = []  # L x [W] int64
    for depth in range(1, levels + 1):
        totals = parents_total[slots] + scores[depth - 1][columns]  # [P]
        if depth <= forced:
            chain = totals[0].clone()
            totals[0] = absent  # pair 0 is (slot 0, rank 0), the forced child: outside the competition
        else:
            chain = absent
        # Stable: equal totals stay in the order parent, rank.
        order = torch.sort(totals, descending=True, stable=True).indices[:budget]  # [<= B]
        short = budget - order.numel()
        kept = torch.cat([chain[None], totals[order], absent.expand(short)])  # [W]
        nothing = order.new_zeros(1)
        level_total.append(kept)
        level_parent.append(torch.cat([nothing, slots[order], nothing.expand(short)]))
        level_rank.append(torch.cat([nothing, columns[order], nothing.expand(short)]))
        parents_total = kept

    totals = torch.stack(level_total)  # [L, W]
    key = totals.clone()
    # The forced chain first and in order of depth; an absent one must not be lifted.
    key[:, 0] = torch.where(totals[:, 0] > absent, -absent, absent)
    # Stable over (depth, slot): equal totals go by depth, then by the order within the depth.
    order = torch.sort(key.flatten(), descending=True, stable=True).indices  # [L * W]
    number = torch.empty_like(order)  # node number of each (depth, slot)
    number[order] = torch.arange(1, order.numel() + 1, device=device)
    chosen = order[:budget]
    if chosen.numel() < budget:
        chosen = torch.cat([chosen, chosen.new_zeros(budget - chosen.numel())])
    in_range = torch.arange(budget, device=device) < order.numel()
    kept = torch.where(in_range, totals.flatten()[chosen], absent)  # [B]
    present = kept > absent

    depths = chosen // width  # 0-based here
    parent_slot = torch.stack(level_parent).flatten()[chosen]
    parents = torch.where(depths > 0, number[((depths - 1) * width + parent_slot).clamp(min=0)], 0)
    rank = torch.stack(level_rank).flatten()[chosen]
    zero = rank.new_zeros(())
    return (
        torch.where(present, rank, zero),
        torch.where(present, parents, zero),
        torch.where(present, depths + 1, zero),
        kept,
        present.sum(),
    )
