"""The target's own responses: what a drafter is trained on. Cached on disk in shards, resumable."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rich.progress import Progress
from torch import nn

from drafttree.training.lockstep import lockstep_responses
from drafttree.training.shards import Job, Response, claim, read_shards, write_shard
from drafttree.training.slots import SlotDecoder

SHARD_RESPONSES = 4096  # a shard is written when so many are finished,
SHARD_SECONDS = 120.0  # or so long after the last one
CHUNK_STEPS = 16  # tokens decoded between two looks at what has finished
PREFILL_ROWS = 256


def generate_responses(
    model: nn.Module,
    jobs: list[Job],
    directory: Path,
    *,
    max_new_tokens: int,
    stop_token_ids: set[int],
    slots: int,
    progress: Progress,
    label: str = "responses of the target",
) -> None:
    """Generate the responses that ``directory`` lacks. An interruption loses at most what no shard holds yet."""
    directory.mkdir(parents=True, exist_ok=True)
    claim(directory, jobs, max_new_tokens)
    done = {response.job for response in read_shards(directory)}
    waiting = [number for number in range(len(jobs)) if number not in done]
    task = progress.add_task(label, total=len(jobs), completed=len(done))
    if not waiting:
        return
    finished: list[Response] = []
    written = time.monotonic()
    make = lockstep_responses if is_hybrid(model) else slot_responses
    try:
        for response in make(model, jobs, waiting, max_new_tokens, stop_token_ids, slots):
            finished.append(response)
            progress.advance(task)
            if len(finished) >= SHARD_RESPONSES or time.monotonic() - written > SHARD_SECONDS:
                write_shard(directory, finished)
                finished, written = [], time.monotonic()
    finally:
        if finished:
            write_shard(directory, finished)


def is_hybrid(model: Any) -> bool:
    """Whether some layers of ``model`` keep a recurrent state, which cannot be padded."""
    return "linear_attention" in (getattr(model.config.get_text_config(), "layer_types", None) or ())


def slot_responses(
    model: nn.Module, jobs: list[Job], waiting: list[int], max_new_tokens: int, stop_token_ids: set[int], slots: int
) -> Iterator[Response]:
    """Responses in the order in which they finish; a finished slot is refilled at once."""
    waiting = sorted(waiting, key=lambda number: -len(jobs[number].prompt))  # equal lengths share a prefill
    capacity = len(jobs[waiting[0]].prompt) + max_new_tokens + CHUNK_STEPS
    slots = min(slots, len(waiting))
    decoder = SlotDecoder(model, slots, capacity)
    running: dict[int, tuple[int, list[int]]] = {}  # slot -> job, response so far
    free = list(range(slots))
    try:
        while waiting or running:
            while free and waiting:
                batch = [waiting.pop() for _ in range(min(len(free), len(waiting), PREFILL_ROWS))]
                taken = [free.pop() for _ in batch]
                first = decoder.prefill([jobs[n].prompt for n in batch], taken, [jobs[n].temperature for n in batch])
                running |= {slot: (n, [token]) for slot, n, token in zip(taken, batch, first, strict=True)}
            columns = decoder.steps(CHUNK_STEPS).t().tolist()
            for slot, (number, response) in list(running.items()):
                response.extend(columns[slot])
                tokens = cut_at_end(response, max_new_tokens, stop_token_ids)
                if tokens is None:
                    continue
                del running[slot]
                free.append(slot)
                job = jobs[number]
                yield Response(number, job.prompt + tokens, len(job.prompt), job.temperature)
    finally:
        decoder.close()


def cut_at_end(response: list[int], max_new_tokens: int, stop_token_ids: set[int]) -> list[int] | None:
    """The response up to its stop token or its longest length; None while it has reached neither."""
    end = next((i + 1 for i, token in enumerate(response) if token in stop_token_ids), None)
    if end is None and len(response) < max_new_tokens:
        return None
    return response[: min(end or max_new_tokens, max_new_tokens)]
