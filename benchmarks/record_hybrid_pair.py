"""Record the hybrid pair of fixtures/hybrid_pair: python benchmarks/record_hybrid_pair.py

Greedy, float32, on the first 30 held-out prompts in the chat template: plain, chain and tree live, interleaved; every
budget and spine rule from the record. An interrupted run goes on where it was; the summary is written at the end.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import Any

import torch
from rich.console import Console

from drafttree.bench.cost_curve import best_budget, measure_costs
from drafttree.bench.demo_pair import GREEDY, greedy_set
from drafttree.bench.machine import machine_facts, weights_digest
from drafttree.bench.pair_summary import summarise_records
from drafttree.bench.records import Records
from drafttree.bench.runs import Method, run
from drafttree.bench.script import run_script
from drafttree.drafter.loading import load_drafter
from drafttree.files import write_atomically
from drafttree.progress import progress_bar
from drafttree.training.prompts import chat_ids, read_prompts
from drafttree.transformers.loading import load_target

PAIR = Path(__file__).resolve().parents[1] / "fixtures" / "hybrid_pair"


def pair_module() -> ModuleType:
    """``load.py`` of the pair, which is no package."""
    spec = importlib.util.spec_from_file_location("hybrid_pair_load", PAIR / "load.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def load() -> tuple[Any, Any, Any, dict[str, str | None]]:
    """(model, tokenizer, drafter, digests of their weights), loaded from plain folders as a user's own would be."""
    module = pair_module()
    with TemporaryDirectory() as folder:
        target, drafter = Path(folder) / "target", Path(folder) / "drafter"
        module.write_target(target)
        module.write_drafter(drafter)
        model, tokenizer = load_target(target)
        digests = {"target_sha256": weights_digest(str(target)), "drafter_sha256": weights_digest(str(drafter))}
        return model, tokenizer, load_drafter(drafter, model), digests


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/hybrid-pair"))
    parser.add_argument("--prompts", type=int, default=30)
    parser.add_argument("--max-new-tokens", type=int, default=128)
    parser.add_argument("--budget", type=int, default=8, help="of the live tree")
    parser.add_argument("--threads", type=int, default=None)
    options = parser.parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)
    console = Console(stderr=True)
    model, tokenizer, drafter, digests = load()
    methods = [Method("plain"), Method("chain"), Method("tree", options.budget)]
    settings = {
        "target": "fixtures/hybrid_pair",
        **digests,
        "dtype": "float32",
        "block_size": drafter.config.block_size,
        "max_new_tokens": options.max_new_tokens,
        "live_tree": methods[2].label,
        "threads": torch.get_num_threads(),
    }
    texts = read_prompts([PAIR / "held_out_prompts.jsonl"])[: options.prompts]
    prompts = {f"held-out {i}": torch.tensor([chat_ids(tokenizer, text)]) for i, text in enumerate(texts)}
    with progress_bar(console) as progress:
        for method in methods:  # the first call of everything is slow
            run(model, drafter, prompts["held-out 0"], method, 8, GREEDY)
        costs = measure_costs(model, drafter)
        records = Records(options.out / "held-out-greedy.jsonl", settings)
        greedy_set(model, drafter, prompts, methods, options.max_new_tokens, records, progress, "held-out")
    found = summarise_records(records.all())
    found["best_budget_by_cost"] = best_budget(costs, found["all"]["offline"])
    summary = {"settings": settings, "machine": machine_facts(), "costs_ms": costs, "greedy": {"hybrid": found}}
    write_atomically(options.out / "summary.json", json.dumps(summary | {"sampled": {}}, indent=1) + "\n")
    console.print(f"{options.out / 'summary.json'} is written; tables: python benchmarks/tables.py {options.out}")


if __name__ == "__main__":
    run_script("record_hybrid_pair", main)
