"""``choose_tokens``: the public function, which picks by device."""

from __future__ import annotations

import torch
from torch import Tensor

from drafttree.ops.target_choice.naive import choose_tokens_naive


def choose_tokens(
    logits: Tensor,
    temperatures: Tensor | None = None,
    seeds: Tensor | None = None,
    positions: Tensor | None = None,
) -> Tensor:
    """The target's own token after each of R rows, in one pass over the logits and without a copy of them.

    Greedy, or argmax(x / t + g) with g the Gumbel noise of ``sampling.noise`` at (seed, position, token), which is a
    draw from softmax(x / t); for rows without top-k and top-p. Sums and noise are float64, where ``sampling.choose``
    adds float32 log-probabilities: the two differ only where two tokens are equal within float32's rounding. Ties go
    to the smaller token id; NaN ranks with +inf; a row of -inf alone gives token 0.

    Args:
        logits: [R, V] floating point, the last dimension contiguous.
        temperatures: [R] float32, 0 is greedy, else at least 1e-5; None is greedy for all rows.
        seeds: [R] int64, 0 to 2**63 - 1; with temperatures.
        positions: [R] int64, absolute position of the token being chosen (the row's own plus 1); with temperatures.

    Returns:
        [R] int64.

    Raises:
        ValueError: shapes, dtypes or devices other than these.
    """
    if logits.dim() != 2 or not logits.is_floating_point() or logits.shape[1] < 1 or logits.stride(1) != 1:
        raise ValueError(f"logits {logits.dtype} {tuple(logits.shape)}, expected floating point [R, V], contiguous V")
    given = {"temperatures": temperatures, "seeds": seeds, "positions": positions}
    if temperatures is None and (seeds is not None or positions is not None):
        raise ValueError("seeds and positions without temperatures")
    for name, part in given.items() if temperatures is not None else ():
        dtype = torch.float32 if name == "temperatures" else torch.int64
        if part is None or part.shape != logits.shape[:1] or part.dtype != dtype or part.device != logits.device:
            held = None if part is None else f"{part.dtype} {tuple(part.shape)} on {part.device}"
            raise ValueError(f"{name} {held}, expected {dtype} {(logits.shape[0],)} on {logits.device}")
    logits = logits.detach()
    if logits.device.type == "cpu":
        return choose_tokens_naive(logits, temperatures, seeds, positions)
    from drafttree.ops.target_choice.triton import choose_tokens_triton

    return choose_tokens_triton(logits, temperatures, seeds, positions)
