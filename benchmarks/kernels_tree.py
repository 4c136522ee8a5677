"""Times of the kernels that make, walk and commit trees: python benchmarks/kernels_tree.py [--tune] [--smoke]

On a GPU, the sizes of Qwen3.6-27B: vocabulary 248320, drafter block 16, 16 attention layers of 4 KV heads x 256, block
size 16. A time is the median over replays of a CUDA graph that holds several calls, each on inputs of its own, so many
that they do not fit the cache together; it is divided by the calls. Logits are bfloat16 noise with a few likely tokens
a position. ``--tune`` also tries other launch shapes. ``--smoke`` runs tiny sizes once, without a graph, in Triton's
interpreter where there is no GPU; its times mean nothing and nothing is written unless ``--output`` is given.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import os
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from drafttree.bench.script import run_script
from drafttree.errors import UserError
from drafttree.files import write_atomically

RESULT = Path(__file__).parent / "results" / "kernels" / "tree.json"
CACHE_BYTES = 200e6  # of inputs a graph goes through: several times an L2 cache
REPLAYS = 200
PATH = [0, 1, 3, 7, 8, 15]  # six rows, off the front from the third on


@dataclass(frozen=True)
class Sizes:
    vocab: int = 248320
    levels: int = 15
    rows: int = 64
    batches: tuple[int, ...] = (1, 16)
    layers: int = 16
    heads: int = 4
    width: int = 512
    block_size: int = 16
    blocks: int = 256
    choices: int = 64


TINY = Sizes(vocab=500, levels=6, rows=16, batches=(1, 2), layers=2, heads=1, width=8, blocks=12, choices=3)


@dataclass(frozen=True)
class Case:
    """One measured call.

    Attributes:
        name: what is measured.
        limit: microseconds it should stay under, None where it is only for insight.
        make: makes the inputs of one call and returns the call, which takes launch options.
        bytes: read by a call, for the number of copies.
        tunable: launch options to try, each with its values.
    """

    name: str
    limit: float | None
    make: Callable[[], Callable[..., None]]
    bytes: float
    tunable: dict[str, list[int]] = field(default_factory=dict)


def draft_logits(batch: int, sizes: Sizes, device: str) -> torch.Tensor:
    """[B, L, V] bfloat16: noise, and eight likely tokens a position."""
    logits = 1.5 * torch.randn(batch, sizes.levels, sizes.vocab, device=device)
    likely = torch.randint(0, sizes.vocab, (batch, sizes.levels, 8), device=device)
    return logits.scatter_(-1, likely, 8 + 4 * torch.rand(likely.shape, device=device)).bfloat16()


def build_cases(sizes: Sizes, device: str) -> Iterator[Case]:
    from drafttree.ops.tree_build import TreeTensors
    from drafttree.ops.tree_build.triton import build_trees_triton
    from drafttree.ops.tree_build.triton_candidates import rank_candidates_triton

    ranking = {"block": [2048, 4096, 8192], "scan_warps": [4, 8], "pick_warps": [4, 8, 16]}
    for batch, limit in zip(sizes.batches, (60.0, 250.0), strict=True):
        count = min(sizes.rows - 1, sizes.vocab)

        def inputs(batch: int = batch) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, TreeTensors]:
            anchors = torch.zeros(batch, dtype=torch.int32, device=device)
            budgets = torch.full((batch,), sizes.rows - 1, dtype=torch.int32, device=device)
            return draft_logits(batch, sizes, device), anchors, budgets, TreeTensors.empty(batch, sizes.rows, 3, device)

        def whole(inputs: Callable[..., Any] = inputs, count: int = count) -> Callable[..., None]:
            logits, anchors, budgets, out = inputs()

            def call(warps: int | None = None, **options: int) -> None:
                tokens, scores = rank_candidates_triton(logits, count, **options)
                build_trees_triton(anchors, tokens, scores, budgets, None, sizes.levels, out, warps=warps)

            return call

        def ranks(inputs: Callable[..., Any] = inputs, count: int = count) -> Callable[..., None]:
            logits, *_ = inputs()

            def call(**options: int) -> None:
                rank_candidates_triton(logits, count, **options)

            return call

        def tree(inputs: Callable[..., Any] = inputs, count: int = count) -> Callable[..., None]:
            logits, anchors, budgets, out = inputs()
            tokens, scores = rank_candidates_triton(logits, count)

            def call(**options: int) -> None:
                build_trees_triton(anchors, tokens, scores, budgets, None, sizes.levels, out, **options)

            return call

        size = 2.0 * batch * sizes.levels * sizes.vocab
        yield Case(f"logits to trees, B={batch}", limit, whole, size)
        yield Case(f"  candidates, B={batch}", None, ranks, size, ranking)
        yield Case(f"  trees, B={batch}", None, tree, CACHE_BYTES / 8, {"warps": [1, 2, 4]})


def commit_cases(sizes: Sizes, device: str) -> Iterator[Case]:
    from drafttree.ops.kv_commit import PagedCaches
    from drafttree.ops.kv_commit.triton import commit_paged_rows_triton
    from drafttree.ops.tree_walk import Walks
    from drafttree.ops.tree_walk.triton import walk_trees_triton

    def setup() -> tuple[Callable[[], None], Callable[..., None]]:
        """The walk along ``PATH`` and the commit of what it found."""
        integers: dict[str, Any] = {"dtype": torch.int32, "device": device}
        tokens = torch.arange(sizes.rows, **integers)[None]
        parents = torch.full((1, sizes.rows), 0, **integers)
        choices = torch.full((1, sizes.rows), -1, dtype=torch.int64, device=device)
        for above, below in itertools.pairwise(PATH):
            parents[0, below] = above
            choices[0, above] = below
        counts = torch.full((1,), sizes.rows, **integers)
        shape = (sizes.blocks, sizes.heads, sizes.block_size, sizes.width)
        layers = [torch.randn(shape, device=device).bfloat16() for _ in range(sizes.layers)]
        caches = PagedCaches.of(layers)
        places = torch.randperm(sizes.blocks, device=device)[: math.ceil(sizes.rows / sizes.block_size)]
        slots = places[:, None] * sizes.block_size + torch.arange(sizes.block_size, device=device)
        slots = slots.flatten()[None, : sizes.rows].contiguous()
        out = Walks.empty(1, sizes.levels + 1, device)

        def walk() -> None:
            walk_trees_triton(tokens, parents, counts, choices, out)

        def commit(**options: int) -> None:
            commit_paged_rows_triton(caches, slots, out.paths, out.lengths, **options)

        walk()
        if out.paths[0, : len(PATH)].tolist() != PATH or int(out.lengths[0]) != len(PATH):
            raise RuntimeError(f"the walk found {out.paths.tolist()}")
        return walk, commit

    def together() -> Callable[..., None]:
        walk, commit = setup()

        def call(**options: int) -> None:
            walk()
            commit(**options)

        return call

    moved = 2.0 * len(PATH) * sizes.layers * sizes.heads * sizes.width
    name = f"walk and commit of {len(PATH)} rows, {sizes.layers} layers"
    tunable = {"columns": [16, 32, 64, 128], "warps": [1, 2, 4, 8]}
    yield Case(name, 40.0, together, max(moved, CACHE_BYTES / 8))
    yield Case("  walk", None, lambda: setup()[0], CACHE_BYTES / 8)
    yield Case("  commit", None, lambda: setup()[1], CACHE_BYTES / 8, tunable)


def choice_cases(sizes: Sizes, device: str) -> Iterator[Case]:
    from drafttree.ops.target_choice.triton import choose_tokens_triton

    tunable = {"block": [1024, 2048, 4096], "warps": [4, 8], "programs": [512, 1024, 2048]}

    def make(sampled: bool) -> Callable[..., None]:
        logits = torch.randn(sizes.choices, sizes.vocab, device=device).bfloat16()
        sampling = (None, None, None)
        if sampled:
            numbers = torch.arange(sizes.choices, device=device)
            sampling = (torch.full((sizes.choices,), 0.8, device=device), numbers, numbers)

        def call(**options: int) -> None:
            choose_tokens_triton(logits, *sampling, **options)

        return call

    size = 2.0 * sizes.choices * sizes.vocab
    yield Case(f"greedy choice, {sizes.choices} rows", 35.0, lambda: make(False), size, tunable)
    yield Case(f"sampled choice, {sizes.choices} rows", None, lambda: make(True), size, tunable)


def time_graph(calls: list[Callable[..., None]], options: dict[str, int]) -> list[float]:
    """Microseconds of a call, one number a replay."""
    for call in calls:
        call(**options)  # compiles
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for call in calls:
            call(**options)
    for _ in range(5):
        graph.replay()
    events = [torch.cuda.Event(enable_timing=True) for _ in range(REPLAYS + 1)]
    events[0].record()
    for event in events[1:]:
        graph.replay()
        event.record()
    torch.cuda.synchronize()
    return [1e3 * a.elapsed_time(b) / len(calls) for a, b in itertools.pairwise(events)]


def time_once(calls: list[Callable[..., None]], options: dict[str, int]) -> list[float]:
    """Microseconds of one run, to see that it runs."""
    begin = time.perf_counter()
    calls[0](**options)
    return [1e6 * (time.perf_counter() - begin)]


def measure(case: Case, tune: bool, smoke: bool) -> list[dict[str, Any]]:
    """Records of the case with the default launch shape, and with the others on request."""
    calls = [case.make() for _ in range(1 if smoke else max(1, math.ceil(CACHE_BYTES / case.bytes)))]
    shapes: list[dict[str, int]] = [{}]
    if tune:
        shapes += [dict(zip(case.tunable, values, strict=True)) for values in itertools.product(*case.tunable.values())]
        if smoke:
            shapes = [shapes[0], shapes[-1]]
    records = []
    for options in shapes:
        times = (time_once if smoke else time_graph)(calls, options)
        shown = " ".join(f"{name}={value}" for name, value in options.items())
        middle = statistics.median(times)
        limit = "" if case.limit is None else f"  (at most {case.limit:.0f})"
        print(f"{case.name:<40}{middle:10.1f} us{limit}  {shown}".rstrip(), flush=True)
        spread = {"least_us": round(min(times), 2), "most_us": round(max(times), 2)}
        records.append(
            {
                "name": case.name.strip(),
                "options": options,
                "median_us": round(middle, 2),
                **spread,
                "limit_us": case.limit,
                "calls_a_graph": len(calls),
            }
        )
    return records


def main() -> None:
    parser = argparse.ArgumentParser(description="Times of the kernels that make, walk and commit trees.")
    parser.add_argument("--tune", action="store_true", help="try other launch shapes too")
    parser.add_argument("--smoke", action="store_true", help="tiny sizes, once, on a CPU too; the times mean nothing")
    parser.add_argument("--output", type=Path, help=f"where the record goes (default: {RESULT})")
    arguments = parser.parse_args()
    on_gpu = torch.cuda.is_available()
    if not on_gpu:
        if not arguments.smoke:
            raise UserError("a GPU is needed; --smoke runs without one")
        os.environ["TRITON_INTERPRET"] = "1"  # before Triton is imported
    device, sizes = ("cuda" if on_gpu else "cpu"), (TINY if arguments.smoke else Sizes())
    torch.manual_seed(0)
    records = []
    for case in itertools.chain(build_cases(sizes, device), commit_cases(sizes, device), choice_cases(sizes, device)):
        records += measure(case, arguments.tune, arguments.smoke)
    output = arguments.output or (None if arguments.smoke else RESULT)
    if output is not None:
        import triton

        from drafttree.bench.machine import machine_facts

        machine = {**machine_facts(), "triton": triton.__version__}
        found = {"machine": machine, "sizes": vars(sizes), "smoke": arguments.smoke, "results": records}
        write_atomically(output, json.dumps(found, indent=1) + "\n")
        print(f"written to {output}")


if __name__ == "__main__":
    run_script("kernels_tree", main)
