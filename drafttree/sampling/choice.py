"""The target's choice of the next token at every node it is asked for."""

from __future__ import annotations

import torch

from drafttree.errors import UserError
from drafttree.sampling.filters import warped
from drafttree.sampling.noise import gumbel, gumbel_at
from drafttree.sampling.params import SamplingParams

_LARGE_VOCABULARY = 4096  # from here on, picking out the tokens left costs less than noise for all


def choose(logits: torch.Tensor, positions: torch.Tensor, params: SamplingParams) -> torch.Tensor:
    """The target's own token after each of N nodes.

    Greedy: the argmax. Sampled: argmax(log p + g) with p after temperature, top-k and top-p and g the Gumbel noise of
    (seed, position), which is a draw from p. A row's choice does not depend on the other rows. Ties go to the smaller
    token id.

    Args:
        logits: [N, V] floating point; float64 stays float64, everything narrower is taken in float32.
        positions: [N] int64, absolute position of the token being chosen (the row's own position plus 1).
        params: with a seed unless greedy (``SamplingParams.with_seed``).

    Returns:
        [N] int64.

    Raises:
        ValueError: shapes that do not match, or sampling without a seed.
        UserError: on a CPU, a row whose largest logit is NaN or infinite. A device would have to wait to look.
    """
    if logits.dim() != 2 or positions.shape != logits.shape[:1]:
        shapes = f"logits {tuple(logits.shape)} and positions {tuple(positions.shape)}"
        raise ValueError(f"{shapes}, expected [N, V] and [N]")
    if params.greedy:
        scores = logits
    else:
        if params.seed is None:
            raise ValueError("sampling without a seed: call SamplingParams.with_seed once a request")
        scores = filtered_log_probs(logits, params)
        filtered = params.top_k is not None or (params.top_p is not None and params.top_p < 1.0)
        if filtered and scores.device.type == "cpu" and scores.shape[-1] >= _LARGE_VOCABULARY:
            _add_noise_where_kept(scores, positions, params.seed)
        else:
            scores += gumbel(params.seed, positions.to(logits.device), logits.shape[-1]).to(scores.dtype)
    tokens = _first_argmax(scores)
    if tokens.device.type == "cpu" and not bool(torch.isfinite(scores.gather(-1, tokens[:, None])).all()):
        raise UserError("target logits: a row holds NaN or no finite number, so it has no next token")
    return tokens


def filtered_log_probs(logits: torch.Tensor, params: SamplingParams) -> torch.Tensor:
    """[N, V] log p after temperature, top-k and top-p; -inf for a removed token. float64 or float32, as ``choose``.

    Raises:
        ValueError: for greedy ``params``, which have no distribution.
    """
    if params.greedy:
        raise ValueError("greedy choice has no distribution")
    return warped(logits, params).log_softmax(dim=-1)


def _add_noise_where_kept(scores: torch.Tensor, positions: torch.Tensor, seed: int) -> None:
    """Add the noise in place where a token is left: the filters leave few, and each number has its own address."""
    for row in range(len(scores)):
        kept = (scores[row] > float("-inf")).nonzero()[:, 0]
        scores[row, kept] += gumbel_at(seed, positions[row : row + 1], kept[None])[0].to(scores.dtype)


def _first_argmax(scores: torch.Tensor) -> torch.Tensor:
    """[N] int64 index of the largest value, the smallest index of equal ones; NaN counts as largest."""
    if scores.device.type == "cpu" and scores.dtype in (torch.float32, torch.float64):
        return torch.from_numpy(scores.detach().numpy().argmax(axis=-1))  # ten times torch's on a CPU
    return scores.argmax(dim=-1)
