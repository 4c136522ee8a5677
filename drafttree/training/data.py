"""Batches of responses, and the loss of a drafter on them."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from drafttree.drafter.network import DFlashDrafter
from drafttree.training.head_loss import head_loss
from drafttree.training.shards import Response
from drafttree.training.store import Batch


def loop_start(tokens: list[int], longest_period: int = 64, repeats: int = 3) -> int | None:
    """Where a response starts to repeat itself for good: the index after the first period of a loop at its end.

    A loop is a period of at most ``longest_period`` tokens that fills the end at least ``repeats`` times and at
    least 24 tokens. None where there is none.
    """
    for period in range(1, longest_period + 1):
        run = 0
        while run + period < len(tokens) and tokens[-1 - run] == tokens[-1 - run - period]:
            run += 1
        if run + period >= max(repeats * period, 24):
            return len(tokens) - run
    return None


def shorten_loop(response: Response, keep: int) -> Response:
    """The response with all but ``keep`` tokens of a loop at its end removed: a loop teaches nothing twice."""
    start = loop_start(response.tokens[response.prompt_length :])
    if start is None:
        return response
    end = response.prompt_length + start + keep
    return Response(response.job, response.tokens[:end], response.prompt_length, response.temperature)


def epochs(sizes: list[int], batch_sequences: int, seed: int) -> Iterator[list[int]]:
    """Endless batches of row numbers; every epoch visits each row once, similar ``sizes`` together, shuffled."""
    epoch = 0
    while True:
        generator = torch.Generator().manual_seed(seed * 100_003 + epoch)
        jitter = torch.rand(len(sizes), generator=generator).mul(32)
        order = (torch.tensor(sizes) + jitter).argsort().tolist()
        starts = torch.arange(0, len(order), batch_sequences)
        for start in starts[torch.randperm(len(starts), generator=generator)].tolist():
            yield order[start : start + batch_sequences]
        epoch += 1


def choose_anchors(batch: Batch, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Up to ``count`` random response positions a sequence: anchors [S, A] and which of them are real [S, A].

    An anchor is a response token with at least one token after it.
    """
    width = batch.tokens.shape[1]
    column = torch.arange(width, device=batch.tokens.device)
    usable = (column >= batch.prompt_lengths[:, None]) & (column <= batch.lengths[:, None] - 2)  # [S, T]
    draw = torch.rand(usable.shape, device=usable.device, generator=generator).masked_fill(~usable, -1.0)
    picked = draw.topk(min(count, width), dim=1)
    return picked.indices, picked.values >= 0


def draft_hidden(network: DFlashDrafter, embedding: nn.Module, batch: Batch, anchors: Tensor) -> Tensor:
    """Hidden states [S, A, block - 1, H] of the draft slots for every anchor of ``anchors`` [S, A].

    Each block attends to the context strictly before its anchor and to itself, never to another anchor's block.
    """
    sequences, count = anchors.shape
    width, block_size = batch.tokens.shape[1], network.config.block_size
    device = anchors.device
    block = torch.full((sequences, count, block_size), network.config.mask_token_id, device=device)
    block[:, :, 0] = batch.tokens.gather(1, anchors)
    positions = (anchors[:, :, None] + torch.arange(block_size, device=device)).flatten(1)  # [S, A x block]
    column = torch.arange(width, device=device)
    before = column < anchors[:, :, None]  # [S, A, T]
    own = torch.eye(count, dtype=torch.bool, device=device).expand(sequences, -1, -1)  # [S, A, A]
    allowed = torch.cat([before, own.repeat_interleave(block_size, dim=2)], dim=2).repeat_interleave(block_size, dim=1)
    context_positions = column.expand(sequences, -1)
    context = network.encode_context(batch.taps, context_positions)
    hidden: Tensor = network(embedding(block.flatten(1)), positions, context, context_positions, allowed[:, None])
    return hidden.view(sequences, count, block_size, -1)[:, :, 1:]


def drafter_loss(
    network: DFlashDrafter,
    embedding: nn.Module,
    head_weight: Tensor,
    batch: Batch,
    *,
    anchors: int,
    decay: float,
    generator: torch.Generator,
) -> tuple[Tensor, Tensor]:
    """Weighted cross-entropy of the draft slots and the share of right top-1 guesses by slot [block - 1].

    Slot k of an anchor at position p is trained on the token at p + k, weight exp(-(k - 1) / ``decay``).
    """
    where, real = choose_anchors(batch, anchors, generator)  # [S, A]
    hidden = draft_hidden(network, embedding, batch, where)
    slot = torch.arange(1, network.config.block_size, device=where.device)
    target = where[:, :, None] + slot  # [S, A, block - 1]
    known = (target < batch.lengths[:, None, None]) & real[:, :, None]
    labels = batch.tokens.gather(1, target.clamp(max=batch.tokens.shape[1] - 1).flatten(1)).view_as(target)
    weight = torch.exp(-(slot - 1).float() / decay).expand_as(target)[known]
    loss, hit = head_loss(hidden[known], head_weight, labels[known], weight / weight.sum().clamp(min=1e-6))
    right = torch.zeros(target.shape, device=where.device)
    right[known] = hit.float()
    return loss, right.sum((0, 1)) / known.sum((0, 1)).clamp(min=1)
