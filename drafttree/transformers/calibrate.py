"""The budget that decodes fastest on this machine: what a step costs by its width, and what the width brings."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import torch
from torch import Tensor

from drafttree.drafter.drafter import Drafter
from drafttree.transformers.generation import generate
from drafttree.transformers.target import Target, target_for
from drafttree.tree import DraftTree

# Together with the root most of them fill rows of eight, as matrix kernels do.
WIDTHS = (0, 4, 7, 8, 12, 15, 16, 23, 24, 31, 32)
CHAIN = 7  # depth of the measured trees, as drafters' blocks are: a recurrent layer's cost depends on it


@dataclass(frozen=True)
class Choice:
    """The budget to take; 0 where plain decoding is fastest. ``speedup`` [1]: tokens a second over plain decoding's."""

    budget: int
    speedup: float


@torch.inference_mode()
def cost_curve(model: Any, widths: Sequence[int] = WIDTHS, *, context: int = 256, repeats: int = 9) -> dict[int, float]:
    """Seconds of a verify (median) by its number of nodes, without the root; 0 is a step of plain decoding.

    ``context``: tokens committed before. They and the nodes are random: the time does not depend on what they say.
    """
    device = next(model.parameters()).device
    vocabulary = model.config.get_text_config().vocab_size
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(0, vocabulary, (context + max(widths) + 1,), generator=generator).to(device)
    target = target_for(model, (), context + 1, max(widths))
    try:
        target.prefill(ids[:context])
        calls = {width: _verify(target, ids[context : context + width + 1]) for width in widths}
        return medians(calls, repeats, device)
    finally:
        target.close()


def _verify(target: Target, tokens: Tensor) -> Callable[[], object]:
    parents = [node if node % CHAIN else 0 for node in range(len(tokens) - 1)]  # chains below the root
    tree = DraftTree.from_lists(list(range(len(parents))), parents, device=tokens.device)
    depths, mask = tree.node_depths(), tree.ancestor_mask()
    return lambda: target.verify(tokens, depths, mask)


def medians(calls: Mapping[int, Callable[[], object]], repeats: int, device: torch.device) -> dict[int, float]:
    """Median seconds of every call. They take turns, so that whatever slows the machine down slows all."""
    seconds: dict[int, list[float]] = {name: [] for name in calls}
    for turn in range(repeats + 1):
        for name, call in calls.items():
            start = perf_counter()
            call()
            if device.type == "cuda":
                torch.cuda.synchronize(device)
            if turn:  # the first call of everything is slow
                seconds[name].append(perf_counter() - start)
    return {name: statistics.median(found) for name, found in seconds.items()}


def acceptance_curve(paths: Sequence[Sequence[int]], widths: Sequence[int] = WIDTHS) -> dict[int, float]:
    """Tokens a step by budget, from the paths of steps whose trees had at least so many nodes.

    A tree's first nodes are the tree of a smaller budget, so a path ends there where it leaves them.
    """
    return {
        width: statistics.fmean(sum(node <= width for node in path) for path in paths) if paths else 1.0
        for width in widths
    }


def pick_budget(costs: Mapping[int, float], acceptance: Mapping[int, float], rest: float) -> Choice:
    """The budget with most tokens a second.

    Args:
        costs: seconds of a verify by budget, 0 among them.
        acceptance: tokens a step by budget.
        rest: seconds that every step with a tree takes besides: draft, build, walk, commit.
    """
    plain = 1.0 / costs[0]
    speeds = {0: plain} | {b: acceptance[b] / (costs[b] + rest) for b in costs if b and b in acceptance}
    best = max(speeds, key=lambda budget: speeds[budget])
    return Choice(best, speeds[best] / plain)


def calibrate(
    model: Any,
    drafter: Drafter,
    prompts: Sequence[Any],
    *,
    widths: Sequence[int] = WIDTHS,
    max_new_tokens: int = 64,
    repeats: int = 9,
) -> Choice:
    """Measure ``model`` and ``drafter`` on ``prompts`` (token ids each) and pick the budget.

    The prompts should be such as will come, in the chat template where there is one. Arguments and errors are those of
    ``generate``.
    """
    paths: list[list[int]] = []
    rest = context = steps = 0.0
    for prompt in prompts:
        found = generate(model, drafter, prompt, budget=max(widths), max_new_tokens=max_new_tokens)
        paths += found.paths
        rest += sum(found.seconds[stage] for stage in ("draft", "build", "walk", "commit"))
        context += found.steps * (len(torch.as_tensor(prompt).flatten()) + len(found.tokens) / 2)
        steps += found.steps
    if not steps:
        return Choice(0, 1.0)
    costs = cost_curve(model, widths, context=round(context / steps), repeats=repeats)
    return pick_budget(costs, acceptance_curve(paths, widths), rest / steps)
