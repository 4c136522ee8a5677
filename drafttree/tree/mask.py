"""Which node sees which: the ancestor-or-self relation of a tree as a boolean matrix."""

from __future__ import annotations

import numpy as np
import torch


def ancestor_mask(parents: torch.Tensor) -> torch.Tensor:
    """Ancestor-or-self mask of a tree whose parents precede their children.

    Args:
        parents: [n] int64, 0 for the root, i + 1 for entry i.

    Returns:
        [n + 1, n + 1] bool on the device of ``parents``, the root first: row = the node that looks, column = the node
        looked at.
    """
    if parents.device.type == "cpu":
        return _rows_from_parents(parents)
    return ancestor_mask_by_doubling(parents)


def _rows_from_parents(parents: torch.Tensor) -> torch.Tensor:
    """A node's row is its parent's row and itself."""
    mask = np.eye(parents.numel() + 1, dtype=np.bool_)  # [n + 1, n + 1]
    for node, parent in enumerate(parents.tolist(), start=1):
        mask[node, : parent + 1] = mask[parent, : parent + 1]
    return torch.from_numpy(mask)


def ancestor_mask_by_doubling(parents: torch.Tensor) -> torch.Tensor:
    """The same mask by squaring "self or parent": log2(n) products, no host synchronisation."""
    count = parents.numel() + 1
    # 0 and 1 are exact in every matmul precision, and only "more than none" is read from the sums.
    reach = torch.eye(count, dtype=torch.float32, device=parents.device)
    reach[1:].scatter_(1, parents[:, None], 1.0)
    for _ in range(max(count - 1, 1).bit_length()):
        reach = (reach @ reach > 0).to(torch.float32)
    return reach > 0
