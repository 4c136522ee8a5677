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
    decides. Of equal tokens there, the smaller ids are removed first (a stable rising sort).
    """
    rising = _sorted(scores)  # [N, V]
    removed = rising.softmax(dim=-1).cumsum(dim=-1) <= 1.0 - top_p
    removed[:, -1] = False
    count = removed.sum(dim=-1, keepdim=True)  # [N, 1] how many go; a prefix of the rising order
    threshold = rising.gather(-1, count)  # the smallest kept value
    gone = scores < threshold
    tied_gone = count - gone.sum(dim=-1, keepdim=True)  # [N, 1] so many of the tokens equal to it go too
    if scores.device.type != "cpu" or bool(tied_gone.any()):
        tied = scores == threshold
        gone |= tied & (tied.cumsum(dim=-1) <= tied_gone)
    return scores.masked_fill(gone, float("-inf"))


def _sorted(scores: torch.Tensor) -> torch.Tensor:
    """Rows in rising order. The values alone are wanted, and NumPy's vectorised sort of them is ten times faster."""
    if scores.device.type == "cpu":
        return torch.from_numpy(np.sort(scores.detach().numpy(), axis=-1))
    return scores.sort(dim=-1).values
