"""Run the DDTree authors' program beside ours: python benchmarks/peer_ddtree.py CHECKOUT

CHECKOUT is a folder with their code (github liranringel/ddtree, MIT, Ringel and Romano 2026), got by the user; none
of it is here. Both run on the same target, drafter, prompts, budget and dtype, spine=False, one after the other on
every prompt, and are compared by acceptance length of every step and by tokens a second.

Their program needs CUDA, flash-attn and an older Transformers. For this run, without touching their files:
- the drafter's attention call goes to PyTorch's sdpa (is_causal=False) in place of flash-attn; the maths is the same;
- the clock does not wait for CUDA where there is none;
- the cache's crop, called with the length to keep, is given the number of rows to drop, as Transformers 5.24 wants it;
- the packages datasets and loguru, which are not used here, may be missing.
The C++ extension for compacting the cache stays off, as it is unless asked for.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import types
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from transformers import DynamicCache, Qwen3Config

from drafttree.bench.demo_pair import evenly
from drafttree.bench.machine import machine_facts, weights_digest
from drafttree.bench.records import Records
from drafttree.bench.runs import Method, run
from drafttree.bench.script import run_script
from drafttree.demo.cache import default_cache
from drafttree.demo.default_drafter import default_drafter
from drafttree.demo.prompts import HUMANEVAL, MT_BENCH, read_set
from drafttree.demo.target import NAME, demo_target
from drafttree.drafter.loading import load_drafter
from drafttree.errors import UserError
from drafttree.files import write_atomically
from drafttree.progress import progress_bar
from drafttree.sampling import SamplingParams
from drafttree.training.prompts import chat_ids
from drafttree.transformers.loading import load_target
from drafttree.transformers.request import stop_ids


class CroppedByLength(DynamicCache):
    """A cache whose ``crop`` takes the length to keep, as it did before Transformers 5.24."""

    def crop(self, max_length: int) -> None:
        surplus = self.get_seq_length() - max_length
        if surplus > 0:
            super().crop(-surplus)


def load_peer(checkout: Path, drafter: str) -> tuple[Any, Any]:
    """Their ``ddtree`` module, adapted as the head of this file says, and their drafter network."""
    if not (checkout / "ddtree.py").is_file():
        raise UserError(f"{checkout}: found no ddtree.py, expected a checkout of the DDTree authors' program")
    for name, attributes in (("datasets", ("load_dataset", "Features", "Sequence", "Value")), ("loguru", ("logger",))):
        if find_spec(name) is None:
            module = types.ModuleType(name)
            for attribute in attributes:
                setattr(module, attribute, None)
            sys.modules[name] = module
    sys.path.insert(0, str(checkout))
    chain, tree, network = import_module("dflash"), import_module("ddtree"), import_module("model")

    def clock() -> float:
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        return time.perf_counter()

    for module in (chain, tree):
        module.cuda_time = clock
        module.DynamicCache = CroppedByLength
    config = Qwen3Config.from_pretrained(drafter)
    config.block_size = getattr(config, "block_size", None) or config.dflash_config["block_size"]
    model = network.DFlashDraftModel.from_pretrained(
        drafter, config=config, attn_implementation="sdpa", dtype=torch.float32
    )
    return tree, model.eval()


def full_steps(lengths: list[int], max_new_tokens: int, block_size: int) -> list[int]:
    """The steps before the last one that start a whole block before the token limit: those a limit cannot touch."""
    kept, at = [], 1
    for length in lengths[:-1]:
        if at + block_size > max_new_tokens:
            break
        kept.append(length)
        at += length
    return kept


def mean(values: list[int]) -> float:
    return sum(values) / len(values) if values else 0.0


def compare(
    peer: Any, network: Any, target: Any, drafter: Any, ids: torch.Tensor, budget: int, count: int, turn: int
) -> dict[str, Any]:
    """One prompt with both programs."""
    block, stops = drafter.config.block_size, sorted(stop_ids(target))

    def theirs() -> dict[str, Any]:
        start = time.perf_counter()
        result = peer.ddtree_generate(
            model=network, target=target, input_ids=ids, mask_token_id=drafter.config.mask_token_id,
            max_new_tokens=count, block_size=block, stop_token_ids=stops, tree_budget=budget,
        )  # fmt: skip
        seconds = time.perf_counter() - start - result.time_to_first_token
        tokens = result.output_ids[0, result.num_input_tokens :].tolist()
        return {"tokens": tokens, "lengths": result.acceptance_lengths, "seconds": seconds}

    def ours() -> dict[str, Any]:
        result = run(target, drafter, ids, Method("tree", budget, False), count, SamplingParams())
        return {"tokens": result.tokens, "lengths": result.acceptance_lengths, "seconds": result.decode_seconds}

    calls = {"ddtree": theirs, "drafttree": ours}
    order = sorted(calls, reverse=turn % 2 == 1)
    found = {name: calls[name]() for name in order}
    for part in found.values():
        part["full_steps"] = full_steps(part["lengths"], count, block)
        part["tau"] = mean(part["full_steps"])
        part["tokens_per_second"] = (len(part["tokens"]) - 1) / part["seconds"]
    same = found["ddtree"]["tokens"] == found["drafttree"]["tokens"]
    return {**{name: found[name] for name in sorted(found)}, "same_tokens": same}


def summarise(records: list[dict[str, Any]]) -> dict[str, Any]:
    apart = [abs(r["drafttree"]["tau"] / r["ddtree"]["tau"] - 1) for r in records if r["ddtree"]["tau"]]
    totals = {
        name: {
            "tau": round(mean([length for r in records for length in r[name]["full_steps"]]), 4),
            "tokens_per_second": round(
                sum(len(r[name]["tokens"]) - 1 for r in records) / sum(r[name]["seconds"] for r in records), 3
            ),
        }
        for name in ("ddtree", "drafttree")
    }
    return {
        "prompts": len(records),
        "same_tokens": sum(r["same_tokens"] for r in records),
        "same_acceptance_at_every_step": sum(
            r["ddtree"]["full_steps"] == r["drafttree"]["full_steps"] for r in records
        ),
        "largest_relative_difference_of_tau": round(max(apart, default=0.0), 6),
        **totals,
        "speed": round(totals["drafttree"]["tokens_per_second"] / totals["ddtree"]["tokens_per_second"], 4),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkout", type=Path)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/peer-ddtree"))
    parser.add_argument("--drafter", default=None, help="the repository's, unless given")
    parser.add_argument("--cache-dir", type=Path, default=default_cache())
    parser.add_argument("--prompts", type=int, default=5, help="a set")
    parser.add_argument("--max-new-tokens", type=int, default=96)
    parser.add_argument("--budget", type=int, default=16)
    options = parser.parse_args()
    console = Console(stderr=True)
    place = options.drafter or str(default_drafter())
    target, tokenizer = load_target(demo_target(options.cache_dir, console))
    drafter = load_drafter(place, target)
    peer, network = load_peer(options.checkout, place)
    settings = {
        "target": NAME, "dtype": "float32", "drafter_sha256": weights_digest(place), "budget": options.budget,
        "spine": False, "max_new_tokens": options.max_new_tokens, "threads": torch.get_num_threads(),
    }  # fmt: skip
    records = Records(options.out / "records.jsonl", settings)
    chosen = [p for name in (HUMANEVAL, MT_BENCH) for p in evenly(read_set(name, options.cache_dir), options.prompts)]
    with progress_bar(console) as progress:
        task = progress.add_task("DDTree authors' program and ours", total=len(chosen))
        warm = torch.tensor([chat_ids(tokenizer, "Hello")])
        compare(peer, network, target, drafter, warm, options.budget, 8, 0)
        for turn, prompt in enumerate(chosen):
            if prompt.name not in records:
                ids = torch.tensor([chat_ids(tokenizer, prompt.text)])
                found = compare(peer, network, target, drafter, ids, options.budget, options.max_new_tokens, turn)
                records.add(prompt.name, found)
            progress.advance(task)
    summary = {"settings": settings, "machine": machine_facts(), **summarise(records.all())}
    write_atomically(options.out / "summary.json", json.dumps(summary, indent=1) + "\n")
    print(json.dumps(summary, indent=1))


if __name__ == "__main__":
    run_script("peer_ddtree", main)
