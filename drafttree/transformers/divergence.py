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
from drafttree.transformers.target import Target, target_for

POSITIONS = 32  # whose rounding is taken
WAYS = ((1, 1), (16, 1), (8, 2), (4, 4))  # levels of a tree, nodes a level; the first is plain decoding


@dataclass(frozen=True)
class Divergence:
    """The first place where two outputs differ.

    Attributes:
        position: number of the new token, 0 for the first.
        expected, found: the two tokens there; None where an output has ended.
        gap: how far the target is from deciding the other way, given the common text: the distance of the two tokens
            in logits if greedy, in logits / temperature + noise if sampled, or a token's distance to the boundary of
            top-k or top-p where that decides. Infinite where an output has ended.
        noise: how much rounding moves such a distance, measured: the text before in other ways.
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
    logits = logits_by_way(model, prompt, prompt.new_tensor(expected[:place]))
    scale = 1.0 if params.greedy else params.temperature
    # a distance of two logits moves by twice what one of them may move
    noise = 2.0 / scale * float((logits - logits[0]).abs().max())
    return Divergence(place, a, b, decision_gap(logits[0, -1], len(prompt) + place, a, b, params), noise)


@torch.inference_mode()
def logits_by_way(model: Any, prompt: Tensor, new: Tensor) -> Tensor:
    """Logits [ways, positions, V] after the last POSITIONS tokens of ``prompt`` [T] and ``new`` [N], in float64.

    The first way is plain decoding's own, the others commit ``new`` in chains, and in trees whose path lies among other
    nodes. The prompt's tokens but the last are left out.
    """
    found = []
    for depth, siblings in WAYS:
        target = target_for(model, (), len(prompt) + len(new), 16)
        try:
            rows = [target.prefill(prompt)[0][None]]
            for piece in torch.split(new, depth) if len(new) else ():
                rows.append(_commit(target, piece, siblings))
                rows = [torch.cat(rows)[-POSITIONS:]]
            found.append(rows[0])
        finally:
            target.close()
    return torch.stack(found).double()


def _commit(target: Target, path: Tensor, siblings: int) -> Tensor:
    """Commit ``path`` [T] through a tree with ``siblings`` nodes a level; logits [T, V] of the path."""
    depths = torch.arange(len(path), device=path.device).repeat_interleave(siblings)
    nodes = torch.arange(len(depths), device=path.device)
    on_path = nodes % siblings == 0
    mask = (on_path & (depths[:, None] > depths)) | (nodes[:, None] == nodes)
    logits, _ = target.verify(path[depths], depths, mask)
    target.commit(nodes[on_path].tolist())
    return logits[on_path]


def decision_gap(logits: Tensor, position: int, a: int, b: int, params: SamplingParams) -> float:
    """How far the target is from changing between ``a`` and ``b``; see :attr:`Divergence.gap`.

    ``logits`` [V] float64 for the token at absolute ``position``.
    """
    if params.greedy:
        return abs(float(logits[a] - logits[b]))
    assert params.seed is not None
    scores = logits / params.temperature
    noise = gumbel(params.seed, torch.tensor([position], device=logits.device), len(logits))[0]
    if float(scores[a] + noise[a]) < float(scores[b] + noise[b]):
        a, b = b, a
    apart = float(scores[a] + noise[a] - scores[b] - noise[b])
    margin_a, margin_b = (filter_margin(scores, token, params) for token in (a, b))
    if margin_a > 0:  # a wins: b has to come level, or a to fall to a filter; and b has to be kept
        return max(min(apart, margin_a), -margin_b, 0.0)
    return max(-margin_a, -margin_b)  # b wins for want of a


def filter_margin(scores: Tensor, token: int, params: SamplingParams) -> float:
    """How far ``token`` is from being removed by top-k or top-p (or, below 0, from being kept), in ``scores`` [V]."""
    margin = math.inf
    if params.top_k is not None and params.top_k < len(scores):
        last, first_removed = scores.topk(params.top_k + 1).values[-2:]
        kept = bool(scores[token] >= last)
        margin = float(scores[token] - (first_removed if kept else last))
        if not kept:
            return margin
        scores = scores.masked_fill(scores < last, -math.inf)
    if params.top_p is not None and params.top_p < 1.0 and bool((scores > scores[token]).any()):
        below = float(scores.softmax(-1)[scores <= scores[token]].sum())
        # removed while the mass up to it stays within 1 - top_p; logits that move by e move log-odds of a mass by 2 e
        margin = min(margin, _log_odds(below) - _log_odds(1.0 - params.top_p))
    return margin


def _log_odds(share: float) -> float:
    share = min(max(share, 1e-300), 1.0 - 1e-16)
    return math.log(share) - math.log1p(-share)
