"""A whole training run: prompts, the target's responses, the drafter."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import torch
from rich.progress import Progress

from drafttree.drafter.saving import save_drafter
from drafttree.errors import UserError
from drafttree.files import write_atomically
from drafttree.training.config import TrainingConfig
from drafttree.training.evaluate import Acceptance
from drafttree.training.prompts import chat_ids, own_prompts, user_prefix
from drafttree.training.responses import generate_responses
from drafttree.training.shards import Job, Response, read_shards
from drafttree.training.trainer import Trainer
from drafttree.transformers.request import stop_ids

OWN_PROMPT_TOKENS = 96


class TrainingRun:
    """Everything under one folder ``out``: responses, log, checkpoint and, at the end, the drafter.

    Each stage finds what an earlier, interrupted run left there and goes on from it.
    """

    def __init__(
        self, target: Any, tokenizer: Any, config: TrainingConfig, out: Path, *, slots: int, progress: Progress
    ) -> None:
        self.target, self.tokenizer, self.config, self.out = target, tokenizer, config, out
        self.slots, self.progress = slots, progress
        self.stop_token_ids = set(stop_ids(target))

    def generate(self, name: str, jobs: list[Job], max_new_tokens: int, label: str) -> list[Response]:
        """The responses to ``jobs``, from the folder ``name`` or made now; in the order of the jobs."""
        directory = self.out / name
        torch.manual_seed(self.config.seed)
        generate_responses(
            self.target,
            jobs,
            directory,
            max_new_tokens=max_new_tokens,
            stop_token_ids=self.stop_token_ids,
            slots=self.slots,
            progress=self.progress,
            label=label,
        )
        return sorted(read_shards(directory), key=lambda response: response.job)

    def write_prompts(self) -> list[str]:
        """Prompts of the target's own making, none if the settings ask for none."""
        if not self.config.own_prompts:
            return []
        job = Job(user_prefix(self.tokenizer), 1.0)
        made = self.generate("own-prompts", [job] * self.config.own_prompts, OWN_PROMPT_TOKENS, "prompts of the target")
        return own_prompts(self.tokenizer, [r.tokens[r.prompt_length :] for r in made], self.stop_token_ids)

    def responses(self, prompts: list[str], evaluation: dict[str, list[str]]) -> tuple[list[Response], dict[str, Any]]:
        """Responses to train on, and the greedy responses to the held-out prompts and to each set of ``evaluation``."""
        training, held_out = split(prompts, self.config.held_out)
        training += self.write_prompts()
        sets = {}
        for name, texts in {"held-out": held_out, **evaluation}.items():
            jobs = self._jobs(texts, (0.0,))
            sets[name] = self.generate(f"responses-{name}", jobs, self.config.max_new_tokens, f"responses, {name}")
        jobs = self._jobs(training, self.config.sample_temperatures)
        return self.generate("responses", jobs, self.config.max_new_tokens, "responses to train on"), sets

    def _jobs(self, texts: list[str], temperatures: tuple[float, ...]) -> list[Job]:
        ids = [chat_ids(self.tokenizer, text) for text in texts]
        kept = [i for i in ids if len(i) <= self.config.max_prompt_tokens]
        if not kept:
            limit = self.config.max_prompt_tokens
            raise UserError(
                f"training: prompts: found none of at most max_prompt_tokens {limit}, expected at least one"
            )
        return [Job(prompt, temperature) for temperature in temperatures for prompt in kept]

    def train(self, training: list[Response], held_out: dict[str, list[Response]]) -> dict[str, Acceptance]:
        """Train, save the drafter under ``out``/drafter and return its acceptance on every held-out set."""
        trainer = Trainer(self.target, self.config, training, held_out, self.out)
        trainer.resume()
        log = self.out / "log.jsonl"
        acceptance = trainer.run(self.progress, lambda row: _append(log, row))
        self.save(trainer, acceptance)
        return acceptance

    def save(self, trainer: Trainer, acceptance: dict[str, Acceptance]) -> None:
        """Write the drafter, then the settings and results beside it."""
        directory = self.out / "drafter"
        save_drafter(trainer.finished(), directory)
        facts = {
            "settings": self.config.model_dump(mode="json"),
            "responses": len(trainer.training),
            "response_tokens": sum(len(r.tokens) - r.prompt_length for r in trainer.training),
            "steps": trainer.step,
            "acceptance": {name: vars(a) for name, a in acceptance.items()},
        }
        write_atomically(directory / "training.json", json.dumps(facts, indent=1) + "\n")


def split(prompts: list[str], held_out: int) -> tuple[list[str], list[str]]:
    """Distinct ``prompts`` without and with the ``held_out`` ones; which ones depends on their text alone."""
    distinct = list(dict.fromkeys(prompts))
    if len(distinct) <= held_out:
        raise UserError.field("training", "prompts", len(distinct), f"more distinct prompts than held_out, {held_out}")
    ordered = sorted(distinct, key=lambda text: hashlib.sha256(text.encode()).digest())
    chosen = set(ordered[:held_out])
    return [text for text in distinct if text not in chosen], ordered[:held_out]


def _append(file: Path, row: dict[str, Any]) -> None:
    with file.open("a", encoding="utf-8") as log:
        log.write(json.dumps(row) + "\n")
