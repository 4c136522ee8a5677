"""Batches of responses, and the loss of a drafter on them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from drafttree.drafter.network import DFlashDrafter
from drafttree.training.shards import Response

LOSS_ROWS = 8192  # rows whose logits exist at the same time; they are computed again for the gradient


class Batch(NamedTuple):
    """Right-padded sequences: ``tokens`` [S, T], ``lengths`` [S], ``prompt_lengths`` [S]."""

    tokens: Tensor
    lengths: Tensor
    prompt_lengths: Tensor


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


def make_batch(responses: list[Response], device: torch.device) -> Batch:
    """Pad ``responses`` on the right to one length, a multiple of 64."""
    longest = max(len(r.tokens) for r in responses)
    tokens = torch.zeros(len(responses), -(-longest // 64) * 64, dtype=torch.long)
    for row, response in enumerate(responses):
        tokens[row, : len(response.tokens)] = torch.tensor(response.tokens)
    lengths = torch.tensor([len(r.tokens) for r in responses])
    prompt_lengths = torch.tensor([r.prompt_length for r in responses])
    return Batch(tokens.to(device), lengths.to(device), prompt_lengths.to(device))


def epochs(responses: list[Response], batch_sequences: int, seed: int) -> Iterator[list[Response]]:
    """Endless batches; every epoch visits each response once, in batches of similar length, batches shuffled."""
    epoch = 0
    while True:
        generator = torch.Generator().manual_seed(seed * 100_003 + epoch)
        jitter = torch.rand(len(responses), generator=generator).mul(32).tolist()
        order = sorted(range(len(responses)), key=lambda i: len(responses[i].tokens) + jitter[i])
        starts = torch.arange(0, len(order), batch_sequences)[
            torch.randperm(-(-len(order) // batch_sequences), generator=generator)
        ]
        for start in starts.tolist():
            yield [responses[i] for i in order[start : start + batch_sequences]]
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


def draft_hidden(
    network: DFlashDrafter, embedding: nn.Module, batch: Batch, taps: Tensor, anchors: Tensor, block_size: int
) -> Tensor:
    """Hidden states [S, A, block - 1, H] of the draft slots for every anchor of ``anchors`` [S, A].

    Each block attends to the context strictly before its anchor and to itself, never to another anchor's block.
    """
    sequences, count = anchors.shape
    width = batch.tokens.shape[1]
    device = anchors.device
    block = torch.full((sequences, count, block_size), network.config.mask_token_id, device=device)
    block[:, :, 0] = batch.tokens.gather(1, anchors)
    positions = (anchors[:, :, None] + torch.arange(block_size, device=device)).flatten(1)  # [S, A x block]
    column = torch.arange(width, device=device)
    before = column < anchors[:, :, None]  # [S, A, T]
    own = torch.eye(count, dtype=torch.bool, device=device).expand(sequences, -1, -1)  # [S, A, A]
    allowed = torch.cat([before, own.repeat_interleave(block_size, dim=2)], dim=2).repeat_interleave(block_size, dim=1)
    context_positions = column.expand(sequences, -1)
    context = network.encode_context(taps, context_positions)
    hidden: Tensor = network(embedding(block.flatten(1)), positions, context, context_positions, allowed[:, None])
    return hidden.view(sequences, count, block_size, -1)[:, :, 1:]


def drafter_loss(
    network: DFlashDrafter,
    embedding: nn.Module,
    head_weight: Tensor,
    batch: Batch,
    taps: Tensor,
    *,
    anchors: int,
    block_size: int,
    decay: float,
    teacher: Tensor | None = None,
    teacher_share: float = 0.0,
    generator: torch.Generator,
) -> tuple[Tensor, Tensor]:
    """Weighted cross-entropy of the draft slots and the share of right top-1 guesses by slot [block - 1].

    Slot k of an anchor at position p is trained on the token at p + k, weight exp(-(k - 1) / ``decay``).
    """
    where, real = choose_anchors(batch, anchors, generator)  # [S, A]
    hidden = draft_hidden(network, embedding, batch, taps, where, block_size)
    slot = torch.arange(1, block_size, device=where.device)
    target = where[:, :, None] + slot  # [S, A, block - 1]
    known = (target < batch.lengths[:, None, None]) & real[:, :, None]
    labels = batch.tokens.gather(1, target.clamp(max=batch.tokens.shape[1] - 1).flatten(1)).view_as(target)
    weight = torch.exp(-(slot - 1).float() / decay).expand_as(target)[known]

    def entropies(rows: Tensor, wanted: Tensor, taught: Tensor | None) -> tuple[Tensor, Tensor]:
        logits = network.logits(rows, head_weight).float()  # [rows, V]
        entropy = F.cross_entropy(logits, wanted, reduction="none")
        if taught is not None:
            with torch.no_grad():
                probabilities = F.linear(taught, head_weight).float().softmax(-1)
            soft = F.cross_entropy(logits, probabilities, reduction="none")
            entropy = (1 - teacher_share) * entropy + teacher_share * soft
        return entropy, logits.argmax(-1) == wanted

    teachers: Sequence[Tensor | None] = [None] * max(1, -(-int(known.sum()) // LOSS_ROWS))
    if teacher is not None:  # the target's state before the label chose it
        before = (target - 1).clamp(max=teacher.shape[1] - 1)[known]  # [M]
        row = torch.arange(target.shape[0], device=where.device)[:, None, None].expand_as(target)[known]
        teachers = torch.split(teacher[row, before], LOSS_ROWS)
    parts = [
        checkpoint(entropies, *rows, use_reentrant=False)
        for rows in zip(
            torch.split(hidden[known], LOSS_ROWS), torch.split(labels[known], LOSS_ROWS), teachers, strict=True
        )
    ]
    entropy = torch.cat([part[0] for part in parts])  # [M]
    right = torch.zeros(target.shape, device=where.device)
    right[known] = torch.cat([part[1] for part in parts]).float()
    accuracy = right.sum((0, 1)) / known.sum((0, 1)).clamp(min=1)
    return (entropy * weight).sum() / weight.sum().clamp(min=1e-6), accuracy.detach()
