"""Time tree attention on a GPU: python benchmarks/kernels_attention.py [--tune]

Attention layers of Qwen3.6-27B's shape (16 layers, 24 query and 4 key heads of 256, bfloat16, pages of 16 tokens), one
request, 64 rows, contexts of 1k, 8k and 32k tokens; medians of CUDA-graph replays over all layers, a layer. Beside it
the same rows and keys through FlashAttention 3, causal, where vLLM's copy of it is installed, and through PyTorch's
scaled_dot_product_attention (cuDNN and FlashAttention 2; keys without pages, no mask). --tune tries other tile sizes.
"""

from __future__ import annotations

import argparse
import itertools
import json
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from drafttree.bench.graphs import replay_seconds
from drafttree.bench.machine import machine_facts
from drafttree.bench.script import run_script
from drafttree.errors import UserError
from drafttree.files import write_atomically
from drafttree.ops.tree_build import TreeTensors

LAYERS, HEADS, KEY_HEADS, DIM, SIZE, ROWS = 16, 24, 4, 256, 16, 64


def layers(context: int) -> list[dict[str, Tensor]]:
    """Arguments for every layer: caches of their own, one tree."""
    pages = (context + ROWS + SIZE - 1) // SIZE
    tree = TreeTensors.empty(1, ROWS)
    tree.fill_(0, 1, [1] * (ROWS - 1), [(row - 1) // 3 for row in range(1, ROWS)])
    shared = {
        "table": torch.randperm(pages, device="cuda").to(torch.int32)[None],
        "lengths": torch.tensor([context], dtype=torch.int32, device="cuda"),
        "counts": torch.tensor([ROWS], dtype=torch.int32, device="cuda"),
        "ancestors": tree.ancestors.cuda(),
    }
    return [
        shared
        | {
            "queries": torch.randn(1, ROWS, HEADS, DIM, dtype=torch.bfloat16, device="cuda"),
            "cache": torch.randn(pages, KEY_HEADS, SIZE, 2 * DIM, dtype=torch.bfloat16, device="cuda"),
        }
        for _ in range(LAYERS)
    ]


def dense_calls(context: int) -> list[Callable[[], object]]:
    """PyTorch's attention over as many keys."""
    shape = (1, KEY_HEADS, context + ROWS, DIM)
    calls = []
    for _ in range(LAYERS):
        queries = torch.randn(1, HEADS, ROWS, DIM, dtype=torch.bfloat16, device="cuda")
        keys, values = (torch.randn(shape, dtype=torch.bfloat16, device="cuda") for _ in range(2))
        calls.append(
            lambda q=queries, k=keys, v=values: torch.nn.functional.scaled_dot_product_attention(
                q, k, v, enable_gqa=True
            )
        )
    return calls


def flash_calls(arguments: list[dict[str, Tensor]], context: int) -> list[Callable[[], object]] | None:
    """vLLM's FlashAttention 3 over the same pages, causal; None where it is not installed."""
    try:
        from vllm.vllm_flash_attn import flash_attn_varlen_func
    except ImportError:
        return None
    starts = torch.tensor([0, ROWS], dtype=torch.int32, device="cuda")
    used = torch.tensor([context + ROWS], dtype=torch.int32, device="cuda")
    calls = []
    for layer in arguments:
        pages = layer["cache"].transpose(1, 2)  # [blocks, size, heads, 2 x dim]
        keys, values = pages[..., :DIM], pages[..., DIM:]
        calls.append(
            lambda q=layer["queries"][0], k=keys, v=values, t=layer["table"]: flash_attn_varlen_func(
                q, k, v, max_seqlen_q=ROWS, cu_seqlens_q=starts, max_seqlen_k=context + ROWS, seqused_k=used,
                causal=True, block_table=t, fa_version=3,
            )
        )  # fmt: skip
    return calls


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/kernels/attention.json"))
    parser.add_argument("--tune", action="store_true")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        raise UserError("kernels_attention: found no CUDA device, expected one")
    from drafttree.ops.tree_attention.triton import TILES, Tiles, attend

    rows = []
    for context in (1024, 8192, 32768):
        arguments = layers(context)
        variants: list[tuple[Tiles, int | None]] = [(TILES[DIM], None)]
        if options.tune:
            variants += [(TILES[DIM], splits) for splits in (8, 16, 32)]
            variants += [(Tiles(*size), None) for size in itertools.product((64, 128), (32, 64), (4, 8), (2, 3))]
        found: dict[str, float] = {}
        for tiles, splits in variants:
            calls = [lambda a=a, t=tiles, s=splits: attend(**a, tiles=t, splits=s) for a in arguments]
            try:
                found[f"{tiles}, splits {splits}"] = replay_seconds(calls, repeats=20)
            except Exception as error:  # a tile that does not fit into shared memory
                print(f"{tiles}: {type(error).__name__}")
        first = f"{TILES[DIM]}, splits None"
        row = {"context": context, "tree_attention_us": round(1e6 * found[first], 2)}
        flash = flash_calls(arguments, context)
        if flash:
            row["flash_attention_3_us"] = round(1e6 * replay_seconds(flash), 2)
        for backend in (SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION):
            with sdpa_kernel(backend):
                try:
                    row[f"{backend.name.lower()}_us"] = round(1e6 * replay_seconds(dense_calls(context)), 2)
                except RuntimeError as error:
                    print(f"{backend.name}: {error}")
        best = sorted(found, key=lambda name: found[name])[:5]
        row["best"] = {name: round(1e6 * found[name], 2) for name in best}
        rows.append(row)
        print(json.dumps(row))
    write_atomically(
        options.out, json.dumps({"machine": machine_facts(), "rows": ROWS, "layers": rows}, indent=1) + "\n"
    )


if __name__ == "__main__":
    run_script("kernels_attention", main)
