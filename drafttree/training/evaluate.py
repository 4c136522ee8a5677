"""Acceptance on held-out responses without decoding again.

A greedy response is the path that every lossless method takes, so walking it from anchor to anchor gives the same
acceptance lengths as running the method (up to the rounding of the two forward passes).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from drafttree.drafter.network import DFlashDrafter
from drafttree.training.data import draft_hidden
from drafttree.training.shards import Response
from drafttree.training.store import ResponseStore
from drafttree.tree.marginal import tree_of_candidates


@dataclass(frozen=True)
class Acceptance:
    """Mean acceptance length (tokens a step, the bonus counted) of chain and tree."""

    chain: float
    tree: float
    by_depth: list[float]  # share of chain steps that reach depth d, d = 1 ..
    steps: dict[str, int]


def _accepted(tree: Any, truth: list[int]) -> int:
    """Nodes of ``tree`` accepted when the target continues with ``truth``."""
    tokens, parents = tree.tokens.tolist(), tree.parents.tolist()
    children = {(parent, token): number for number, (parent, token) in enumerate(zip(parents, tokens, strict=True), 1)}
    at = 0
    for depth, token in enumerate(truth):
        child = children.get((at, token))
        if child is None:
            return depth
        at = child
    return len(truth)


@torch.inference_mode()
def evaluate(network: DFlashDrafter, target: Any, responses: list[Response], *, budget: int) -> Acceptance:
    """Walk every response with the chain and with a tree of ``budget`` nodes (full spine)."""
    depth = network.config.block_size - 1
    reached = [0] * (depth + 1)
    tokens_made, steps = {"chain": 0, "tree": 0}, {"chain": 0, "tree": 0}
    store = ResponseStore(target, network.config.target_layer_ids, responses, keep_taps=False)
    for row, response in enumerate(responses):
        first, last = response.prompt_length, len(response.tokens) - 2
        if last < first:
            continue
        top_tokens, top_scores = candidates(network, target, store, row, first, last, budget)
        for method in ("chain", "tree"):
            at = first
            while at <= last:
                truth = response.tokens[at + 1 : at + 1 + depth]
                guess = top_tokens[at - first]  # [L, K]
                if method == "chain":
                    same = [int(a) == b for a, b in zip(guess[:, 0].tolist(), truth, strict=False)]
                    length = [*same, False].index(False)
                    for d in range(length + 1):
                        reached[d] += 1
                else:
                    length = _accepted(tree_of_candidates(guess, top_scores[at - first], budget), truth)
                tokens_made[method] += min(length + 1, last + 1 - at)
                steps[method] += 1
                at += length + 1
    ratio = {m: tokens_made[m] / max(steps[m], 1) for m in steps}
    by_depth = [round(r / max(reached[0], 1), 4) for r in reached[1:]]
    return Acceptance(round(ratio["chain"], 4), round(ratio["tree"], 4), by_depth, steps)


def candidates(
    network: DFlashDrafter, target: Any, store: ResponseStore, row: int, first: int, last: int, budget: int
) -> tuple[Tensor, Tensor]:
    """The best ``budget`` tokens and their log-probabilities [A, L, K] after the anchors ``first`` to ``last``."""
    head: Tensor = target.get_output_embeddings().weight
    anchors = torch.arange(first, last + 1, device=store.device)[None]
    with torch.autocast(store.device.type, torch.bfloat16, enabled=head.dtype == torch.bfloat16):
        hidden = draft_hidden(network, target.get_input_embeddings(), store.batch([row]), anchors)
    logits = network.logits(hidden[0].to(head.dtype), head).float()  # [A, L, V]
    best = logits.topk(min(budget, logits.shape[-1]), dim=-1)
    return best.indices.cpu(), (best.values - logits.logsumexp(-1, keepdim=True)).cpu()
