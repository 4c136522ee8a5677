"""Time the Gated DeltaNet kernels on a GPU: python benchmarks/kernels_gdn.py [--tune]

Qwen3.6-27B's shape: 48 layers, 16 key and 48 value heads of 128, 10240 convolution channels, bfloat16 rows, float32
states. Medians of CUDA-graph replays over all layers, each with a state of its own, so that none is read from the
cache; microseconds a layer for verify and convolution, of all layers for the commits. --tune tries other sizes of a
program.
"""

from __future__ import annotations

import argparse
import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from drafttree.bench.graphs import replay_seconds
from drafttree.bench.machine import machine_facts
from drafttree.bench.script import run_script
from drafttree.errors import UserError
from drafttree.files import write_atomically
from drafttree.ops.tree_build.tensors import TreeTensors

LAYERS, KEY_HEADS, HEADS, DIM, CHANNELS, TAPS = 48, 16, 48, 128, 10240, 3
PATH = [0, 1, 4, 9, 17, 24]  # a path of six, off the front of the tree


def trees(batch: int, rows: int) -> TreeTensors:
    """Breadth-first trees, two to three children a node, on the GPU."""
    made = TreeTensors.empty(batch, rows)
    for request in range(batch):
        made.fill_(request, 1, [1] * (rows - 1), [(2 * row - 1) // 5 for row in range(1, rows)])
    return TreeTensors(**{name: part.cuda() for name, part in vars(made).items()})


class Layers:
    """Random rows, states and windows of all layers."""

    def __init__(self, batch: int, rows: int) -> None:
        def normal(*shape: int, dtype: torch.dtype = torch.bfloat16) -> Tensor:
            return torch.randn(*shape, device="cuda", dtype=dtype)

        self.trees = trees(batch, rows)
        self.rows = normal(LAYERS, batch, rows, CHANNELS)
        keys = KEY_HEADS * DIM
        shape = (LAYERS, batch, rows, -1, DIM)
        self.q = self.rows[..., :keys].unflatten(-1, shape[-2:])
        self.k = self.rows[..., keys : 2 * keys].unflatten(-1, shape[-2:])
        self.v = self.rows[..., 2 * keys :].unflatten(-1, shape[-2:])
        self.a, self.b = normal(LAYERS, batch, rows, HEADS) - 4, normal(LAYERS, batch, rows, HEADS)
        self.a_log, self.dt_bias = (normal(LAYERS, HEADS, dtype=torch.float32) for _ in range(2))
        self.state = normal(LAYERS, batch, HEADS, DIM, DIM, dtype=torch.float32)
        self.window = normal(LAYERS, batch, CHANNELS, TAPS)
        self.weight = normal(LAYERS, CHANNELS, TAPS + 1)
        self.slots = torch.arange(batch, dtype=torch.int32, device="cuda")
        self.paths = torch.tensor([PATH] * batch, dtype=torch.int32, device="cuda")
        self.lengths = torch.full((batch,), len(PATH), dtype=torch.int32, device="cuda")

    def verify(self, **options: Any) -> list[Callable[[], object]]:
        from drafttree.ops.gated_delta_tree.triton import verify_pooled

        t = self.trees
        return [
            lambda i=i: verify_pooled(
                self.q[i], self.k[i], self.v[i], self.a[i], self.b[i], self.a_log[i], self.dt_bias[i], self.state[i],
                self.slots, t.ancestors, t.depths, t.counts, **options,
            )
            for i in range(LAYERS)
        ]  # fmt: skip

    def replay(self, **options: Any) -> list[Callable[[], object]]:
        from drafttree.ops.gated_delta_tree.triton_replay import replay_pooled

        return [
            lambda: replay_pooled(
                self.k, self.v, self.a, self.b, self.a_log, self.dt_bias, self.state, self.slots, self.paths,
                self.lengths, **options,
            )
        ]  # fmt: skip

    def conv(self, **options: Any) -> list[Callable[[], object]]:
        from drafttree.ops.conv_tree.triton import conv_pooled

        return [
            lambda i=i: conv_pooled(
                self.rows[i], self.window[i], self.slots, self.weight[i], self.trees.taps, **options
            )
            for i in range(LAYERS)
        ]

    def windows(self, **options: Any) -> list[Callable[[], object]]:
        from drafttree.ops.conv_tree.triton import commit_windows

        return [lambda: commit_windows(self.rows, self.window, self.slots, self.paths, self.lengths, **options)]


def variants(names: list[str], *values: tuple[Any, ...]) -> list[dict[str, Any]]:
    return [dict(zip(names, chosen, strict=True)) for chosen in itertools.product(*values)]


def time_all(make: Callable[..., list[Callable[[], object]]], options: list[dict[str, Any]]) -> dict[str, Any]:
    """Microseconds with the defaults, and the best five of ``options``."""
    found = {"us": round(1e6 * replay_seconds(make(), repeats=20), 2)}
    tried = {}
    for chosen in options:
        try:
            tried[str(chosen)] = round(1e6 * replay_seconds(make(**chosen), repeats=10), 2)
        except Exception as error:  # sizes that do not fit into a multiprocessor
            print(f"{chosen}: {type(error).__name__}")
    return found | {"best": dict(sorted(tried.items(), key=lambda item: item[1])[:5])} if options else found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/kernels/gdn.json"))
    parser.add_argument("--tune", action="store_true")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        raise UserError("kernels_gdn: found no CUDA device, expected one")
    from drafttree.ops.gated_delta_tree.triton import Blocks

    blocks = [
        Blocks(*sizes, precision=precision)
        for sizes, precision in itertools.product(
            itertools.product((16, 32, 64), (32, 64, 128), (4, 8), (2,)), ("tf32",)
        )
    ]
    result: dict[str, Any] = {"machine": machine_facts()}
    for batch, rows in ((1, 32), (1, 64), (1, 128), (4, 32)):
        layers = Layers(batch, rows)
        tune = [{"blocks": b} for b in blocks] if options.tune and (batch, rows) in ((1, 64), (1, 128)) else []
        result[f"verify, batch {batch}, {rows} rows, a layer"] = time_all(layers.verify, tune)
        if (batch, rows) == (1, 64):
            three = [{"blocks": Blocks(terms=3)}, {"blocks": Blocks(precision="tf32x3")}] if options.tune else []
            result["verify, 64 rows, more digits"] = time_all(layers.verify, three)
            tune = variants(["values", "warps"], (8, 16, 32, 64), (1, 2, 4)) if options.tune else []
            result["commit of 6 rows, all layers"] = time_all(layers.replay, tune)
            tune = variants(["channels", "warps"], (256, 512, 1024, 2048), (1, 4, 8)) if options.tune else []
            result["convolution, 64 rows, a layer"] = time_all(layers.conv, tune)
            result["commit of windows, all layers"] = time_all(layers.windows, tune)
        print(json.dumps({name: found for name, found in result.items() if name != "machine"}))
    write_atomically(options.out, json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    run_script("kernels_gdn", main)
