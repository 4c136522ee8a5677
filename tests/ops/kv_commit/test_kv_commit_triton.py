"""Paged rows: every byte of every layer as the row-by-row specification leaves it."""

import math
import random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_devices import DEVICE, KERNEL_DEVICES, on_gpu

from drafttree.ops.kv_commit import PagedCaches, commit_paged_rows, commit_rows_naive
from drafttree.ops.kv_commit.paged import commit_paged_rows_naive
from drafttree.ops.kv_commit.triton import commit_paged_rows_triton

DTYPES = [torch.uint8, torch.float16, torch.bfloat16, torch.float32, torch.float64]


def random_paths(batch, rows, longest, rng):
    """Rising paths of 0 to ``longest`` rows, -1 after the end; the first stays at the front."""
    paths = torch.full((batch, longest), -1).int()
    lengths = torch.zeros(batch).int()
    for b in range(batch):
        length = rng.randint(0, min(longest, rows))
        path = [0, *sorted(rng.sample(range(1, rows), length - 1))] if length else []
        if b == 0:
            path = list(range(length))
        paths[b, :length] = torch.tensor(path).int()
        lengths[b] = length
    return paths, lengths


def random_layers(layers, blocks, heads, size, width, dtype, rng, order="heads first"):
    """Random bytes, NaN among the floats."""
    made = []
    for _ in range(layers):
        shape = (blocks, heads, size, width) if order == "heads first" else (blocks, size, heads, width)
        raw = torch.frombuffer(bytearray(rng.randbytes(math.prod(shape) * dtype.itemsize)), dtype=dtype).view(shape)
        made.append(raw if order == "heads first" else raw.transpose(1, 2))
    return made


def bits(cache):
    return cache.cpu().contiguous().view(torch.uint8)


def agree(layers, slots, paths, lengths, device=DEVICE, **options):
    expected = [layer.clone(memory_format=torch.preserve_format) for layer in layers]
    commit_paged_rows_naive(PagedCaches.of(expected), slots, paths, lengths)
    found = [layer.to(device) if device != "cpu" else layer.clone() for layer in layers]
    commit_paged_rows_triton(PagedCaches.of(found), *(part.to(device) for part in (slots, paths, lengths)), **options)
    return all(torch.equal(bits(a), bits(b)) for a, b in zip(found, expected, strict=True))


def random_slots(batch, rows, slots, rng):
    return torch.tensor(rng.sample(range(slots), batch * rows)).view(batch, rows)


@pytest.mark.parametrize("device", KERNEL_DEVICES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("order", ["heads first", "rows first"])
@pytest.mark.parametrize("width", [3, 8, 130])
def test_equal_to_the_specification(device, dtype, order, width):
    rng = random.Random(width)
    layers = random_layers(3, 12, 2, 16, width, dtype, rng, order)
    for longest in (1, 5, 17):
        slots = random_slots(4, 33, 12 * 16, rng)
        assert agree(layers, slots, *random_paths(4, 33, longest, rng), device, columns=32)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**31), rows=st.integers(1, 20), longest=st.integers(1, 20), heads=st.integers(1, 3))
def test_any_path(seed, rows, longest, heads):
    rng = random.Random(seed)
    layers = random_layers(2, 15, heads, 4, 8, torch.bfloat16, rng)
    assert agree(layers, random_slots(2, rows, 60, rng), *random_paths(2, rows, longest, rng))


@pytest.mark.parametrize("device", KERNEL_DEVICES)
def test_rows_without_a_slot_stay(device):
    rng = random.Random(1)
    layers = random_layers(1, 8, 1, 4, 4, torch.float32, rng)
    slots = random_slots(2, 8, 32, rng)
    slots[0, 3], slots[1, 1] = -1, -1
    paths, lengths = torch.tensor([[0, 3, 5], [0, 2, 7]]).int(), torch.tensor([3, 3]).int()
    assert agree(layers, slots, paths, lengths, device)


@pytest.mark.parametrize("device", KERNEL_DEVICES)
def test_a_contiguous_buffer_is_a_cache_of_one_block_a_request(device):
    buffer = torch.randn(2, 2, 3, 2, 24, 8, generator=torch.Generator().manual_seed(2))
    paths, starts = [[0, 2, 3, 9], [0, 1, 2], [0, 5]], [3, 0, 11]
    expected = buffer.clone()
    for b, (path, start) in enumerate(zip(paths, starts, strict=True)):
        commit_rows_naive(expected[:, :, b], start, path)
    found = buffer.to(device, copy=True)
    caches = PagedCaches.of(found.flatten(0, 1).unbind())
    slots = torch.stack([b * 24 + start + torch.arange(12) for b, start in enumerate(starts)])
    padded = torch.tensor([path + [-1] * (4 - len(path)) for path in paths]).int()
    lengths = torch.tensor([len(path) for path in paths]).int()
    commit_paged_rows_triton(caches, slots.to(device), padded.to(device), lengths.to(device))
    assert torch.equal(found.cpu(), expected)


def test_a_wrong_slot_is_seen():
    rng = random.Random(3)
    layers = random_layers(2, 8, 1, 4, 4, torch.float32, rng)
    slots = random_slots(1, 8, 32, rng)
    paths, lengths = torch.tensor([[0, 2, 5]]).int(), torch.tensor([3]).int()
    expected = [layer.clone() for layer in layers]
    commit_paged_rows_naive(PagedCaches.of(expected), slots, paths, lengths)
    slots[0, 5] = slots[0, 6]
    layers = [layer.to(DEVICE) for layer in layers]
    commit_paged_rows_triton(PagedCaches.of(layers), *(part.to(DEVICE) for part in (slots, paths, lengths)))
    assert not all(torch.equal(bits(a.cpu()), bits(b)) for a, b in zip(layers, expected, strict=True))


def test_the_public_function_checks_its_arguments():
    rng = random.Random(4)
    layers = random_layers(2, 4, 1, 4, 4, torch.float16, rng)
    caches = PagedCaches.of(layers)
    assert caches.unit == 8 and caches.pointers.tolist() == [layer.data_ptr() for layer in layers]
    assert PagedCaches.of([layer[..., 1:4] for layer in layers]).unit == 2
    slots, (paths, lengths) = random_slots(2, 4, 16, rng), random_paths(2, 4, 3, rng)
    commit_paged_rows(caches, slots, paths, lengths)
    for wrong in [(slots[0], paths, lengths), (slots, paths[:1], lengths), (slots.int(), paths, lengths)]:
        with pytest.raises(ValueError, match="expected"):
            commit_paged_rows(caches, *wrong)
    for unlike in (layers[1][:2], layers[1].float(), layers[1].transpose(0, 2).contiguous().transpose(0, 2)):
        with pytest.raises(ValueError, match="layer 1"):
            PagedCaches.of([layers[0], unlike])
    with pytest.raises(ValueError, match="no layers"):
        PagedCaches.of([])
    with pytest.raises(ValueError, match="last dense"):
        PagedCaches.of([layers[0].transpose(2, 3)])


@pytest.mark.parametrize("device", [on_gpu])
def test_a_model_of_real_size(device):
    rng = random.Random(5)
    layers = random_layers(16, 40, 4, 16, 512, torch.bfloat16, rng)
    for rows in (64, 257):
        slots = random_slots(2, rows, 640, rng)
        assert agree(layers, slots, *random_paths(2, rows, 16, rng), device)
        assert agree(layers, slots, *random_paths(2, rows, 16, rng), device, columns=16, warps=1)
