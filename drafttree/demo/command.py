"""``drafttree demo``: twelve prompts, three methods, one table and one tree."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import Progress

from drafttree.bench.machine import machine_facts
from drafttree.bench.offline import accepted, record_drafts
from drafttree.bench.report import method_table, summarise
from drafttree.bench.runs import Method, Run, run
from drafttree.demo.cache import default_cache
from drafttree.demo.default_drafter import default_drafter
from drafttree.demo.drawing import draw_tree
from drafttree.demo.prompts import HUMANEVAL, Prompt, demo_prompts
from drafttree.demo.target import NAME, demo_target
from drafttree.drafter.loading import HUB_ID, load_drafter
from drafttree.errors import UserError
from drafttree.files import check_writable, write_atomically
from drafttree.progress import progress_bar
from drafttree.sampling import SamplingParams
from drafttree.training.prompts import chat_ids
from drafttree.transformers.divergence import Divergence, first_divergence
from drafttree.transformers.loading import load_target

GREEDY = SamplingParams()
SEEDED = SamplingParams(temperature=0.8, top_p=0.95, seed=2026)


@dataclass(frozen=True)
class Compared:
    """One prompt decoded by the three methods with the same options; the first is plain."""

    prompt: Prompt
    sampling: SamplingParams
    runs: dict[str, Run]
    differences: dict[str, Divergence | None]

    def as_json(self) -> dict[str, Any]:
        """Raw numbers; the prompt by its name alone."""
        return {
            "source": self.prompt.source,
            "prompt": self.prompt.name,
            "sampling": self.sampling.model_dump(),
            "runs": {label: run.as_json() for label, run in self.runs.items()},
            "differences": {
                label: None if difference is None else difference.as_json()
                for label, difference in self.differences.items()
            },
        }


def run_demo(
    drafter: str | None, cache_dir: Path | None, *, budget: int, max_new_tokens: int, json_file: Path | None
) -> None:
    """Fetch what is missing, decode, and print. UserError for anything that cannot be used or written."""
    if budget < 1:
        raise UserError.field("demo", "budget", budget, "an integer >= 1")
    if max_new_tokens < 2:
        raise UserError.field("demo", "max_new_tokens", max_new_tokens, "an integer >= 2")
    if json_file is not None:
        check_writable(json_file)
    console, cache = Console(), cache_dir or default_cache()
    place = drafter or str(default_drafter())
    if not Path(place).is_dir() and not HUB_ID.fullmatch(place):  # told before the target is fetched
        raise UserError(f"{place}: no such directory, and not a hub id such as owner/name")
    directory = demo_target(cache, console)
    prompts = demo_prompts(cache)
    model, tokenizer = load_target(directory)
    network = load_drafter(place, model)
    console.print(
        f"target: {NAME}, float32, {torch.get_num_threads()} threads; drafter: {place}; "
        f"{len(prompts)} prompts in the chat template"
    )
    methods = [Method("plain"), Method("chain"), Method("tree", budget)]
    with progress_bar(Console(stderr=True)) as progress:
        decode = Comparison(model, network, tokenizer, methods, progress)
        decode.warm_up(prompts[0])
        greedy = decode.all(prompts, GREEDY, max_new_tokens, "greedy")
        seeded = decode.all(prompts, SEEDED, max_new_tokens // 2, "sampled with a seed")
    _print_tables(console, methods, greedy, seeded)
    shown = next(c for c in greedy if c.prompt.source == HUMANEVAL)
    _print_tree(console, decode, shown, budget)
    if json_file is not None:
        write_atomically(json_file, json.dumps(_results(place, greedy + seeded), indent=1) + "\n")
        console.print(f"raw results: {json_file}")


class Comparison:
    """Decodes prompts with several methods, one after the other on each prompt, so that all meet the same machine."""

    def __init__(self, model: Any, drafter: Any, tokenizer: Any, methods: list[Method], progress: Progress) -> None:
        self.model, self.drafter, self.tokenizer = model, drafter, tokenizer
        self.methods, self.progress = methods, progress

    def ids(self, prompt: Prompt) -> torch.Tensor:
        """[1, T] the prompt in the chat template."""
        return torch.tensor([chat_ids(self.tokenizer, prompt.text)])

    def warm_up(self, prompt: Prompt) -> None:
        """The first call of everything is slow, and belongs to no method."""
        for method in self.methods:
            run(self.model, self.drafter, self.ids(prompt), method, 4, GREEDY)

    def all(self, prompts: list[Prompt], params: SamplingParams, max_new_tokens: int, title: str) -> list[Compared]:
        """Every prompt with every method."""
        task = self.progress.add_task(title, total=len(prompts) * len(self.methods))
        return [self.one(prompt, params, max_new_tokens, task) for prompt in prompts]

    def one(self, prompt: Prompt, params: SamplingParams, max_new_tokens: int, task: Any) -> Compared:
        """One prompt with every method."""
        ids = self.ids(prompt)
        runs: dict[str, Run] = {}
        differences: dict[str, Divergence | None] = {}
        for method in self.methods:
            result = run(self.model, self.drafter, ids, method, max_new_tokens, params)
            first = next(iter(runs.values()), result)
            runs[method.name] = result
            differences[method.name] = first_divergence(self.model, ids, first.tokens, result.tokens, params)
            self.progress.advance(task)
        return Compared(prompt, params, runs, differences)


def _print_tables(console: Console, methods: list[Method], greedy: list[Compared], seeded: list[Compared]) -> None:
    for title, part in (("greedy", greedy), ("temperature 0.8, top-p 0.95, seeded", seeded)):
        labels = [method.name for method in methods]
        summaries = {label: summarise([c.runs[label] for c in part]) for label in labels}
        same = {label: _verdict([c.differences[label] for c in part]) for label in labels[1:]}
        console.print(method_table(summaries, same, f"{title}: {len(part)} prompts; {methods[-1].label}"))
    for compared in greedy + seeded:
        for label, found in compared.differences.items():
            if found is not None:
                kind = "greedy" if compared.sampling.greedy else "seeded"
                console.print(
                    f"{compared.prompt.name}, {kind}, {label}: differs from plain at token {found.position}; "
                    f"the target's own gap there is {found.gap:.2g}, its rounding {found.noise:.2g}: "
                    f"{'a near-tie' if found.near_tie else 'an error'}"
                )


def _verdict(differences: list[Divergence | None]) -> str:
    same = sum(difference is None for difference in differences)
    return "yes" if same == len(differences) else f"no: {same} of {len(differences)}"


def _print_tree(console: Console, decode: Comparison, compared: Compared, budget: int) -> None:
    """The step of one prompt that accepted most, one with a token beside the spine if there is one."""
    output = next(iter(compared.runs.values())).tokens
    drafts = record_drafts(decode.model, decode.drafter, decode.ids(compared.prompt), output, budget)
    steps, at = [], 0
    for length in drafts.lengths(budget):
        tree = drafts.tree(at, budget, True)
        path = accepted(tree, output[at + 1 :])
        steps.append((not set(path) <= set(tree.spine()), len(path), -at, tree, path))
        at += length
    _, _, where, tree, path = max(steps, key=lambda step: step[:3])
    text = decode.tokenizer.decode
    before = text(output[max(0, -where - 12) : -where])
    console.print(f"\none step of {compared.prompt.name}, after {before!r}; * is what the target accepted:")
    console.print(draw_tree(tree, path, text([output[-where]]), lambda token: text([token])))


def _results(drafter: str, compared: list[Compared]) -> dict[str, Any]:
    return {
        "machine": machine_facts(),
        "target": NAME,
        "dtype": "float32",
        "drafter": drafter,
        "prompts": [c.as_json() for c in compared],
    }
