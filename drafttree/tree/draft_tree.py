"""DraftTree: the tokens a step proposes, as a tree below the last committed token."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from drafttree.tree.mask import ancestor_mask


@dataclass(frozen=True, eq=False)
class DraftTree:
    """A tree of draft tokens below the root. The root is node 0 and has no entry; entry i is node i + 1.

    Every prefix of the entries is closed under parents, so ``cut`` gives a tree at any width.

    Attributes:
        tokens: [n] int64, the token of each node.
        parents: [n] int64, node number of the parent: 0 is the root, i + 1 is entry i. Parents precede children.
        depths: [n] int64, tokens from the root: a child of the root has depth 1.
        scores: [n] float32, sum of the log-probabilities from the root, so it never rises along a path; zeros where
            the maker of the tree had none.
    """

    tokens: torch.Tensor
    parents: torch.Tensor
    depths: torch.Tensor
    scores: torch.Tensor

    @classmethod
    def root_only(cls, device: torch.device | str | None = None) -> DraftTree:
        """The tree without draft tokens."""
        empty = torch.empty(0, dtype=torch.int64, device=device)
        return cls(empty, empty.clone(), empty.clone(), torch.empty(0, dtype=torch.float32, device=device))

    @classmethod
    def chain(cls, tokens: torch.Tensor | Sequence[int]) -> DraftTree:
        """The tree without siblings: [n] tokens, each the child of the one before."""
        tokens = torch.as_tensor(tokens, dtype=torch.int64)
        parents = torch.arange(tokens.numel(), dtype=torch.int64, device=tokens.device)
        scores = torch.zeros(tokens.numel(), dtype=torch.float32, device=tokens.device)
        return cls(tokens, parents, parents + 1, scores)

    @classmethod
    def from_lists(
        cls,
        tokens: Sequence[int],
        parents: Sequence[int],
        scores: Sequence[float] | None = None,
        device: torch.device | str | None = None,
    ) -> DraftTree:
        """Tree from [n] tokens and [n] parent node numbers; depths follow. Raises ValueError if it is not a tree."""
        if len(tokens) != len(parents):
            raise ValueError(f"{len(tokens)} tokens but {len(parents)} parents")
        depths = [0]
        for node, parent in enumerate(parents, start=1):
            if not 0 <= parent < node:
                raise ValueError(f"node {node}: parent {parent} does not precede it")
            depths.append(depths[parent] + 1)

        def integers(values: Sequence[int]) -> torch.Tensor:
            return torch.tensor(list(values), dtype=torch.int64, device=device)

        values = [0.0] * len(tokens) if scores is None else list(scores)
        tree = cls(
            integers(tokens),
            integers(parents),
            integers(depths[1:]),
            torch.tensor(values, dtype=torch.float32).to(device),
        )
        tree.validate()
        return tree

    def __len__(self) -> int:
        """Number of nodes without the root."""
        return self.tokens.numel()

    def validate(self) -> None:
        """Raise ValueError naming the first broken invariant. Reads the tensors, so it synchronises a device."""
        integers = {"tokens": self.tokens, "parents": self.parents, "depths": self.depths}
        for name, values in integers.items():
            if values.dtype != torch.int64 or values.shape != (len(self),):
                raise ValueError(f"{name}: {values.dtype} {tuple(values.shape)}, expected int64 ({len(self)},)")
        if self.scores.dtype != torch.float32 or self.scores.shape != (len(self),):
            raise ValueError(f"scores: {self.scores.dtype} {tuple(self.scores.shape)}, expected float32 ({len(self)},)")
        depths, scores = [0, *self.depths.tolist()], [0.0, *self.scores.tolist()]
        seen: set[tuple[int, int]] = set()
        for node, (token, parent) in enumerate(zip(self.tokens.tolist(), self.parents.tolist(), strict=True), start=1):
            if not 0 <= parent < node:
                raise ValueError(f"node {node}: parent {parent} does not precede it")
            if token < 0:
                raise ValueError(f"node {node}: token {token} is negative")
            if depths[node] != depths[parent] + 1:
                raise ValueError(f"node {node}: depth {depths[node]} below a parent of depth {depths[parent]}")
            if (parent, token) in seen:
                raise ValueError(f"node {node}: a second child of node {parent} with token {token}")
            if not scores[node] <= scores[parent]:
                raise ValueError(f"node {node}: score {scores[node]} above its parent's {scores[parent]}")
            seen.add((parent, token))

    def ancestor_mask(self) -> torch.Tensor:
        """[n + 1, n + 1] bool, the root first: row = the node that looks, column = itself or an ancestor."""
        return ancestor_mask(self.parents)

    def node_depths(self) -> torch.Tensor:
        """[n + 1] int64, the root's 0 first. A node's position is the root's position plus its depth."""
        return torch.cat([self.depths.new_zeros(1), self.depths])

    def cut(self, width: int) -> DraftTree:
        """The tree of the first ``width`` nodes (all of them if there are fewer). ValueError if width is negative."""
        if width < 0:
            raise ValueError(f"width {width} is negative")
        return DraftTree(self.tokens[:width], self.parents[:width], self.depths[:width], self.scores[:width])

    def children(self, node: int) -> list[int]:
        """Node numbers of the children of ``node`` (0 is the root), in node order."""
        return [child for child, parent in enumerate(self.parents.tolist(), start=1) if parent == node]

    def spine(self) -> list[int]:
        """Node numbers, the root left out, met by going to the first child until there is none.

        Builders put a parent's likeliest child first, so this is the top-1 chain as far as the tree holds it.
        """
        path, here = [], 0
        for node, parent in enumerate(self.parents.tolist(), start=1):
            if parent == here:
                path.append(node)
                here = node
        return path
