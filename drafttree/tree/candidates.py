"""The likeliest tokens of every position, ranked exactly."""

from __future__ import annotations

import numpy as np
import torch

from drafttree.errors import UserError


def ranked_candidates(logits: torch.Tensor, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The ``count`` largest logits a row with their log-probabilities over the full vocabulary.

    Ranked by logit, equal logits by the smaller token id. Ranking the logits and not the log-probabilities keeps rank 0
    the argmax of the logits where rounding makes two log-probabilities equal.

    Args:
        logits: [L, V], cast to float32 first. -inf is an absent token.
        count: K, 1 <= K <= V.

    Returns:
        tokens [L, K] int64 and scores [L, K] float32 (<= 0, falling along K). An absent candidate has score -inf and
        token 0; a row of -inf alone has no candidates. On a device, where looking would synchronise, NaN or +inf in
        any row leaves no candidates at all.

    Raises:
        UserError: on a CPU, a row with NaN or +inf.
    """
    logits = logits.detach().to(torch.float32)
    if logits.device.type == "cpu":
        tokens, values = _largest_on_cpu(logits, count)
    else:
        tokens, values = largest_by_key(logits, count)
    scores = logits.log_softmax(dim=-1).gather(-1, tokens)  # NaN where the row is -inf alone
    present = torch.isfinite(values) & ~_broken(values).any()
    scores = torch.where(present, scores.clamp(max=0.0), float("-inf"))
    return torch.where(present, tokens, 0), scores


def _largest_on_cpu(logits: torch.Tensor, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """[L, K] tokens and values, ranked.

    ``topk`` leaves the order and the choice of equal values open. Where there are none, its answer is the only one;
    elsewhere it only finds the threshold.
    """
    found = logits.topk(min(count + 1, logits.shape[-1]), dim=-1)
    top, tokens = found.values[:, :count], found.indices[:, :count]  # [L, K]
    broken = _broken(top)
    if bool(broken.any()):
        row = int(broken.nonzero()[0])
        raise UserError.field("drafter logits", f"row {row}", float(top[row, 0]), "numbers below +inf")
    for row in (found.values[:, 1:] == found.values[:, :-1]).any(dim=-1).nonzero()[:, 0].tolist():
        array = logits[row].detach().numpy()
        ids = np.flatnonzero(array >= top[row, -1].item())  # [>= K], ids rising
        tokens[row] = torch.from_numpy(ids[np.argsort(-array[ids], kind="stable")[:count]])
    return tokens, top


def largest_by_key(logits: torch.Tensor, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The same without a host synchronisation: one unique int64 key a token, value above, complement of the id below.

    NaN, whatever its sign bit, ranks with +inf.
    """
    vocabulary = logits.shape[-1]
    # -0.0 equals 0.0 but has other bits.
    bits = (torch.where(torch.isnan(logits), float("inf"), logits) + 0.0).view(torch.int32).to(torch.int64)
    # Float bits order like integers once the magnitude bits of negative numbers are flipped.
    rising = torch.where(bits < 0, bits ^ 0x7FFFFFFF, bits)
    ids = torch.arange(vocabulary, device=logits.device)
    key = (rising << 32) | (0xFFFFFFFF - ids)  # [L, V] int64
    tokens = 0xFFFFFFFF - (key.topk(count, dim=-1).values & 0xFFFFFFFF)
    return tokens, logits.gather(-1, tokens)


def _broken(values: torch.Tensor) -> torch.Tensor:
    """[L] bool, rows with NaN or +inf, from [L, K] ranked values: such an entry ranks first."""
    return ~(torch.isfinite(values[:, 0]) | (values[:, 0] == float("-inf")))
