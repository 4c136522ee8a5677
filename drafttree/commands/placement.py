"""Where and in which number format a command runs its models."""

from __future__ import annotations

import torch

from drafttree.errors import UserError

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float64": torch.float64}


def placement(device: str | None, dtype: str | None) -> tuple[torch.device, torch.dtype]:
    """Device and dtype of the options ``--device`` and ``--dtype``; UserError for ones that are not there.

    Without a device CUDA where there is one, else the CPU; without a dtype float32 on a CPU, where bfloat16 gains
    nothing from verifying several tokens at once, and bfloat16 elsewhere.
    """
    name = device or ("cuda" if torch.cuda.is_available() else "cpu")
    try:
        where = torch.device(name)
    except RuntimeError:
        raise UserError.field("--device", "device", name, "cpu, cuda or cuda:N") from None
    if where.type not in ("cpu", "cuda"):
        raise UserError.field("--device", "device", name, "cpu, cuda or cuda:N")
    if where.type == "cuda" and (where.index or 0) >= torch.cuda.device_count():
        raise UserError.field("--device", "device", name, f"one of {torch.cuda.device_count()} CUDA devices, or cpu")
    if dtype is None:
        return where, torch.float32 if where.type == "cpu" else torch.bfloat16
    if dtype not in DTYPES:
        raise UserError.field("--dtype", "dtype", dtype, " or ".join(DTYPES))
    return where, DTYPES[dtype]
