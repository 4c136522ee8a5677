"""Temperature, top-k and top-p, keeping the same tokens as Transformers' warpers, in their order."""

from __future__ import annotations

import numpy as np
import torch

from drafttree.sampling.params import SamplingParams


def warped(logits: torch.Tensor, params: SamplingParams) -> torch.Tensor:
    """[N, V] logits divided by the temperature, -inf where top-k or top-p removes the token.

    float64 stays float64; everything narrower is taken in float32.
    """
    scores = logits if logits.dtype == torch.float64 else logits.to(torch.float32)
    scores = scores / params.temperature
    if params.top_k is not None:
        scores = keep_top_k(scores, params.top_k)
    if params.top_p is not None and params.top_p < 1.0:
        scores = keep_top_p(scores, params.top_p)
    return scores


def keep_top_k(scores: torch.Tensor, top_k: int) -> torch.Tensor:
    """[N, V] with the k largest of a row kept, and every token equal to the last of them."""
    last = scores.topk(min(top_k, scores.shape[-1]), dim=-1).values[:, -1:]
    return scores.masked_fill(scores < last, float("-inf"))


def keep_top_p(scores: torch.Tensor, top_p: float) -> torch.Tensor:
    """[N, V] without the least likely tokens whose probabilities, summed from the smallest up, stay within 1 - top_p.

    The sum runs in the dtype of ``scores`` and in rising order, as in Transformers: at the boundary its rounding
    decides. Of equal tokens there, those go that ``torch.sort`` puts first, which is its own affair but not chance.
    """
    if scores.device.type != "cpu":
        return scores.masked_fill(_removed_by_rank(scores, top_p), float("-inf"))
    # The values alone sort ten times faster than with their indices, and tell all unless equal tokens part.
    rising = torch.from_numpy(np.sort(scores.detach().numpy(), axis=-1))  # [N, V]
    count = _removed_of_rising(rising, top_p).sum(dim=-1, keepdim=True)  # [N, 1]
    gone = scores < rising.gather(-1, count)  # below the smallest value kept
    parted = (gone.sum(dim=-1) != count[:, 0]).nonzero()[:, 0]
    if parted.numel():
        gone[parted] = _removed_by_rank(scores[parted], top_p)
    return scores.masked_fill(gone, float("-inf"))


def _removed_of_rising(rising: torch.Tensor, top_p: float) -> torch.Tensor:
    """[N, V] bool over rows in rising order: a prefix of each, never the whole row."""
    removed = rising.softmax(dim=-1).cumsum(dim=-1) <= 1.0 - top_p
    removed[:, -1] = False
    return removed


def _removed_by_rank(scores: torch.Tensor, top_p: float) -> torch.Tensor:
    """[N, V] bool over tokens, through the indices of a sort."""
    rising, tokens = scores.sort(dim=-1)
    return torch.zeros_like(tokens, dtype=torch.bool).scatter(-1, tokens, _removed_of_rising(rising, top_p))
