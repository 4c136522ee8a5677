"""Tree attention over pages: the specification against a dense mask, the kernel against the specification."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_devices import DEVICE, KERNEL_DEVICES
from pooled_trees import SHAPES, random_trees
from torch import Tensor
from torch.nn import functional as F

from drafttree.ops.tree_attention import tree_attention, tree_attention_naive


def case(
    counts: list[int],
    lengths: list[int],
    kind: str = "mixed",
    *,
    rows: int | None = None,
    heads: tuple[int, int] = (4, 2),
    dim: int = 64,
    size: int = 16,
    dtype: torch.dtype = torch.float32,
    seed: int = 0,
) -> dict[str, Any]:
    """Arguments of the operation; everything that no row may read is NaN."""
    generator = torch.Generator().manual_seed(seed)
    rows = rows or max(counts)
    pages = max((length + count + size - 1) // size for length, count in zip(lengths, counts, strict=True))
    blocks = torch.randperm(len(counts) * pages, generator=generator)
    table = blocks.view(len(counts), pages).to(torch.int32)
    cache = torch.full((len(blocks) + 1, heads[1], size, 2 * dim), float("nan"))
    queries = torch.full((len(counts), rows, heads[0], dim), float("nan"))
    for b, (length, count) in enumerate(zip(lengths, counts, strict=True)):
        places = torch.arange(length + count)
        used = torch.randn(length + count, heads[1], 2 * dim, generator=generator)
        cache[table[b, places // size].long(), :, places % size] = used
        queries[b, :count] = torch.randn(count, heads[0], dim, generator=generator)
    return {
        "queries": queries.to(dtype),
        "cache": cache.to(dtype),
        "table": table,
        "lengths": torch.tensor(lengths, dtype=torch.int32),
        "counts": torch.tensor(counts, dtype=torch.int32),
        "ancestors": random_trees(counts, rows, kind, seed).ancestors,
    }


def kernel(arguments: dict[str, Any], device: str, **options: Any) -> Tensor:
    attend = pytest.importorskip("drafttree.ops.tree_attention.triton").attend
    moved = {name: value.to(device) for name, value in arguments.items()}
    out: Tensor = attend(**moved, **options).cpu()
    return out


def real_rows(out: Tensor, counts: Tensor) -> Tensor:
    return torch.cat([out[b, :count] for b, count in enumerate(counts.tolist())]).double()


def relative(found: Tensor, expected: Tensor, counts: Tensor) -> float:
    found, expected = real_rows(found, counts), real_rows(expected, counts)
    return float((found - expected).norm() / expected.norm())


def test_the_specification_is_masked_attention() -> None:
    arguments = case([7, 5], [9, 0], dim=8, size=4, dtype=torch.float64)
    found = tree_attention_naive(**arguments)
    for b, (length, count) in enumerate(((9, 7), (0, 5))):
        places = torch.arange(length + count)
        rows = arguments["cache"][arguments["table"][b, places // 4].long(), :, places % 4].transpose(
            0, 1
        )  # [Hkv, T, 2 D]
        bits = arguments["ancestors"][b, :count, 0]
        square = (bits[:, None] >> torch.arange(count)) & 1
        mask = torch.cat([torch.ones(count, length), square], 1).bool()
        keys, values = (part.repeat_interleave(2, dim=0) for part in rows.split(8, dim=-1))
        expected = F.scaled_dot_product_attention(
            arguments["queries"][b, :count].transpose(0, 1), keys, values, attn_mask=mask
        )
        assert torch.allclose(found[b, :count], expected.transpose(0, 1), atol=1e-12)


@pytest.mark.parametrize("device", KERNEL_DEVICES)
@pytest.mark.parametrize("kind", SHAPES)
def test_kernel_is_the_specification(kind: str, device: str) -> None:
    arguments = case([33, 1, 20], [70, 37, 0], kind)
    assert relative(kernel(arguments, device), tree_attention_naive(**arguments), arguments["counts"]) < 1e-5


@pytest.mark.parametrize("device", KERNEL_DEVICES)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize(("heads", "dim"), [((6, 1), 64), ((2, 2), 128), ((6, 1), 256)])
def test_narrow_types_and_heads(heads: tuple[int, int], dim: int, dtype: torch.dtype, device: str) -> None:
    arguments = case([17, 9], [40, 64], heads=heads, dim=dim, dtype=dtype)
    exact = {n: v.double() if v.is_floating_point() else v for n, v in arguments.items()}
    limit = {torch.bfloat16: 6e-3, torch.float16: 1e-3}[dtype]
    assert relative(kernel(arguments, device), tree_attention_naive(**exact), arguments["counts"]) < limit


@pytest.mark.parametrize("splits", [1, 2, 5])
def test_parts_of_the_text_join(splits: int) -> None:
    arguments = case([5], [200])
    found = kernel(arguments, DEVICE, splits=splits)
    assert relative(found, tree_attention_naive(**arguments), arguments["counts"]) < 1e-5


def test_one_wrong_bit_is_seen() -> None:
    arguments = case([33], [10], "star")
    expected = tree_attention_naive(**arguments)
    arguments["ancestors"][0, 32, 0] |= 1 << 7  # a sibling
    assert relative(kernel(arguments, DEVICE), expected, arguments["counts"]) > 1e-3


@settings(max_examples=10, deadline=None)
@given(
    counts=st.lists(st.integers(1, 65), min_size=1, max_size=3),
    size=st.sampled_from([1, 8, 16, 48]),
    seed=st.integers(0, 2**16),
    data=st.data(),
)
def test_any_batch(counts: list[int], size: int, seed: int, data: st.DataObject) -> None:
    lengths = data.draw(st.lists(st.integers(0, 130), min_size=len(counts), max_size=len(counts)))
    arguments = case(counts, lengths, rows=65, size=size, heads=(2, 1), seed=seed)
    assert relative(kernel(arguments, DEVICE), dense(**arguments), arguments["counts"]) < 1e-5


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("count", [65, 129, 257])
def test_large_trees_and_the_same_bits_again(count: int) -> None:
    arguments = case([count, 3], [1000, 4000], heads=(24, 4), dim=256, dtype=torch.bfloat16)
    found = kernel(arguments, "cuda")
    exact = {n: v.double().cuda() if v.is_floating_point() else v.cuda() for n, v in arguments.items()}
    assert relative(found, dense(**exact).cpu(), arguments["counts"]) < 6e-3
    for _ in range(5):
        assert torch.equal(kernel(arguments, "cuda")[0, :count], found[0, :count])


def dense(queries: Tensor, cache: Tensor, table: Tensor, lengths: Tensor, counts: Tensor, ancestors: Tensor) -> Tensor:
    """The specification with a matrix product a request, for sizes at which it would take minutes."""
    dim, size, group = queries.shape[-1], cache.shape[2], queries.shape[2] // cache.shape[1]
    out = torch.zeros_like(queries)
    for b, (length, count) in enumerate(zip(lengths.tolist(), counts.tolist(), strict=True)):
        places = torch.arange(length + count, device=cache.device)
        rows = cache[table[b, places // size].long(), :, places % size].transpose(0, 1).repeat_interleave(group, dim=0)
        at = torch.arange(count, device=cache.device)
        square = (ancestors[b, :count][:, at // 32] >> (at % 32)) & 1
        mask = torch.cat([square.new_ones(count, length), square], 1).bool()
        found = F.scaled_dot_product_attention(
            queries[b, :count].transpose(0, 1), rows[..., :dim], rows[..., dim:], attn_mask=mask
        )
        out[b, :count] = found.transpose(0, 1)
    return out


def test_picks_by_device() -> None:
    arguments = case([3], [4], dim=8, size=4)
    assert relative(dense(**arguments), tree_attention_naive(**arguments), arguments["counts"]) < 1e-6
    assert torch.equal(tree_attention(**arguments), tree_attention_naive(**arguments))
