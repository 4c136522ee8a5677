"""Acceptance of any tree without decoding again.

A lossless method's output does not depend on the tree. So on a recorded output the drafter is asked once at every
position, and any budget and spine can then be walked from anchor to anchor.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from drafttree.drafter.drafter import Drafter
from drafttree.transformers.taps import HiddenTaps
from drafttree.tree import DraftTree
from drafttree.tree.candidates import ranked_candidates
from drafttree.tree.marginal import tree_of_candidates

Rescore = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


@dataclass(frozen=True)
class RecordedDrafts:
    """The drafter's candidates at every position of one output.

    Attributes:
        output: the new tokens, the prefill's first.
        tokens: [A, L, K] int64, entry a for the anchor output[a], the likeliest first.
        scores: [A, L, K] float32, their log-probabilities.
    """

    output: list[int]
    tokens: torch.Tensor
    scores: torch.Tensor

    def tree(self, anchor: int, budget: int, spine: bool | int) -> DraftTree:
        """The tree below the anchor output[anchor]; ``budget`` is at most K."""
        if budget > self.tokens.shape[2]:
            raise ValueError(f"budget {budget} needs so many candidates, {self.tokens.shape[2]} were recorded")
        return tree_of_candidates(self.tokens[anchor], self.scores[anchor], budget, spine=spine)

    def chain(self, anchor: int) -> DraftTree:
        """The likeliest token of every position."""
        return DraftTree.chain(self.tokens[anchor, :, 0])

    def lengths(self, budget: int | None, spine: bool | int = True) -> list[int]:
        """Acceptance length of every step, the root counted; None is the chain.

        The last one counts what the output still holds.
        """
        lengths, at = [], 0
        while at < len(self.output) - 1:
            tree = self.chain(at) if budget is None else self.tree(at, budget, spine)
            length = 1 + len(accepted(tree, self.output[at + 1 :]))
            lengths.append(min(length, len(self.output) - 1 - at))
            at += length
        return lengths


def accepted(tree: DraftTree, truth: list[int]) -> list[int]:
    """Node numbers of the path below the root that ``truth``, the text after the anchor, takes."""
    children = {
        (parent, token): node
        for node, (parent, token) in enumerate(zip(tree.parents.tolist(), tree.tokens.tolist(), strict=True), 1)
    }
    path, at = [], 0
    for token in truth:
        node = children.get((at, token))
        if node is None:
            break
        path.append(node)
        at = node
    return path


@torch.inference_mode()
def record_drafts(
    target: Any,
    drafter: Drafter,
    prompt: torch.Tensor,
    output: list[int],
    count: int,
    rescore: Rescore | None = None,
) -> RecordedDrafts:
    """The ``count`` likeliest candidates a position, at every anchor of an output.

    Args:
        target: the Hugging Face model that wrote ``output``.
        drafter: its drafter.
        prompt: [1, T] int64.
        output: new tokens.
        count: K.
        rescore: changes the drafter's logits [L, V] of the tokens at positions [L] before they are ranked.
    """
    first = prompt.shape[1]
    ids = torch.cat([prompt, prompt.new_tensor([output])], dim=1)  # [1, T + N]
    with HiddenTaps(target.model.layers, drafter.config.target_layer_ids) as taps:
        target.model(input_ids=ids, use_cache=False)
        states = taps.take()  # [1, T + N, taps x H]
    context = drafter.new_context(ids.shape[1])
    drafter.extend(context, states, 0)
    tokens, scores = [], []
    # From the end to the start: a draft writes behind its context, over rows that only later anchors needed.
    for anchor in reversed(range(len(output))):
        context.length = first + anchor
        logits = drafter.draft(context, output[anchor])
        if rescore is not None:
            positions = torch.arange(1, len(logits) + 1, device=logits.device) + context.length
            logits = rescore(logits, positions)
        best, score = ranked_candidates(logits, count)
        tokens.append(best.cpu())
        scores.append(score.cpu())
    return RecordedDrafts(list(output), torch.stack(tokens[::-1]), torch.stack(scores[::-1]))
