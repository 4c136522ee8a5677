"""The gated delta rule over a tree: the recurrence along every path, which is the specification, and the closed form.

Shapes, for B sequences of N nodes, the root first, parents before children::

    q, k   [B, N, Hk, dk]  raw rows behind the convolution; normalised here
    v      [B, N, Hv, dv]  value head h reads key head h // (Hv // Hk)
    g      [B, N, Hv]      logarithm of the decay, <= 0
    beta   [B, N, Hv]      in (0, 1)
    state  [B, Hv, dk, dv] after the committed text
    mask   [B, N, N] bool  row: the node, column: itself or an ancestor; a row without itself is padding

One step: S <- exp(g) S; u = beta (v - k S); S <- S + k^T u; out = q S / sqrt(dk), with k and q of length 1.
Everything is computed in the dtype of ``state``, float32 or float64.

Source: Gated Delta Networks (Yang, Kautz, Hatamizadeh 2024), the update as in Qwen3-Next and Qwen3.5.
"""

from __future__ import annotations

import torch
from torch import Tensor

NORM_EPS = 1e-6


def unit_rows(rows: Tensor) -> Tensor:
    """``rows`` [..., d] of length 1, up to the epsilon that the models use."""
    return rows * torch.rsqrt(rows.square().sum(-1, keepdim=True) + NORM_EPS)


def gates(a: Tensor, b: Tensor, a_log: Tensor, dt_bias: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """(g, beta) [..., Hv] in ``dtype`` from the layer's projections ``a`` and ``b`` [..., Hv]."""
    g = -a_log.to(dtype).exp() * torch.nn.functional.softplus(a.to(dtype) + dt_bias.to(dtype))
    return g, b.sigmoid().to(dtype)


def delta_step(q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
    """One step of the recurrence: (out [..., Hv, dv], new state [..., Hv, dk, dv]).

    q, k [..., Hk, dk], v [..., Hv, dv], g, beta [..., Hv].
    """
    repeat = v.shape[-2] // k.shape[-2]
    q, k = (unit_rows(rows.to(state.dtype)).repeat_interleave(repeat, dim=-2) for rows in (q, k))
    v, g, beta = (rows.to(state.dtype) for rows in (v, g, beta))
    state = state * g.exp()[..., None, None]
    u = beta[..., None] * (v - (k[..., None] * state).sum(-2))
    state = state + k[..., None] * u[..., None, :]
    return (q[..., None] * state).sum(-2) * q.shape[-1] ** -0.5, state


def gated_delta_paths(
    q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor, state: Tensor, mask: Tensor
) -> tuple[Tensor, Tensor]:
    """The specification: every node runs the recurrence along its own path.

    Returns outputs [B, N, Hv, dv] and the state after every node [B, N, Hv, dk, dv]; zero where a node is padding.
    """
    outputs = torch.zeros(v.shape, dtype=state.dtype, device=state.device)
    states = torch.zeros(*v.shape[:2], *state.shape[1:], dtype=state.dtype, device=state.device)
    for b in range(v.shape[0]):
        for node in range(v.shape[1]):
            if not mask[b, node, node]:
                continue
            here = state[b]
            for i in mask[b, node].nonzero().flatten().tolist():  # rising, so root first
                outputs[b, node], here = delta_step(q[b, i], k[b, i], v[b, i], g[b, i], beta[b, i], here)
            states[b, node] = here
    return outputs, states


def solve_levels(system: Tensor, right: Tensor, depths: Tensor, deepest: int) -> Tensor:
    """U of (I + ``system``) U = ``right``, substituted one level of depth after the other.

    ``system`` [..., N, N] has entries at proper ancestors alone; ``right`` [..., N, dv]; ``depths`` broadcasts to
    [..., N, 1]. No product of ``system`` with itself is formed: its powers grow for similar keys.
    """
    solution = right
    for level in range(1, deepest + 1):
        solution = torch.where(depths == level, right - system @ solution, solution)
    return solution


def gated_delta_tree(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor,
    beta: Tensor,
    state: Tensor,
    mask: Tensor,
    *,
    depths: Tensor | None = None,
    deepest: int | None = None,
) -> Tensor:
    """Outputs [B, N, Hv, dv] of all nodes at once from the committed state, which is only read.

    With G the sum of g over a node's ancestors and itself, D_ts = exp(G_t - G_s) for s an ancestor or t itself and 0
    elsewhere, A_ts = beta_t D_ts (k_t . k_s) at proper ancestors and R_t = beta_t (v_t - exp(G_t) k_t S)::

        (I + A) U = R        out = (exp(G) (q S) + (D . q k^T) U) / sqrt(dk)

    ``depths`` [B, N] and ``deepest``, the largest of them, follow from ``mask``; a caller that has them on the host
    saves a synchronisation. Rows of padding may hold anything, NaN too; their outputs are 0.
    """
    dtype = state.dtype
    real = mask.diagonal(dim1=-2, dim2=-1)  # [B, N]
    if depths is None:
        depths = mask.sum(-1) - 1
    if deepest is None:
        deepest = int(depths.max())
    scale = q.shape[-1] ** -0.5
    q, k, v, g, beta = (
        rows.to(dtype).masked_fill(~real.view(*real.shape, *[1] * (rows.dim() - 2)), 0) for rows in (q, k, v, g, beta)
    )
    repeat = v.shape[2] // k.shape[2]
    q, k = (unit_rows(rows).transpose(1, 2) for rows in (q, k))  # [B, Hk, N, dk]
    kk, qk = ((rows @ k.transpose(-1, -2)).repeat_interleave(repeat, dim=1) for rows in (k, q))  # [B, Hv, N, N]
    q, k = (rows.repeat_interleave(repeat, dim=1) for rows in (q, k))  # [B, Hv, N, dk]
    v, g, beta = v.transpose(1, 2), g.transpose(1, 2), beta.transpose(1, 2)[..., None]
    below = mask[:, None]  # [B, 1, N, N]
    total = (g[..., None, :] * below.to(dtype)).sum(-1)  # G [B, Hv, N]
    # the exponent is masked, not its exponential: G_t - G_s overflows where s is no ancestor of t
    decay = (total[..., :, None] - total[..., None, :]).masked_fill(~below, float("-inf")).exp()
    proper = below & ~torch.eye(mask.shape[-1], dtype=torch.bool, device=mask.device)
    system = (beta * decay * kk).masked_fill(~proper, 0)
    fade = total.exp()[..., None]  # [B, Hv, N, 1]
    right = beta * (v - fade * (k @ state))
    solution = solve_levels(system, right, depths[:, None, :, None], deepest)
    out: Tensor = scale * (fade * (q @ state) + (decay * qk) @ solution)
    return out.transpose(1, 2)


def gated_delta_replay(k: Tensor, v: Tensor, g: Tensor, beta: Tensor, state: Tensor) -> None:
    """Advance ``state`` [B, Hv, dk, dv] in place over the T rows of an accepted path, one step of the recurrence each.

    k [B, T, Hk, dk], v [B, T, Hv, dv], g, beta [B, T, Hv]. B may run over layers: no copy of the state is made.
    """
    batch, steps = k.shape[:2]
    flat = state.view(batch * state.shape[1], *state.shape[2:])  # [B x Hv, dk, dv]
    k = unit_rows(k.to(state.dtype)).repeat_interleave(v.shape[2] // k.shape[2], dim=2)
    v, decay, beta = v.to(state.dtype), g.to(state.dtype).exp(), beta.to(state.dtype)
    for t in range(steps):
        key, value = k[:, t].flatten(0, 1), v[:, t].flatten(0, 1)  # [B x Hv, d]
        flat.mul_(decay[:, t].reshape(-1, 1, 1))
        u = beta[:, t].reshape(-1, 1, 1) * (value[:, None] - key[:, None] @ flat)  # [B x Hv, 1, dv]
        flat.baddbmm_(key[..., None], u)
