"""What stands at the drafter's two ends: the embedding, the output head, and the token of each row of the head."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from drafttree.drafter.config import DrafterConfig
from drafttree.drafter.target import TargetFacts
from drafttree.drafter.tensors import BOOLEANS, FLOATS, INTEGERS, TensorFiles
from drafttree.errors import UserError

# Tensors of the speculators format besides the network's; those of the verifier serve its training only.
VOCABULARY_TENSORS = (
    "embed_tokens.weight",
    "lm_head.weight",
    "d2t",
    "t2d",
    "verifier_lm_head.weight",
    "verifier_norm.weight",
)


@dataclass(frozen=True)
class DraftVocabulary:
    """``embedding`` [V, H], ``head`` [D, H] and ``token_ids`` [D], the token of each row; None if D is V.

    ``head_layer`` is the target's own layer where its weight is ``head``: it may have a faster product.
    """

    embedding: Tensor
    head: Tensor
    token_ids: Tensor | None = None
    shares_embedding: bool = True
    shares_head: bool = True
    head_layer: nn.Module | None = None

    @classmethod
    def of_target(cls, target: TargetFacts) -> DraftVocabulary:
        """The target's own two matrices."""
        return cls(target.embedding, target.head, head_layer=target.head_layer)

    def logits(self, hidden: Tensor) -> Tensor:
        """``hidden`` [..., H] times the head: [..., D]."""
        out: Tensor = F.linear(hidden, self.head) if self.head_layer is None else self.head_layer(hidden)
        return out

    def spread(self, logits: Tensor) -> Tensor:
        """``logits`` [..., D] over the whole vocabulary [..., V]; tokens that the head lacks get -inf."""
        if self.token_ids is None:
            return logits
        wide = logits.new_full((*logits.shape[:-1], self.embedding.shape[0]), float("-inf"))
        return wide.index_copy_(-1, self.token_ids, logits)

    def summary(self) -> dict[str, Any]:
        """Facts for ``drafttree inspect``."""
        return {"shares_embedding": self.shares_embedding, "shares_head": self.shares_head}


def read_vocabulary(config: DrafterConfig, files: TensorFiles, target: TargetFacts) -> DraftVocabulary:
    """Vocabulary of a drafter in the speculators format.

    A stored embedding or head that equals the target's is dropped for it; one that differs is kept. ``d2t`` [D] holds
    the distance from a row's number to its token; ``t2d`` [V], if there, marks the same tokens.
    """
    device, dtype = target.head.device, target.head.dtype
    token_ids = _token_ids(config, files, device) if config.draft_vocab_size is not None else None
    rows = target.head if token_ids is None else target.head[token_ids]  # [D, H]
    embedding, head = target.embedding, rows
    if "embed_tokens.weight" in files.names():
        files.check("embed_tokens.weight", tuple(embedding.shape), FLOATS)
        own = files.read("embed_tokens.weight", embedding.device, embedding.dtype)
        embedding = embedding if torch.equal(own, embedding) else own
    if "lm_head.weight" in files.names():
        files.check("lm_head.weight", tuple(rows.shape), FLOATS)
        own = files.read("lm_head.weight", device, dtype)
        head = rows if torch.equal(own, rows) else own
    layer = target.head_layer if head is target.head else None
    return DraftVocabulary(embedding, head, token_ids, embedding is target.embedding, head is target.head, layer)


def _token_ids(config: DrafterConfig, files: TensorFiles, device: torch.device) -> Tensor:
    """The token [D] of each row of a reduced head, distinct and inside the vocabulary."""
    size = config.draft_vocab_size
    assert size is not None
    files.check("d2t", (size,), INTEGERS)
    cpu = torch.device("cpu")
    token_ids = files.read("d2t", cpu).long() + torch.arange(size)  # [D]
    low, high = int(token_ids.min()), int(token_ids.max())
    if low < 0 or high >= config.vocab_size:
        raise UserError(f"{files.directory}: tensor d2t: found token {high if low >= 0 else low}, "
                        f"expected 0 to {config.vocab_size - 1}")  # fmt: skip
    if len(torch.unique(token_ids)) != size:
        raise UserError(f"{files.directory}: tensor d2t: found one token in several rows, expected distinct tokens")
    if "t2d" in files.names():
        files.check("t2d", (config.vocab_size,), BOOLEANS)
        marked = torch.nonzero(files.read("t2d", cpu)).flatten()
        if not torch.equal(marked, torch.sort(token_ids).values):
            raise UserError(f"{files.directory}: tensor t2d: found other tokens than in d2t, expected the same")
    return token_ids.to(device)
