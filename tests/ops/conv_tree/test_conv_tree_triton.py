"""The kernels of the tree convolution against the specification, on pools of windows."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_devices import DEVICE, KERNEL_DEVICES
from pooled_trees import SHAPES, random_paths, random_trees
from torch import Tensor

from drafttree.ops.ancestors import words_to_mask
from drafttree.ops.conv_tree import commit_tree_windows, conv_trees
from drafttree.ops.conv_tree.naive import conv_paths
from drafttree.ops.conv_tree.paged import commit_windows_naive, conv_pooled_naive


def case(
    counts: list[int],
    rows: int,
    *,
    shape: str = "mixed",
    channels: int = 20,
    dtype: torch.dtype = torch.float32,
    seed: int = 0,
) -> dict[str, Any]:
    """Arguments, with NaN in rows of padding and in windows that nobody has, and the trees beside them."""
    generator = torch.Generator().manual_seed(seed)
    trees = random_trees(counts, rows, shape, seed)
    x = torch.randn(len(counts), rows, channels, generator=generator)
    for request, count in enumerate(counts):
        x[request, count:] = float("nan")
    slots = torch.randperm(len(counts) + 1, generator=generator)[: len(counts)].to(torch.int32)
    window = torch.full((len(counts) + 1, channels, 3), float("nan"))
    window[slots.long()] = torch.randn(len(counts), channels, 3, generator=generator)
    weight = torch.randn(channels, 4, generator=generator)
    found = {"rows": x.to(dtype), "window": window.to(dtype), "slots": slots, "weight": weight.to(dtype)}
    return found | {"taps": trees.taps, "trees": trees}


def kernels() -> Any:
    return pytest.importorskip("drafttree.ops.conv_tree.triton")


def close(found: Tensor, expected: Tensor, counts: list[int], limit: float) -> bool:
    """Within ``limit``, relative for large values, at all rows in use."""
    pairs = [(found[b, :n].double(), expected[b, :n].double()) for b, n in enumerate(counts)]
    return all(bool(((f - e).abs() <= limit * e.abs().clamp_min(1.0)).all()) for f, e in pairs)


def test_the_specification_is_the_convolution_along_paths() -> None:
    arguments = case([9, 4], 9, dtype=torch.float64)
    trees = arguments.pop("trees")
    mask = words_to_mask(trees.ancestors, trees.counts)
    window = arguments["window"][arguments["slots"].long()].transpose(1, 2)
    expected = conv_paths(arguments["rows"], window, arguments["weight"], mask)
    assert close(conv_pooled_naive(**arguments), expected, [9, 4], 1e-12)


@pytest.mark.parametrize("device", KERNEL_DEVICES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("shape", SHAPES)
def test_kernel_is_the_specification(shape: str, dtype: torch.dtype, device: str) -> None:
    arguments = case([17, 1, 9], 17, shape=shape, dtype=dtype)
    del arguments["trees"]
    found = kernels().conv_pooled(**{name: part.to(device) for name, part in arguments.items()}, channels=16).cpu()
    # two roundings, each of a unit in the last place: the interpreter cuts digits off
    limit = {torch.float32: 1e-5, torch.bfloat16: 2**-6, torch.float16: 2**-9}[dtype]
    assert close(found, conv_pooled_naive(**arguments), [17, 1, 9], limit)


def test_a_wrong_tap_is_seen() -> None:
    arguments = case([17], 17, shape="star")
    del arguments["trees"]
    expected = conv_pooled_naive(**arguments)
    arguments["taps"][0, 9, 0] = 3
    found = kernels().conv_pooled(**{name: part.to(DEVICE) for name, part in arguments.items()}).cpu()
    assert not close(found, expected, [17], 1e-3)


@settings(max_examples=8, deadline=None)
@given(
    counts=st.lists(st.integers(1, 20), min_size=1, max_size=3), seed=st.integers(0, 2**16), longest=st.integers(1, 6)
)
def test_any_batch(counts: list[int], seed: int, longest: int) -> None:
    arguments = case(counts, 20, channels=5, seed=seed)
    trees = arguments.pop("trees")
    found = kernels().conv_pooled(**{name: part.to(DEVICE) for name, part in arguments.items()}).cpu()
    assert close(found, conv_pooled_naive(**arguments), counts, 1e-5)
    paths, lengths = random_paths(trees, longest, seed)
    rows = torch.stack([arguments["rows"], -arguments["rows"]])
    window = torch.stack([arguments["window"], 2 * arguments["window"]])
    slots = arguments["slots"]
    slots[0] = slots[0] if seed % 2 else -1
    expected = window.clone()
    commit_windows_naive(rows, expected, slots, paths, lengths)
    for kept in (window.clone(), window.clone().permute(0, 1, 3, 2).contiguous().permute(0, 1, 3, 2)):
        moved = kept.to(DEVICE)
        kernels().commit_windows(rows.to(DEVICE), moved, *(part.to(DEVICE) for part in (slots, paths, lengths)))
        assert torch.equal(moved.cpu().nan_to_num(9), expected.nan_to_num(9))


def test_picks_by_device() -> None:
    arguments = case([3], 4)
    trees = arguments.pop("trees")
    assert torch.equal(conv_trees(**arguments)[:, :3], conv_pooled_naive(**arguments)[:, :3])
    rows, window = arguments["rows"][None], arguments["window"][None]
    expected = window.clone()
    paths, lengths = random_paths(trees, 3)
    commit_tree_windows(rows, window, arguments["slots"], paths, lengths)
    commit_windows_naive(rows, expected, arguments["slots"], paths, lengths)
    assert torch.equal(window.nan_to_num(9), expected.nan_to_num(9))
