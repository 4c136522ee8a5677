"""Record the demo's target and drafter on HumanEval and MT-Bench: python benchmarks/record_demo_pair.py

Greedy on 30 prompts a set (first turns, chat template), plain, chain and tree live, interleaved; every budget and spine
rule from the record. Then seeded sampling at two temperatures, drafted with the request's noise and without. An
interrupted run goes on where it was; the summary is written at the end.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import torch
from rich.console import Console

from drafttree.bench.cost_curve import best_budget, measure_costs
from drafttree.bench.demo_pair import evenly, greedy_set, sampled_record
from drafttree.bench.machine import machine_facts, weights_digest
from drafttree.bench.pair_summary import summarise_records, summarise_sampled
from drafttree.bench.records import Records
from drafttree.bench.runs import Method, run
from drafttree.bench.script import run_script
from drafttree.demo.cache import default_cache
from drafttree.demo.default_drafter import default_drafter
from drafttree.demo.prompts import HUMANEVAL, MT_BENCH, read_set
from drafttree.demo.target import NAME, demo_target
from drafttree.drafter.loading import load_drafter
from drafttree.files import write_atomically
from drafttree.progress import progress_bar
from drafttree.sampling import SamplingParams
from drafttree.training.prompts import chat_ids
from drafttree.transformers.loading import load_target

SETS = (HUMANEVAL, MT_BENCH)
TEMPERATURES = (0.6, 1.0)
SHARPNESS = (1.0, 0.5)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/demo-pair"))
    parser.add_argument("--drafter", default=None, help="the repository's, unless given")
    parser.add_argument("--cache-dir", type=Path, default=default_cache())
    parser.add_argument("--prompts", type=int, default=30, help="a set")
    parser.add_argument("--sampled-prompts", type=int, default=8, help="a set and temperature")
    parser.add_argument("--max-new-tokens", type=int, default=96)
    parser.add_argument("--budget", type=int, default=8, help="of the live tree")
    parser.add_argument("--spine", default="none", help="of the live tree: full, none or a number")
    parser.add_argument("--threads", type=int, default=None)
    return parser.parse_args()


def main() -> None:
    options = arguments()
    if options.threads:
        torch.set_num_threads(options.threads)
    console = Console(stderr=True)
    place = options.drafter or str(default_drafter())
    model, tokenizer = load_target(demo_target(options.cache_dir, console))
    drafter = load_drafter(place, model)
    spine = {"full": True, "none": False}.get(options.spine)
    methods = [
        Method("plain"),
        Method("chain"),
        Method("tree", options.budget, int(options.spine) if spine is None else spine),
    ]
    settings = {
        "target": NAME,
        "dtype": "float32",
        "drafter_parameters": drafter.summary()["parameters"],
        "drafter_sha256": weights_digest(place),
        "block_size": drafter.config.block_size,
        "max_new_tokens": options.max_new_tokens,
        "live_tree": methods[2].label,
        "threads": torch.get_num_threads(),
    }
    with progress_bar(console) as progress:
        for method in methods:  # the first call of everything is slow
            run(model, drafter, torch.tensor([chat_ids(tokenizer, "Hello")]), method, 8, SamplingParams())
        costs = measure_costs(model, drafter)
        summary = {"settings": settings, "machine": machine_facts(), "costs_ms": costs, "greedy": {}, "sampled": {}}
        for name in SETS:
            prompts = read_set(name, options.cache_dir)
            records = Records(options.out / f"{name}-greedy.jsonl", settings)
            greedy = {p.name: torch.tensor([chat_ids(tokenizer, p.text)]) for p in evenly(prompts, options.prompts)}
            greedy_set(model, drafter, greedy, methods, options.max_new_tokens, records, progress, name)
            found = summarise_records(records.all())
            found["best_budget_by_cost"] = best_budget(costs, found["all"]["offline"])
            summary["greedy"][name] = found
            records = Records(options.out / f"{name}-sampled.jsonl", settings | {"sharpness": SHARPNESS})
            chosen = evenly(prompts, options.sampled_prompts)
            task = progress.add_task(f"{name}, sampled", total=len(chosen) * len(TEMPERATURES))
            for temperature in TEMPERATURES:
                params = SamplingParams(temperature=temperature, seed=7)
                for turn, prompt in enumerate(chosen):
                    key = f"{prompt.name} at {temperature:g}"
                    if key not in records:
                        ids = torch.tensor([chat_ids(tokenizer, prompt.text)])
                        records.add(
                            key,
                            sampled_record(
                                model, drafter, ids, methods, options.max_new_tokens, params, turn, SHARPNESS
                            ),
                        )
                    progress.advance(task)
            summary["sampled"][name] = summarise_sampled(records.all())
    write_atomically(options.out / "summary.json", json.dumps(summary, indent=1) + "\n")
    console.print(f"{options.out / 'summary.json'} is written; tables: python benchmarks/tables.py {options.out}")


if __name__ == "__main__":
    run_script("record_demo_pair", main)
