"""The walks of a batch: the public function and, for a CPU, one request at a time by ``naive``."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from drafttree.ops.tree_walk.naive import walk_nodes


@dataclass(frozen=True, eq=False)
class Walks:
    """The accepted paths of B requests.

    Attributes:
        paths: [B, M] int32 row numbers, the root (0) first, -1 after the end.
        lengths: [B] int32, rows of the path: the tokens that the step emits.
        bonus: [B] int32, the target's choice at the last row of the path.
    """

    paths: Tensor
    lengths: Tensor
    bonus: Tensor

    @classmethod
    def empty(cls, batch: int, longest: int, device: torch.device | str | None = None) -> Walks:
        """Uninitialised tensors of B = ``batch``, M = ``longest``, to walk into."""
        paths = torch.empty(batch, longest, dtype=torch.int32, device=device)
        lengths, bonus = (torch.empty(batch, dtype=torch.int32, device=device) for _ in range(2))
        return cls(paths, lengths, bonus)


def walk_trees(
    tokens: Tensor, parents: Tensor, counts: Tensor, choices: Tensor, longest: int, *, out: Walks | None = None
) -> Walks:
    """Follow the target's choices from every root while a child carries them.

    Args:
        tokens, parents: [B, N] int32, as in ``TreeTensors``; siblings differ in token.
        counts: [B] int32, rows in use, at least 1; rows from there on may hold anything.
        choices: [B, N] int32 or int64, the target's token after each row.
        longest: M >= 1, the largest depth plus 1; a longer path is cut there.
        out: tensors to walk into, of these sizes.

    Raises:
        ValueError: shapes, dtypes or devices other than these.
    """
    if tokens.dim() != 2 or parents.shape != tokens.shape or choices.shape != tokens.shape or longest < 1:
        shapes = f"tokens {tuple(tokens.shape)}, parents {tuple(parents.shape)}, choices {tuple(choices.shape)}"
        raise ValueError(f"{shapes}, longest {longest}; expected [B, N] three times and at least 1")
    if counts.shape != tokens.shape[:1] or any(part.dtype != torch.int32 for part in (tokens, parents, counts)):
        raise ValueError(f"counts {counts.dtype} {tuple(counts.shape)}; expected [B], and int32 but for the choices")
    if choices.dtype not in (torch.int32, torch.int64):
        raise ValueError(f"choices {choices.dtype}, expected int32 or int64")
    if any(part.device != tokens.device for part in (parents, counts, choices)):
        raise ValueError("tokens, parents, counts and choices are not on one device")
    batch = tokens.shape[0]
    if out is None:
        out = Walks.empty(batch, longest, tokens.device)
    elif out.paths.shape != (batch, longest) or not all(
        part.is_contiguous() and part.dtype == torch.int32 and part.device == tokens.device
        for part in vars(out).values()
    ):
        raise ValueError(f"out.paths {tuple(out.paths.shape)}, expected contiguous int32 {(batch, longest)}")
    if tokens.device.type == "cpu":
        walk_trees_naive(tokens, parents, counts, choices, out)
    else:
        from drafttree.ops.tree_walk.triton import walk_trees_triton

        walk_trees_triton(tokens, parents, counts, choices, out)
    return out


def walk_trees_naive(tokens: Tensor, parents: Tensor, counts: Tensor, choices: Tensor, out: Walks) -> None:
    """``walk_trees`` request by request: the specification."""
    longest = out.paths.shape[1]
    out.paths.fill_(-1)
    for request, count in enumerate(counts.tolist()):
        wanted = choices[request, :count].tolist()
        path, _ = walk_nodes(tokens[request, 1:count].tolist(), parents[request, 1:count].tolist(), wanted)
        path = path[:longest]
        out.paths[request, : len(path)] = torch.tensor(path)
        out.lengths[request] = len(path)
        out.bonus[request] = wanted[path[-1]]
