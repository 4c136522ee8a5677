"""The convolution over trees and the commit of its windows as Triton kernels."""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator, misc"

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def _conv(
    rows_ptr, window_ptr, slots_ptr, weight_ptr, taps_ptr, out_ptr, N, C, stride_b, stride_n, stride_slot, stride_c,
    stride_t, W: tl.constexpr, CHANNELS: tl.constexpr,
):  # fmt: skip
    """One program: some channels of one row."""
    part, row, request = tl.program_id(0), tl.program_id(1), tl.program_id(2).to(tl.int64)
    channel = part * CHANNELS + tl.arange(0, CHANNELS)
    inside = channel < C
    slot = tl.load(slots_ptr + request).to(tl.int64)
    rows_ptr += request * stride_b
    window_ptr += tl.maximum(slot, 0) * stride_slot + channel * stride_c
    x = tl.load(rows_ptr + row * stride_n + channel, mask=inside, other=0.0)
    total = x.to(tl.float32) * tl.load(weight_ptr + channel * W + W - 1, mask=inside, other=0.0).to(tl.float32)
    for back in tl.static_range(W - 1):
        tap = tl.load(taps_ptr + (request * N + row) * (W - 1) + back)
        if tap >= 0:
            read = tl.load(rows_ptr + tap * stride_n + channel, mask=inside, other=0.0)
        else:
            read = tl.load(window_ptr + (W - 1 + tap) * stride_t, mask=inside, other=0.0).to(x.dtype)
        total += read.to(tl.float32) * tl.load(weight_ptr + channel * W + W - 2 - back, mask=inside, other=0.0).to(
            tl.float32
        )
    total = total.to(out_ptr.dtype.element_ty).to(tl.float32)
    silu = total / (1.0 + tl.exp(-total))
    tl.store(out_ptr + (request * N + row) * C + channel, silu.to(out_ptr.dtype.element_ty), mask=inside)


@triton.jit
def _commit(
    rows_ptr, window_ptr, slots_ptr, paths_ptr, lengths_ptr, C, M, stride_l, stride_b, stride_n, stride_wl, stride_slot,
    stride_c, stride_t, W: tl.constexpr, CHANNELS: tl.constexpr,
):  # fmt: skip
    """One program: some channels of one layer and request."""
    part, layer, request = tl.program_id(0), tl.program_id(1).to(tl.int64), tl.program_id(2).to(tl.int64)
    slot = tl.load(slots_ptr + request).to(tl.int64)
    if slot < 0:
        return
    channel = part * CHANNELS + tl.arange(0, CHANNELS)
    inside = channel < C
    length = tl.load(lengths_ptr + request)
    rows_ptr += layer * stride_l + request * stride_b
    window_ptr += layer * stride_wl + slot * stride_slot + channel * stride_c
    for column in tl.static_range(W - 1):
        # a column reads itself or a later one, so in rising order nothing is overwritten before it is read
        place = length - (W - 1) + column
        if place >= 0:
            node = tl.load(paths_ptr + request * M + place)
            kept = tl.load(rows_ptr + node * stride_n + channel, mask=inside, other=0.0).to(window_ptr.dtype.element_ty)
        else:
            kept = tl.load(window_ptr + (length + column) * stride_t, mask=inside, other=0.0)
        tl.debug_barrier()  # a column can be read by another thread than the one that writes it
        tl.store(window_ptr + column * stride_t, kept, mask=inside)


def conv_pooled(
    rows: Tensor, window: Tensor, slots: Tensor, weight: Tensor, taps: Tensor, *, channels: int = 256, warps: int = 4
) -> Tensor:
    """``paged.conv_pooled_naive`` on a GPU; ``channels`` and ``warps`` of a program are for tuning."""
    batch, count, width = rows.shape
    if rows.stride(2) != 1 or not (weight.is_contiguous() and taps.is_contiguous()):
        raise ValueError("conv_pooled: rows need a dense last dimension, weight and taps all dense")
    out = torch.empty(batch, count, width, dtype=rows.dtype, device=rows.device)
    channels = min(channels, triton.next_power_of_2(width))
    _conv[(triton.cdiv(width, channels), count, batch)](
        rows, window, slots, weight, taps, out, count, width, rows.stride(0), rows.stride(1), *window.stride(),
        W=weight.shape[1], CHANNELS=channels, num_warps=warps,
    )  # fmt: skip
    return out


def commit_windows(
    rows: Tensor, window: Tensor, slots: Tensor, paths: Tensor, lengths: Tensor, *, channels: int = 512, warps: int = 1
) -> None:
    """``paged.commit_windows_naive`` on a GPU, one launch; ``channels`` and ``warps`` of a program are for tuning."""
    layers, batch, _, width = rows.shape
    if rows.stride(3) != 1 or not paths.is_contiguous():
        raise ValueError("commit_windows: rows need a dense last dimension, paths all dense")
    channels = min(channels, triton.next_power_of_2(width))
    _commit[(triton.cdiv(width, channels), layers, batch)](
        rows, window, slots, paths, lengths, width, paths.shape[1], *rows.stride()[:3], *window.stride(),
        W=window.shape[3] + 1, CHANNELS=channels, num_warps=warps,
    )  # fmt: skip
