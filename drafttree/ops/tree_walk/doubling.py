"""The walk as tensor code: fixed shapes, log2(n) steps, no host synchronisation."""

from __future__ import annotations

import torch


def walk_by_doubling(
    tokens: torch.Tensor, parents: torch.Tensor, depths: torch.Tensor, choices: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """``naive.walk_nodes`` for tensors.

    A node is on the path when it and all its ancestors carry the choice of their parent. "All ancestors" is found by
    pointer doubling: each step joins the answers of twice as many ancestors.

    Args:
        tokens, parents, depths: [n] int64, as in ``DraftTree``.
        choices: [n + 1] int64, the target's token after each node, the root first.

    Returns:
        path [n + 1] int64 (node numbers, root first, -1 after the end), its length and the bonus, both 0-dimensional.
    """
    count = tokens.numel() + 1
    root = parents.new_zeros(1)
    ancestor = torch.cat([root, parents])  # [n + 1]
    matches = torch.cat([root == 0, choices[parents] == tokens])  # [n + 1]
    for _ in range(count.bit_length()):
        matches = matches & matches[ancestor]
        ancestor = ancestor[ancestor]
    # One node of the path a depth; the others are written to a slot past the end, which is dropped.
    slot = torch.where(matches, torch.cat([root, depths]), count)
    path = torch.full((count + 1,), -1, dtype=torch.int64, device=tokens.device)
    path.scatter_(0, slot, torch.arange(count, device=tokens.device))
    length = matches.sum()
    # gather: indexing with a 0-dimensional tensor would read it on the host.
    last = path.gather(0, (length - 1)[None])
    return path[:count], length, choices.gather(0, last)[0]
