"""How the kernels need their arguments to lie in memory."""

from __future__ import annotations

import torch
from torch import Tensor


def check_layout(rows: dict[str, Tensor], a: Tensor, b: Tensor, state: Tensor) -> None:
    """ValueError unless heads lie side by side, the gates alike, and the states dense within a slot, in float32.

    ``rows``: by name, the last two dimensions heads and their width; ``state`` [..., slots, Hv, dv, dk].
    """
    for name, part in rows.items():
        if part.stride(-1) != 1 or part.stride(-2) != part.shape[-1]:
            raise ValueError(f"{name}: its heads do not lie side by side, strides {part.stride()}")
    if a.stride() != b.stride() or a.stride(-1) != 1:
        raise ValueError(f"a, b: strides {a.stride()}, {b.stride()}, expected the same and a dense last dimension")
    values, dim = state.shape[-2:]
    if state.dtype != torch.float32 or state.stride()[-3:] != (values * dim, dim, 1):
        raise ValueError(f"state: {state.dtype}, strides {state.stride()}, expected float32, dense within a slot")
