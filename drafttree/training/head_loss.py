"""Cross-entropy through a frozen output head without keeping the logits.

The head is the target's and is not trained, so the only gradient is that of the hidden states. It is made together
with the loss, some rows at a time: with p the softmax of a row and y its label, it is p W - W[y]. The logits of a
large vocabulary, by far the largest tensor of the training, are never stored.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

CHUNK_ROWS = 8192  # rows whose logits exist at the same time


class _HeadLoss(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, hidden: Tensor, head: Tensor, labels: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        loss = torch.zeros((), device=hidden.device)
        gradient = torch.empty_like(hidden)
        hits = []
        for start in range(0, hidden.shape[0], CHUNK_ROWS):
            rows = slice(start, start + CHUNK_ROWS)
            wanted = labels[rows]
            logits = hidden[rows].to(head.dtype) @ head.T  # [rows, V]
            hits.append(logits.argmax(-1) == wanted)
            share = logits.softmax(-1)
            own = share.gather(1, wanted[:, None])[:, 0].float()
            loss -= (weight[rows] * own.clamp(min=1e-30).log()).sum()
            gradient[rows] = ((share @ head).float() - head[wanted].float()) * weight[rows, None]
        ctx.save_for_backward(gradient)
        hit = torch.cat(hits) if hits else labels == labels
        ctx.mark_non_differentiable(hit)
        return loss, hit

    @staticmethod
    def backward(ctx: Any, grad_loss: Tensor, _grad_hit: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        (gradient,) = ctx.saved_tensors
        return gradient * grad_loss, None, None, None


def head_loss(hidden: Tensor, head: Tensor, labels: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """Sum over rows of ``weight`` x cross-entropy, and which rows guess their label.

    ``hidden`` [M, H], ``head`` [V, H] in the dtype of the product, ``labels`` [M], ``weight`` [M] fp32. Only
    ``hidden`` gets a gradient. In bf16 the probabilities are rounded to bf16, a relative error of 0.4%.
    """
    loss, hit = _HeadLoss.apply(hidden, head, labels, weight)  # type: ignore[no-untyped-call]
    return loss, hit
