"""Linear layers with weights laid out for a CPU's matrix kernels; the specification is ``torch.nn.Linear``."""

from drafttree.ops.packed_linear.onednn import PackedLinear, can_pack, pack_linears

__all__ = ["PackedLinear", "can_pack", "pack_linears"]
