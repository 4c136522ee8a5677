"""The kernels of Gated DeltaNet trees against the specification in float64, on pools of states."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_devices import DEVICE, KERNEL_DEVICES
from pooled_trees import SHAPES, random_paths, random_trees
from torch import Tensor

from drafttree.ops.gated_delta_tree import replay_trees, verify_trees
from drafttree.ops.gated_delta_tree.naive import gated_delta_paths, gates
from drafttree.ops.gated_delta_tree.paged import replay_pooled_naive, verify_pooled_naive

KEY_HEADS, HEADS, DIM = 1, 2, 32
NAN = float("nan")
# of bfloat16 results: rounding alone is 1.7e-3; the interpreter cuts digits off, which is twice that
BFLOAT16 = 3e-3 if DEVICE == "cuda" else 6e-3


def layer(
    counts: list[int],
    rows: int,
    *,
    shape: str = "mixed",
    alike: bool = False,
    strong: bool = False,
    dtype: torch.dtype = torch.bfloat16,
    heads: tuple[int, int] = (KEY_HEADS, HEADS),
    dim: int = DIM,
    seed: int = 0,
) -> dict[str, Tensor]:
    """Arguments of a verify; rows of padding are NaN, slots that no request has as well."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*size: int) -> Tensor:
        return torch.randn(*size, generator=generator)

    batch, trees = len(counts), random_trees(counts, rows, shape, seed)
    k = normal(batch, rows, heads[0], dim)
    if alike:  # cosine of about 0.99
        k = normal(batch, 1, heads[0], dim) + 0.1 * k
    b = torch.full((batch, rows, heads[1]), 2.2) if alike else normal(batch, rows, heads[1])  # sigmoid(2.2) = 0.9
    found = {
        "q": normal(batch, rows, heads[0], dim),
        "k": k,
        "v": normal(batch, rows, heads[1], dim),
        "a": normal(batch, rows, heads[1]) + (5 if strong else -4),
        "b": b,
    }
    for part in found.values():
        for request, count in enumerate(counts):
            part[request, count:] = NAN
    slots = torch.randperm(batch + 2, generator=generator)[:batch].to(torch.int32)
    state = torch.full((batch + 2, heads[1], dim, dim), NAN)
    state[slots.long()] = normal(batch, heads[1], dim, dim)
    return {name: part.to(dtype) for name, part in found.items()} | {
        "a_log": normal(heads[1]) * 0.5,
        "dt_bias": normal(heads[1]),
        "state": state,
        "slots": slots,
        "ancestors": trees.ancestors,
        "depths": trees.depths,
        "counts": trees.counts,
    }


def double(arguments: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: part.double() if part.is_floating_point() else part for name, part in arguments.items()}


def verify(arguments: dict[str, Tensor], device: str, **options: Any) -> Tensor:
    kernel = pytest.importorskip("drafttree.ops.gated_delta_tree.triton")
    moved = [part.to(device) for part in arguments.values()]
    out: Tensor = kernel.verify_pooled(*moved, **options).cpu()
    return out


def error(found: Tensor, expected: Tensor, counts: Tensor) -> float:
    """Relative rms over the rows in use; NaN anywhere there is NaN."""
    pairs = [(found[b, :n].double(), expected[b, :n].double()) for b, n in enumerate(counts.tolist())]
    return float(
        torch.stack([(f - e).square().sum() for f, e in pairs]).sum().sqrt()
        / torch.stack([e.square().sum() for _, e in pairs]).sum().sqrt()
    )


def test_the_specification_is_the_recurrence() -> None:
    arguments = double(layer([9, 5], 9))
    found = verify_pooled_naive(**arguments)
    mask = ((arguments["ancestors"][:, :, :1] >> torch.arange(9)) & 1).bool()
    mask &= (torch.arange(9) < arguments["counts"][:, None])[:, :, None]
    g, beta = gates(*(arguments[n] for n in ("a", "b", "a_log", "dt_bias")), torch.float64)
    state = arguments["state"][arguments["slots"].long()].transpose(-1, -2)
    expected, _ = gated_delta_paths(*(arguments[n] for n in "qkv"), g, beta, state, mask)
    assert error(found, expected, arguments["counts"]) < 1e-12


@pytest.mark.parametrize("device", KERNEL_DEVICES)
@pytest.mark.parametrize("strong", [False, True], ids=["weak", "strong"])
@pytest.mark.parametrize("shape", SHAPES)
def test_verify_in_bfloat16(shape: str, strong: bool, device: str) -> None:
    """Inputs are exactly bfloat16 on both sides, so the error is that of the kernel and of the rounded result."""
    arguments = layer([40, 1, 17], 40, shape=shape, strong=strong)
    assert error(verify(arguments, device), verify_pooled_naive(**double(arguments)), arguments["counts"]) < BFLOAT16


@pytest.mark.parametrize("device", KERNEL_DEVICES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_verify_in_other_types(dtype: torch.dtype, device: str) -> None:
    arguments = layer([33, 20], 40, dtype=dtype)
    limit = {torch.float32: 5e-4, torch.float16: 1e-3}[dtype]
    assert error(verify(arguments, device), verify_pooled_naive(**double(arguments)), arguments["counts"]) < limit


@pytest.mark.parametrize("device", KERNEL_DEVICES)
@pytest.mark.parametrize("shape", ["chain", "mixed"])
def test_similar_keys(shape: str, device: str) -> None:
    """float32 in, so that the result is not rounded."""
    arguments = layer([40], 40, shape=shape, alike=True, dtype=torch.float32)
    assert error(verify(arguments, device), verify_pooled_naive(**double(arguments)), arguments["counts"]) < 1e-3


def test_one_wrong_bit_is_seen() -> None:
    arguments = layer([40], 40, shape="star")
    expected = verify_pooled_naive(**double(arguments))
    arguments["ancestors"][0, 39, 0] |= 1 << 7  # a sibling
    assert error(verify(arguments, DEVICE), expected, arguments["counts"]) > 1e-2


@settings(max_examples=5, deadline=None)
@given(counts=st.lists(st.integers(1, 65), min_size=1, max_size=2), seed=st.integers(0, 2**16))
def test_any_batch(counts: list[int], seed: int) -> None:
    arguments = layer(counts, 65, seed=seed)
    assert error(verify(arguments, DEVICE), verify_pooled_naive(**double(arguments)), arguments["counts"]) < BFLOAT16


def stash(counts: list[int], rows: int, layers: int, **options: Any) -> dict[str, Tensor]:
    """Arguments of a replay of all layers."""
    found = [layer(counts, rows, seed=10 * number + 3, **options) for number in range(layers)]
    names = ("k", "v", "a", "b", "a_log", "dt_bias", "state")
    trees = random_trees(counts, rows, seed=3)
    paths, lengths = random_paths(trees, 8, seed=3)
    return {name: torch.stack([part[name] for part in found]) for name in names} | {
        "slots": found[0]["slots"],
        "paths": paths,
        "lengths": lengths,
    }


def replay(arguments: dict[str, Tensor], device: str, **options: Any) -> Tensor:
    """The states after the replay."""
    kernel = pytest.importorskip("drafttree.ops.gated_delta_tree.triton_replay")
    moved = {name: part.to(device, copy=True) for name, part in arguments.items()}
    kernel.replay_pooled(**moved, **{n: v.to(device) for n, v in options.items()})
    return moved["state"].cpu()


@pytest.mark.parametrize("device", KERNEL_DEVICES)
def test_replay_is_the_recurrence_and_snapshots_are_places_of_it(device: str) -> None:
    arguments = stash([20, 9, 12], 20, 2)
    for part in ("state",):  # the slots nobody has are where snapshots go
        arguments[part] = arguments[part].nan_to_num(0.0)
    spare = [slot for slot in range(5) if slot not in arguments["slots"].tolist()]
    arguments["slots"][2] = -1
    options = {
        "snapshot_at": torch.tensor([1, 0, 0], dtype=torch.int32),
        "snapshot_slots": torch.tensor([*spare, 0], dtype=torch.int32),
    }
    expected = double(arguments)
    replay_pooled_naive(**expected, **options)
    found = replay(arguments, device, **options)
    assert float((found - expected["state"]).abs().max()) < 1e-5
    assert bool((found[:, spare[0]] != arguments["state"][:, spare[0]]).any()) == (int(arguments["lengths"][0]) > 1)
    plain = replay(arguments, device)
    for slot in spare:
        assert torch.equal(plain[:, slot], arguments["state"][:, slot])


@pytest.mark.parametrize("device", KERNEL_DEVICES)
def test_state_after_many_steps(device: str) -> None:
    """Verify and commit, again and again, with similar keys: the state stays at 1e-6 of its float64 twin."""
    steps = 300 if device == "cuda" else 12
    state = layer([1], 9, alike=True)["state"].nan_to_num(0.0)
    twin = state.double()
    for step in range(steps):
        arguments = layer([9], 9, shape="deep", alike=True, seed=step) | {"state": state, "slots": torch.tensor([1])}
        exact = double(arguments) | {"state": twin}
        out = verify(arguments, device)
        assert error(out, verify_pooled_naive(**exact), arguments["counts"]) < BFLOAT16
        trees = random_trees([9], 9, "deep", step)
        paths, lengths = random_paths(trees, 8, seed=step)
        names = ("k", "v", "a", "b", "a_log", "dt_bias")
        whole = {n: arguments[n][None] for n in names} | {
            "slots": arguments["slots"],
            "paths": paths,
            "lengths": lengths,
        }
        state = replay(whole | {"state": state[None]}, device)[0]
        advanced = twin[None].clone()
        replay_pooled_naive(**(double(whole) | {"state": advanced}))
        twin = advanced[0]
    assert float((state[1] - twin[1]).norm() / twin[1].norm()) < 1e-6


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("count", [65, 129, 257])
def test_large_trees_and_the_same_bits_again(count: int) -> None:
    arguments = layer([count, 30], count, heads=(2, 6), dim=128)
    found = verify(arguments, "cuda")
    assert error(found, verify_pooled_naive(**double(arguments)), arguments["counts"]) < BFLOAT16
    for _ in range(5):
        again = verify(arguments, "cuda")
        assert all(torch.equal(again[b, :n], found[b, :n]) for b, n in enumerate(arguments["counts"].tolist()))


def test_picks_by_device() -> None:
    arguments = double(layer([3], 4))
    assert torch.equal(verify_trees(*arguments.values()), verify_pooled_naive(**arguments))
    whole = stash([3], 4, 1)
    expected = {name: part.clone() for name, part in whole.items()}
    replay_trees(*whole.values())
    replay_pooled_naive(**expected)
    assert torch.equal(whole["state"].nan_to_num(0), expected["state"].nan_to_num(0))
