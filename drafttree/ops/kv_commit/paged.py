"""Commit of attention rows in paged caches: the public function and, for a CPU, the row-by-row form."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class PagedCaches:
    """The caches of all layers, of one shape, dtype and strides; made once, outside a captured graph.

    Attributes:
        layers: the caches, each [blocks, kv heads, block size, width], the last dimension contiguous. vLLM's has keys
            and values side by side, so its width is 2 x head dim.
        pointers: [layers] int64, their addresses, on their device.
        unit: bytes, 1 to 8: the widest integer that addresses, rows and strides are multiples of.
    """

    layers: tuple[Tensor, ...]
    pointers: Tensor
    unit: int

    @classmethod
    def of(cls, layers: Sequence[Tensor]) -> PagedCaches:
        """Of the caches themselves, which must stay where they are.

        A contiguous buffer [layers, 2, B, kv heads, capacity, head dim] is ``of(buffer.flatten(0, 1).unbind())``: a
        request is a block, and the slot of its row r is request * capacity + r.

        Raises:
            ValueError: no layers, or layers that differ in shape, dtype, strides or device.
        """
        if not layers:
            raise ValueError("no layers")
        first = layers[0]
        if first.dim() != 4 or first.stride(-1) != 1:
            raise ValueError(
                f"cache {tuple(first.shape)} with strides {first.stride()}, expected 4 dimensions, last dense"
            )
        for index, layer in enumerate(layers):
            same = layer.shape == first.shape and layer.stride() == first.stride() and layer.dtype == first.dtype
            if not same or layer.device != first.device:
                raise ValueError(
                    f"layer {index}: {layer.dtype} {tuple(layer.shape)} on {layer.device}, unlike layer 0: "
                    f"{first.dtype} {tuple(first.shape)} on {first.device}"
                )
        addresses = [layer.data_ptr() for layer in layers]
        steps = [step * first.element_size() for step in (first.shape[-1], *first.stride()[:-1])]
        unit = math.gcd(8, *addresses, *steps)
        return cls(tuple(layers), torch.tensor(addresses, dtype=torch.int64, device=first.device), unit)


def commit_paged_rows(caches: PagedCaches, slots: Tensor, paths: Tensor, lengths: Tensor) -> None:
    """Move the rows of the accepted paths to the front, in place, in all layers; nothing where a path is 0, 1, 2, ...

    Args:
        caches: of all layers.
        slots: [B, N] int64, block * block size + offset of each tree row, row 0 first; -1 is a row without one. No two
            rows of the batch share a slot.
        paths: [B, M] int32, rising row numbers, the root first; the row at place p moves to the slot of row p.
        lengths: [B] int32, places of each path in use; 0 leaves a request alone.

    Raises:
        ValueError: shapes, dtypes or devices other than these.
    """
    if slots.dim() != 2 or paths.dim() != 2 or not slots.shape[:1] == paths.shape[:1] == lengths.shape:
        shapes = f"slots {tuple(slots.shape)}, paths {tuple(paths.shape)}, lengths {tuple(lengths.shape)}"
        raise ValueError(f"{shapes}, expected [B, N], [B, M] and [B]")
    if (slots.dtype, paths.dtype, lengths.dtype) != (torch.int64, torch.int32, torch.int32):
        dtypes = f"slots {slots.dtype}, paths {paths.dtype}, lengths {lengths.dtype}"
        raise ValueError(f"{dtypes}, expected int64, int32 and int32")
    if any(part.device != caches.pointers.device for part in (slots, paths, lengths)):
        raise ValueError("caches, slots, paths and lengths are not on one device")
    if slots.device.type == "cpu":
        commit_paged_rows_naive(caches, slots, paths, lengths)
    else:
        from drafttree.ops.kv_commit.triton import commit_paged_rows_triton

        commit_paged_rows_triton(caches, slots, paths, lengths)


def commit_paged_rows_naive(caches: PagedCaches, slots: Tensor, paths: Tensor, lengths: Tensor) -> None:
    """``commit_paged_rows`` one row of one layer at a time: the specification."""
    size = caches.layers[0].shape[2]
    for request, length in enumerate(lengths.tolist()):
        for place, row in enumerate(paths[request, :length].tolist()):
            source, target = int(slots[request, row]), int(slots[request, place])
            if row == place or source < 0 or target < 0:
                continue
            for cache in caches.layers:
                cache[target // size, :, target % size] = cache[source // size, :, source % size].clone()
