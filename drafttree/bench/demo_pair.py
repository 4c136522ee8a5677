"""Measures a target and its drafter on prompt sets: three methods live, every budget and spine from the record."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from rich.progress import Progress

from drafttree.bench.loops import loops
from drafttree.bench.offline import RecordedDrafts, record_drafts
from drafttree.bench.records import Records
from drafttree.bench.runs import Method, Run, run
from drafttree.drafter.drafter import Drafter
from drafttree.sampling import SamplingParams, coupled_scores
from drafttree.transformers.divergence import first_divergence

BUDGETS = (4, 7, 8, 12, 15, 16, 23, 24, 31, 32)  # 7, 15, ... fill rows of eight together with the root
GREEDY = SamplingParams()


def spines(block_size: int) -> dict[str, bool | int]:
    """The three rules that are compared: the whole top-1 chain forced, its first half, nothing."""
    return {"full": True, "partial": (block_size - 1) // 2, "none": False}


def evenly(items: Sequence[Any], count: int) -> list[Any]:
    """``count`` items spread over all of them; all if there are fewer."""
    count = min(count, len(items))
    return [items[i * len(items) // count] for i in range(count)]


def live(
    target: Any,
    drafter: Drafter,
    prompt: torch.Tensor,
    methods: Sequence[Method],
    max_new_tokens: int,
    params: SamplingParams,
    first: int = 0,
) -> dict[str, Run]:
    """Every method on one prompt [1, T], one after the other; ``first`` turns the order."""
    turn = first % len(methods)
    order = [*methods[turn:], *methods[:turn]]
    runs = {method.name: run(target, drafter, prompt, method, max_new_tokens, params) for method in order}
    return {method.name: runs[method.name] for method in methods}


def live_record(target: Any, prompt: torch.Tensor, runs: dict[str, Run], params: SamplingParams) -> dict[str, Any]:
    """Raw numbers of the runs, whether they are the same as plain decoding, and whether the output loops."""
    plain = runs["plain"].tokens
    differences = {
        name: first_divergence(target, prompt, plain, result.tokens, params)
        for name, result in runs.items()
        if name != "plain"
    }
    return {
        "prompt_tokens": prompt.shape[1],
        "loops": loops(plain),
        "runs": {name: result.as_json() for name, result in runs.items()},
        "differences": {name: None if d is None else d.as_json() for name, d in differences.items()},
    }


def offline_record(drafts: RecordedDrafts, block_size: int) -> dict[str, Any]:
    """Acceptance lengths of the chain, and of the tree at every budget and spine rule."""
    return {
        "chain": drafts.lengths(None),
        "trees": {
            name: {str(budget): drafts.lengths(budget, rule) for budget in BUDGETS}
            for name, rule in spines(block_size).items()
        },
    }


def greedy_record(
    target: Any, drafter: Drafter, prompt: torch.Tensor, methods: Sequence[Method], max_new_tokens: int, turn: int
) -> dict[str, Any]:
    """One prompt, greedy: live runs of the methods (plain, chain and one tree) and all trees from the record."""
    runs = live(target, drafter, prompt, methods, max_new_tokens, GREEDY, turn)
    drafts = record_drafts(target, drafter, prompt, runs["plain"].tokens, max(BUDGETS))
    return {
        **live_record(target, prompt, runs, GREEDY),
        "offline": offline_record(drafts, drafter.config.block_size),
    }


def greedy_set(
    target: Any,
    drafter: Drafter,
    prompts: Mapping[str, torch.Tensor],
    methods: Sequence[Method],
    max_new_tokens: int,
    records: Records,
    progress: Progress,
    label: str,
) -> None:
    """A greedy record of every prompt [1, T] of a set, by name, that ``records`` does not hold yet."""
    task = progress.add_task(f"{label}, greedy", total=len(prompts))
    for turn, (name, ids) in enumerate(prompts.items()):
        if name not in records:
            records.add(name, greedy_record(target, drafter, ids, methods, max_new_tokens, turn))
        progress.advance(task)


def sampled_record(
    target: Any,
    drafter: Drafter,
    prompt: torch.Tensor,
    methods: Sequence[Method],
    max_new_tokens: int,
    params: SamplingParams,
    turn: int,
    sharpness: Sequence[float],
) -> dict[str, Any]:
    """One prompt, sampled with a seed: live runs, and all trees from the record, drafted with the noise and without.

    ``sharpness``: values of c of coupled drafting, argmax((log q + g) / c).
    """
    assert params.seed is not None
    seed = params.seed
    runs = live(target, drafter, prompt, methods, max_new_tokens, params, turn)
    output, block = runs["plain"].tokens, drafter.config.block_size
    drafts = record_drafts(target, drafter, prompt, output, max(BUDGETS))
    offline = {"uncoupled": offline_record(drafts, block)}
    for c in sharpness:

        def coupled(logits: torch.Tensor, positions: torch.Tensor, c: float = c) -> torch.Tensor:
            return coupled_scores(logits, positions, seed, params.temperature, sharpness=c)

        drafts = record_drafts(target, drafter, prompt, output, max(BUDGETS), coupled)
        offline[f"coupled, c {c:g}"] = offline_record(drafts, block)
    return {
        "sampling": params.model_dump(),
        **live_record(target, prompt, runs, params),
        "offline": offline,
    }
