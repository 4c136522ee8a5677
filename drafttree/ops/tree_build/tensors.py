"""The trees of a batch as device tensors of fixed shape: what verify, walk and commit read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class TreeTensors:
    """Trees of B requests, padded to N rows; row 0 of a request is the root (the anchor), row i is node i.

    Rows from ``counts`` on are padding: token 0, parent -1, depth 0, and among the ancestors only their own bit.

    Attributes:
        tokens: [B, N] int32.
        parents: [B, N] int32, row of the parent, -1 for the root; parents precede children.
        depths: [B, N] int32, the root 0.
        counts: [B] int32, rows in use, the root counted.
        ancestors: [B, N, ceil(N / 32)] int32 bit words: bit j % 32 of word j // 32 of a row is set where row j is an
            ancestor of the row or the row itself.
        taps: [B, N, T] int32: tap j is the row of the (j + 1)-th ancestor; past the root -1 is the newest committed
            row, -2 the one before it, and so on.
    """

    tokens: Tensor
    parents: Tensor
    depths: Tensor
    counts: Tensor
    ancestors: Tensor
    taps: Tensor

    @classmethod
    def empty(cls, batch: int, rows: int, taps: int = 3, device: torch.device | str | None = None) -> TreeTensors:
        """Uninitialised tensors of B = ``batch``, N = ``rows``, T = ``taps``, to build into."""

        def make(*shape: int) -> Tensor:
            return torch.empty(batch, *shape, dtype=torch.int32, device=device)

        return cls(make(rows), make(rows), make(rows), make(), make(rows, words_of(rows)), make(rows, taps))

    def check(self, batch: int, rows: int, taps: int, device: torch.device) -> None:
        """ValueError unless these are contiguous tensors of ``empty(batch, rows, taps, device)``."""
        expected = TreeTensors.empty(batch, rows, taps, "meta")
        for name, like in vars(expected).items():
            held: Tensor = getattr(self, name)
            if held.shape != like.shape or held.dtype != like.dtype or not held.is_contiguous():
                raise ValueError(f"out.{name}: {held.dtype} {tuple(held.shape)}, expected int32 {tuple(like.shape)}")
            if held.device != device:
                raise ValueError(f"out.{name} is on {held.device}, the candidates on {device}")

    def fill_(self, request: int, anchor: int, tokens: Sequence[int], parents: Sequence[int]) -> None:
        """Write one request's tree row by row: the specification of every field.

        Args:
            request: index in the batch.
            anchor: token of the root.
            tokens, parents: [n] of the nodes without the root, n < N; parents as in ``DraftTree`` (0 is the root).
        """
        rows, taps = self.tokens.shape[1], self.taps.shape[2]
        padding = rows - 1 - len(tokens)
        chain = [-1, *parents] + [-1] * padding
        depths = [0] * rows
        for row in range(1, len(tokens) + 1):
            depths[row] = depths[chain[row]] + 1
        words = [[0] * words_of(rows) for _ in range(rows)]
        tap_rows = []
        for row in range(rows):
            at = row
            while at >= 0:
                words[row][at // 32] |= 1 << at % 32
                at = chain[at]
            at, found = row, []
            for _ in range(taps):
                at = chain[at] if at >= 0 else at - 1
                found.append(at)
            tap_rows.append(found)
        self.tokens[request] = torch.tensor([anchor, *tokens] + [0] * padding)
        self.parents[request] = torch.tensor(chain)
        self.depths[request] = torch.tensor(depths)
        self.counts[request] = len(tokens) + 1
        # A set top bit is the sign of an int32.
        self.ancestors[request] = torch.tensor([[w - 2**32 if w >= 2**31 else w for w in row] for row in words])
        self.taps[request] = torch.tensor(tap_rows).view(rows, taps)


def words_of(rows: int) -> int:
    """32-bit words that hold a bit for each of ``rows`` rows."""
    return -(-rows // 32)
