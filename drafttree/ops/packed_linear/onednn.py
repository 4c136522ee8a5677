"""Linear layers in oneDNN's own weight layout.

A verify step multiplies a few rows (a tree's nodes) by every weight of the target. PyTorch's float32 product on a CPU
is fast for one row or for many: from one row to two its time doubles. With weights laid out for oneDNN once, 2 to 32
rows stay close to the time that reading the weights takes, and one row is faster too, so every method runs on it alike.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from drafttree.errors import UserError


class PackedLinear(nn.Module):
    """``nn.Linear`` in float32 on a CPU, for inference: the weight [out, in] is kept in oneDNN's layout.

    ``weight`` is the plain matrix where it is needed besides (an output head that a drafter shares), else None. The
    layer can neither be saved nor moved to another dtype or device: both raise UserError.
    """

    weight: Tensor | None

    def __init__(self, linear: nn.Linear, keep_weight: bool = False) -> None:
        super().__init__()
        self.in_features, self.out_features = linear.in_features, linear.out_features
        weight = linear.weight.detach()
        self.packed = _pack(weight)
        self.register_buffer("weight", weight if keep_weight else None, persistent=False)
        self.bias = None if linear.bias is None else linear.bias.detach()

    def forward(self, x: Tensor) -> Tensor:
        """``x`` [..., in] float32 -> [..., out]."""
        return _product(x, self.packed, self.bias)

    def extra_repr(self) -> str:
        """For printed models."""
        return f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}"

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> PackedLinear:
        moved = fn(torch.empty(0))
        if moved.dtype != torch.float32 or moved.device.type != "cpu":
            raise UserError("packed layers stay float32 on the CPU: load the model anew for another dtype or device")
        return self

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        raise UserError(f"{prefix.rstrip('.')}: packed layers are not saved: save the model before it is packed")


def _pack(weight: Tensor) -> Tensor:
    packed: Tensor = torch.ops.mkldnn._reorder_linear_weight(weight, None)
    return packed


def _product(x: Tensor, packed: Tensor, bias: Tensor | None) -> Tensor:
    out: Tensor = torch.ops.mkldnn._linear_pointwise(x, packed, bias, "none", [], "")
    return out


@cache
def _machine_packs() -> bool:
    """Whether this PyTorch on this CPU has oneDNN's packed product, shown on a small one."""
    if not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
        return False
    x, weight = torch.linspace(-1, 1, 6).view(2, 3), torch.linspace(0, 2, 12).view(4, 3)
    try:
        found = _product(x, _pack(weight), None)
    except (AttributeError, RuntimeError):  # the operations are not public: a build may lack or change them
        return False
    return bool(torch.allclose(found, F.linear(x, weight), atol=1e-6))


def can_pack(model: nn.Module) -> bool:
    """Whether ``model`` (its parameters in float32, on the CPU) can run with packed layers on this machine."""
    plain = all(p.device.type == "cpu" and p.dtype == torch.float32 for p in model.parameters())
    return plain and _machine_packs()


def pack_linears(model: nn.Module) -> bool:
    """Replace every ``nn.Linear`` of ``model`` by a packed one, in place; for inference only.

    The output head of a Hugging Face model keeps its plain weight too. Does nothing where :func:`can_pack` says no.

    Returns:
        Whether the model was packed.
    """
    if not can_pack(model):
        return False
    find_head = getattr(model, "get_output_embeddings", None)
    head = find_head() if find_head is not None else None
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if type(child) is nn.Linear:
                setattr(parent, name, PackedLinear(child, keep_weight=child is head))
    return True
