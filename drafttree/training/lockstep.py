"""Batched generation in lock step, for models whose layers keep a recurrent state and so cannot be padded."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import nn
from transformers import DynamicCache

from drafttree.training.shards import Job, Response
from drafttree.training.slots import sample
from drafttree.transformers.compat import cache_keyword


@torch.inference_mode()
def lockstep_responses(
    model: nn.Module, jobs: list[Job], waiting: list[int], max_new_tokens: int, stop_token_ids: set[int], slots: int
) -> Iterator[Response]:
    """Responses, a batch of at most ``slots`` prompts of one length at a time, through the model's own cache."""
    by_length: dict[int, list[int]] = {}
    for number in waiting:
        by_length.setdefault(len(jobs[number].prompt), []).append(number)
    for numbers in by_length.values():
        for start in range(0, len(numbers), slots):
            batch = numbers[start : start + slots]
            made = _decode(model, [jobs[n] for n in batch], max_new_tokens, stop_token_ids)
            for number, row in zip(batch, made, strict=True):
                end = next((i + 1 for i, token in enumerate(row) if token in stop_token_ids), len(row))
                job = jobs[number]
                yield Response(number, job.prompt + row[:end], len(job.prompt), job.temperature)


def _decode(model: Any, jobs: list[Job], max_new_tokens: int, stop_token_ids: set[int]) -> list[list[int]]:
    device = next(model.parameters()).device
    cache = DynamicCache(config=model.config.get_text_config())
    temperature = torch.tensor([job.temperature for job in jobs], device=device)
    ids = torch.tensor([job.prompt for job in jobs], device=device)
    stops = torch.tensor(sorted(stop_token_ids), device=device)
    ended = torch.zeros(len(jobs), dtype=torch.bool, device=device)
    tokens = []
    for step in range(max_new_tokens):
        out = model.model(input_ids=ids, use_cache=True, **{cache_keyword(model): cache})
        chosen = sample(model.lm_head(out.last_hidden_state[:, -1]), temperature)
        tokens.append(chosen)
        ids = chosen[:, None]
        ended |= torch.isin(chosen, stops)
        if step % 16 == 15 and bool(ended.all()):
            break
    return [[int(t) for t in row] for row in torch.stack(tokens, 1).tolist()]
