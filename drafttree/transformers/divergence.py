"""Are two outputs the same, and if not, was the target's own decision too close to call where they part?

A forward over several rows is not bitwise one over a single row, not even in float32. So in float32 and below two exact
methods may part where the target puts two tokens closer together than its own rounding; anywhere else it is an error.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from drafttree.sampling import SamplingParams, gumbel
from drafttree.sampling.filters import warped
from drafttree.transformers.target import Target, target_for

ROWS = 16  # as many as a tree has, about


@dataclass(frozen=True)
class Divergence:
    """The first place where two outputs differ.

    Attributes:
        position: number of the new token, 0 for the first.
        expected, found: the two tokens there; None where an output has ended.
        gap: how far the target is from deciding the other way, given the common text: the distance of the two tokens
            in logits if greedy, in logits / temperature + noise if sampled; or the distance to the top-k or top-p
            boundary of a token that a filter removes, where that is larger. Infinite where an output has ended.
        noise: how much rounding moves such a distance there, measured: the same text through forwards of other widths.
    """

    position: int
    expected: int | None
    found: int | None
    gap: float
    noise: float

    @property
    def near_tie(self) -> bool:
        """Whether rounding alone explains the difference."""
        return self.gap <= self.noise

    def as_json(self) -> dict[str, Any]:
        """For records; an infinite gap is null."""
        return {
            "position": self.position,
            "expected": self.expected,
            "found": self.found,
            "gap": self.gap if math.isfinite(self.gap) else None,
            "noise": self.noise,
            "near_tie": self.near_tie,
        }


def first_divergence(
    model: Any, prompt: Tensor, expected: list[int], found: list[int], params: SamplingParams
) -> Divergence | None:
    """None if the two outputs are the same.

    Args:
        model: the target, a Hugging Face model.
        prompt: [T] or [1, T] int64 on its device.
        expected, found: new tokens of the two outputs.
        params: how they were chosen; with the seed unless greedy.
    """
    if expected == found:
        return None
    pairs = list(zip(expected, found, strict=False))
    place = next((i for i, (a, b) in enumerate(pairs) if a != b), len(pairs))
    if place == len(pairs):
        a, b = (tokens[place] if place < len(tokens) else None for tokens in (expected, found))
        return Divergence(place, a, b, math.inf, 0.0)
    a, b = pairs[place]
    prompt = prompt.flatten()
    ids = torch.cat([prompt, prompt.new_tensor(expected[:place])])
    logits = logits_by_width(model, ids)
    scale = 1.0 if params.greedy else params.temperature
    # a distance of two logits moves by twice what one of them may move
    noise = 2.0 / scale * max(float((row - logits[0]).abs().max()) for row in logits)
    return Divergence(place, a, b, decision_gap(logits[0], len(ids), a, b, params), noise)


@torch.inference_mode()
def logits_by_width(model: Any, ids: Tensor) -> list[Tensor]:
    """Logits [V] after ``ids`` [T], in float64: the text all at once; its last token alone; in pieces of many rows."""
    target = target_for(model, (), len(ids), ROWS)
    try:
        found = [target.prefill(ids)[0]]
    finally:
        target.close()
    for rows in (1, ROWS):
        target = target_for(model, (), len(ids), ROWS)
        try:
            _commit(target, ids[:-1], rows)
            # the last token as the root of ``rows`` nodes, all others its children
            depths = torch.ones(rows, dtype=torch.int64, device=ids.device)
            depths[0] = 0
            mask = torch.eye(rows, dtype=torch.bool, device=ids.device)
            mask[:, 0] = True
            found.append(target.verify(ids[-1:].expand(rows), depths, mask)[0][0])
        finally:
            target.close()
    return [logits.double() for logits in found]


def _commit(target: Target, ids: Tensor, rows: int) -> None:
    """Commit ``ids`` at once (``rows`` 1) or as chains of ``rows``."""
    if rows == 1 and len(ids):
        target.prefill(ids)
        return
    for piece in torch.split(ids, rows) if len(ids) else ():
        depths = torch.arange(len(piece), device=ids.device)
        target.verify(piece, depths, depths[:, None] >= depths)
        target.commit(range(len(piece)))


def decision_gap(logits: Tensor, position: int, a: int, b: int, params: SamplingParams) -> float:
    """See :attr:`Divergence.gap`: ``logits`` [V] float64 for the token at absolute ``position``."""
    if params.greedy:
        return abs(float(logits[a] - logits[b]))
    assert params.seed is not None
    scores = logits / params.temperature
    noisy = scores + gumbel(params.seed, torch.tensor([position], device=logits.device), len(logits))[0]
    distances = [abs(float(noisy[a] - noisy[b]))]
    kept = warped(logits[None], params)[0] > -math.inf
    for token in (a, b):
        if not bool(kept[token]):
            distances.append(_distance_to_filters(scores, token, params))
    return max(distances)


def _distance_to_filters(scores: Tensor, token: int, params: SamplingParams) -> float:
    """How far a removed ``token`` is from staying, in ``scores`` [V]: the most over the filters that remove it."""
    distance = 0.0
    if params.top_k is not None:
        last = scores.topk(min(params.top_k, len(scores))).values[-1]
        distance = max(distance, float(last - scores[token]))
        scores = scores.masked_fill(scores < last, -math.inf)
    if params.top_p is not None and params.top_p < 1.0 and bool(scores[token] > -math.inf):
        below = float(scores.softmax(-1)[scores <= scores[token]].sum())
        # removed while the mass up to it stays within 1 - top_p; logits that move by e move log-odds of a mass by 2 e
        distance = max(distance, _log_odds(1.0 - params.top_p) - _log_odds(below))
    return distance


def _log_odds(share: float) -> float:
    share = min(max(share, 1e-300), 1.0 - 1e-16)
    return math.log(share) - math.log1p(-share)
