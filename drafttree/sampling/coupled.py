"""Drafting with the noise the target will choose with."""

from __future__ import annotations

import torch

from drafttree.errors import UserError
from drafttree.sampling.noise import gumbel


def coupled_scores(
    logits: torch.Tensor, positions: torch.Tensor, seed: int, temperature: float, *, sharpness: float = 1.0
) -> torch.Tensor:
    """Scores that rank a position's tokens as the target's noise will: log softmax((log q + g) / c).

    The target takes argmax(log p + g). With q near p, argmax(log q + g) is often that very token, and the tokens just
    behind it are the likeliest others. The result is a log-distribution, and so input for ``build_tree``.

    Args:
        logits: [L, V] drafter logits, row d - 1 for depth d; q = softmax(logits / temperature), unfiltered.
        positions: [L] int64, absolute positions of the tokens drafted.
        seed: the request's seed.
        temperature: the request's, above 0.
        sharpness: c; smaller trusts the noisy order more.

    Returns:
        [L, V] float32, or float64 for float64 logits.

    Raises:
        UserError: a temperature or sharpness not above 0.
    """
    for name, value in (("temperature", temperature), ("sharpness", sharpness)):
        if not 0.0 < value < float("inf"):
            raise UserError.field("coupled drafting", name, value, "a finite number above 0")
    scores = logits if logits.dtype == torch.float64 else logits.to(torch.float32)
    noise = gumbel(seed, positions.to(logits.device), logits.shape[-1]).to(scores.dtype)
    return (((scores / temperature).log_softmax(dim=-1) + noise) / sharpness).log_softmax(dim=-1)
