"""The choice row by row: the specification."""

from __future__ import annotations

import torch
from torch import Tensor

from drafttree.sampling.noise import gumbel


def choose_tokens_naive(
    logits: Tensor, temperatures: Tensor | None, seeds: Tensor | None, positions: Tensor | None
) -> Tensor:
    """``choose.choose_tokens`` for checked arguments."""
    tokens = torch.empty(logits.shape[0], dtype=torch.int64, device=logits.device)
    for row in range(logits.shape[0]):
        scores = logits[row].to(torch.float64)
        scores = torch.where(scores.isnan(), float("inf"), scores)
        if temperatures is not None and seeds is not None and positions is not None and temperatures[row] > 0:
            scores = scores * (1.0 / temperatures[row].to(torch.float64))
            scores = scores + gumbel(int(seeds[row]), positions[row : row + 1], logits.shape[1])[0]
        tokens[row] = (scores == scores.max()).to(torch.int8).argmax()
    return tokens
