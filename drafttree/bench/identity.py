"""Are two outputs the same, and if not, how close was the target's decision where they part?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from drafttree.sampling import SamplingParams, filtered_log_probs, gumbel


@dataclass(frozen=True)
class Difference:
    """The first place where two outputs differ.

    ``gap``: how far apart the target puts the two tokens there, given the common text: logits if greedy, log p plus
    noise if sampled. Infinite where one of the tokens is filtered out or an output ends early.
    """

    position: int
    expected: int | None
    found: int | None
    gap: float

    def as_json(self) -> dict[str, Any]:
        """For records; an infinite gap is null."""
        gap = None if self.gap == float("inf") else self.gap
        return {"position": self.position, "expected": self.expected, "found": self.found, "gap": gap}


def first_difference(
    target: Any, prompt: torch.Tensor, expected: list[int], found: list[int], params: SamplingParams
) -> Difference | None:
    """None if the two outputs are the same.

    Args:
        target: the Hugging Face model.
        prompt: [1, T] int64 on its device.
        expected, found: new tokens of the two outputs.
        params: how they were chosen.
    """
    if expected == found:
        return None
    pairs = zip(expected, found, strict=False)
    place = next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(expected), len(found)))
    if place >= min(len(expected), len(found)):
        longer = expected if len(expected) > len(found) else found
        token = longer[place]
        return Difference(
            place, token if longer is expected else None, token if longer is found else None, float("inf")
        )
    scores = _scores(target, prompt, expected[:place], params)
    gap = abs(float(scores[expected[place]] - scores[found[place]]))
    return Difference(place, expected[place], found[place], gap if gap == gap else float("inf"))


@torch.inference_mode()
def _scores(target: Any, prompt: torch.Tensor, common: list[int], params: SamplingParams) -> torch.Tensor:
    """[V] what the target maximises for the token after the common text."""
    ids = torch.cat([prompt, prompt.new_tensor([common])], dim=1) if common else prompt
    logits: torch.Tensor = target(input_ids=ids, use_cache=False, logits_to_keep=1).logits[0, -1:]  # [1, V]
    if params.greedy:
        return logits[0].double()
    assert params.seed is not None
    position = torch.tensor([ids.shape[1]], device=ids.device)
    scores = filtered_log_probs(logits, params) + gumbel(params.seed, position, logits.shape[-1])
    return scores[0].double()
