"""Responses on disk: shards that are complete or absent, with a note of the jobs that they answer."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from drafttree.errors import UserError
from drafttree.files import write_atomically


@dataclass(frozen=True)
class Response:
    """One prompt with the target's continuation; ``job`` is its number in the list of jobs."""

    job: int
    tokens: list[int]
    prompt_length: int
    temperature: float


@dataclass(frozen=True)
class Job:
    """One response to generate."""

    prompt: list[int]
    temperature: float


def read_shards(directory: Path) -> Iterator[Response]:
    """All cached responses; a shard that cannot be read is an error that names it."""
    for file in sorted(directory.glob("shard-*.safetensors")):
        try:
            data = load_file(file)
            tokens, lengths = data["tokens"].tolist(), data["lengths"].tolist()
            rest = zip(
                data["jobs"].tolist(), data["prompt_lengths"].tolist(), data["temperatures"].tolist(), strict=True
            )
        except (OSError, SafetensorError, KeyError) as error:
            raise UserError(f"{file}: not a shard of responses ({error}); delete it to generate it again") from None
        start = 0
        for length, (job, prompt_length, temperature) in zip(lengths, rest, strict=True):
            yield Response(job, tokens[start : start + length], prompt_length, temperature)
            start += length


def write_shard(directory: Path, responses: list[Response]) -> None:
    """Add a shard of ``responses``, at least one."""
    number = len(list(directory.glob("shard-*.safetensors")))
    temporary = directory / f".shard-{number:05d}.tmp"
    tokens = torch.tensor([t for r in responses for t in r.tokens], dtype=torch.int32)
    save_file(
        {
            "tokens": tokens.to(torch.uint16) if int(tokens.max()) < 2**16 else tokens,
            "lengths": torch.tensor([len(r.tokens) for r in responses], dtype=torch.int32),
            "jobs": torch.tensor([r.job for r in responses], dtype=torch.int32),
            "prompt_lengths": torch.tensor([r.prompt_length for r in responses], dtype=torch.int32),
            "temperatures": torch.tensor([r.temperature for r in responses], dtype=torch.float32),
        },
        temporary,
    )
    os.replace(temporary, directory / f"shard-{number:05d}.safetensors")


def claim(directory: Path, jobs: list[Job], max_new_tokens: int) -> None:
    """Note in ``directory`` which jobs its shards answer; other jobs than the noted ones are an error."""
    digest = hashlib.sha256(json.dumps([[j.prompt, j.temperature] for j in jobs]).encode()).hexdigest()
    note = {"jobs": len(jobs), "max_new_tokens": max_new_tokens, "sha256": digest}
    file = directory / "jobs.json"
    if not file.exists():
        write_atomically(file, json.dumps(note, indent=1) + "\n")
        return
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(
            f"{file}: cannot be read ({error}); delete its folder to generate the responses again"
        ) from None
    if found != note:
        raise UserError(f"{file}: belongs to other prompts or settings; delete its folder or choose another one")
