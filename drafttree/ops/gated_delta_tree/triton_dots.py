"""Matrix products of the gated delta kernels that keep more digits than their operands' dtype."""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator, misc"

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def wide_dot(left, right, INTERPRET: tl.constexpr):
    """left @ right of two narrow operands, summed in float32: the products themselves are exact."""
    if INTERPRET:  # the interpreter multiplies the bit patterns of bfloat16
        return tl.dot(left.to(tl.float32), right.to(tl.float32), input_precision="ieee")
    else:
        return tl.dot(left, right, input_precision="tf32x3")


@triton.jit
def split_dot(left, right, TERMS: tl.constexpr, INTERPRET: tl.constexpr):
    """left @ right for bfloat16 ``left`` and float32 ``right``, which is taken as a sum of TERMS bfloat16 terms.

    Two terms keep 16 bits of ``right``, three all 24; the smallest is added first.
    """
    if left.dtype == tl.bfloat16:
        first = right.to(tl.bfloat16)
        rest = right - first.to(tl.float32)
        second = rest.to(tl.bfloat16)
        total = wide_dot(left, second, INTERPRET)
        if TERMS == 3:
            total += wide_dot(left, (rest - second.to(tl.float32)).to(tl.bfloat16), INTERPRET)
        return total + wide_dot(left, first, INTERPRET)
    else:
        return wide_dot(left.to(tl.float32), right, INTERPRET)


@triton.jit
def gate(a, a_log, dt_bias):
    """g = -exp(a_log) softplus(a + dt_bias) in float32."""
    x = a + dt_bias
    softplus = tl.where(x > 20.0, x, tl.log(1.0 + tl.exp(tl.minimum(x, 20.0))))
    return -tl.exp(a_log) * softplus


INTERPRETED = not isinstance(gate, triton.JITFunction)  # Triton decides it when it is imported
