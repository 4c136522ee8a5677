"""Train a DFlash drafter on a target's responses."""

from __future__ import annotations

import copy
import math
import os
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from rich.progress import Progress
from torch import nn

from drafttree.drafter.network import DFlashDrafter
from drafttree.errors import UserError
from drafttree.training.config import TrainingConfig
from drafttree.training.data import drafter_loss, epochs, shorten_loop
from drafttree.training.evaluate import Acceptance, evaluate
from drafttree.training.initial import drafter_config, initialise
from drafttree.training.shards import Response
from drafttree.training.store import Batch, ResponseStore

CHECKPOINT = "checkpoint.pt"


class Trainer:
    """One run: data, optimiser and schedule; writes a checkpoint that :meth:`run` resumes from."""

    def __init__(
        self,
        target: Any,
        config: TrainingConfig,
        training: list[Response],
        held_out: dict[str, list[Response]],
        out: Path,
    ) -> None:
        self.target, self.config, self.out = target, config, out
        self.device = next(target.parameters()).device
        self.training = [
            r
            for r in (shorten_loop(response, config.keep_loop_tokens) for response in training)
            if len(r.tokens) - r.prompt_length >= 2
        ]
        if not self.training:
            raise UserError("training: responses: found none of two tokens or more, expected at least one")
        self.held_out = held_out
        self.network = DFlashDrafter(drafter_config(config, target))
        self.store = ResponseStore(
            target, self.network.config.target_layer_ids, self.training, keep_taps=config.keep_taps
        )
        initialise(self.network, config.seed)
        self.network.to(self.device)
        self.total_steps = max(1, round(config.epochs * math.ceil(len(self.training) / config.batch_sequences)))
        matrices = [p for p in self.network.parameters() if p.ndim >= 2]
        vectors = [p for p in self.network.parameters() if p.ndim < 2]
        rate = config.learning_rate
        # Muon's update has the size of AdamW's, so one learning rate serves both
        self.optimisers: tuple[torch.optim.Optimizer, ...] = (
            torch.optim.Muon(matrices, lr=rate, weight_decay=config.weight_decay, adjust_lr_fn="match_rms_adamw"),
            torch.optim.AdamW(vectors, lr=rate, weight_decay=0.0, betas=(0.9, 0.95)),
        )
        self.step = 0

    def learning_rate(self, step: int) -> float:
        """Linear warm-up, then a cosine down to zero."""
        warm = max(1, round(self.config.warmup * self.total_steps))
        if step < warm:
            return self.config.learning_rate * (step + 1) / warm
        share = (step - warm) / max(1, self.total_steps - warm)
        return self.config.learning_rate * 0.5 * (1 + math.cos(math.pi * min(1.0, share)))

    def save_checkpoint(self) -> None:
        """Write network, optimiser and step under a temporary name, then rename."""
        temporary = self.out / f".{CHECKPOINT}.tmp"
        state = {
            "config": self.config.model_dump_json(),
            "step": self.step,
            "network": self.network.state_dict(),
            "scale": self.store.scale,
            "optimisers": [optimiser.state_dict() for optimiser in self.optimisers],
        }
        torch.save(state, temporary)
        os.replace(temporary, self.out / CHECKPOINT)

    def resume(self) -> bool:
        """Load the checkpoint in ``out``, if there is one of the same settings; another one is an error."""
        file = self.out / CHECKPOINT
        if not file.exists():
            return False
        try:
            state = torch.load(file, map_location=self.device, weights_only=True)
            settings, step = state["config"], state["step"]
        except Exception as error:
            raise UserError(f"{file}: not a checkpoint of a training run ({error}); delete it to start again") from None
        if settings != self.config.model_dump_json():
            raise UserError(f"{file}: belongs to a run with other settings; delete it or choose another --out")
        self.network.load_state_dict(state["network"])
        self.store.scale = state["scale"]
        for optimiser, kept in zip(self.optimisers, state["optimisers"], strict=True):
            optimiser.load_state_dict(kept)
        self.step = int(step)
        return True

    def run(self, progress: Progress, report: Callable[[dict[str, Any]], None]) -> dict[str, Acceptance]:
        """Train to the end; calls ``report`` with loss, accuracy by slot and the held-out acceptance of every set."""
        config = self.config
        if self.step == 0:  # a resumed run has its scale from the checkpoint
            self.store.even_out()
        task = progress.add_task("states of the target", total=len(self.store), visible=config.keep_taps)
        for done in self.store.fill():
            progress.update(task, completed=done)
        batches = epochs(self.store.sizes, config.batch_sequences, config.seed)
        for _ in range(self.step):
            next(batches)
        task = progress.add_task("training", total=self.total_steps, completed=self.step)
        saved = started = time.monotonic()
        losses: list[torch.Tensor] = []
        while self.step < self.total_steps:
            loss, accuracy = self.train_step(self.store.batch(next(batches)))
            losses.append(loss)
            self.step += 1
            progress.advance(task)
            if self.step % 100 == 0 or self.step == self.total_steps:
                mean = torch.stack(losses).mean().item()
                losses.clear()
                report(
                    {
                        "step": self.step,
                        "loss": round(mean, 4),
                        "accuracy_by_slot": [round(x, 4) for x in accuracy.tolist()],
                        "seconds": round(time.monotonic() - started, 1),
                    }
                )
            if self.step % config.evaluate_every == 0 and self.step < self.total_steps:
                report(self._evaluation(self.evaluate()))
            if time.monotonic() - saved > config.checkpoint_seconds:
                self.save_checkpoint()
                saved = time.monotonic()
        self.save_checkpoint()
        acceptance = self.evaluate()
        report(self._evaluation(acceptance))
        return acceptance

    def train_step(self, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
        """One update; returns the loss and the share of right guesses by slot, both on the device."""
        # seeded by the step, so that a resumed run draws what an uninterrupted one would
        generator = torch.Generator(device=self.device).manual_seed(self.config.seed * 1_000_003 + self.step)
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.device.type != "cpu"):
            loss, accuracy = drafter_loss(
                self.network,
                self.target.get_input_embeddings(),
                self.target.get_output_embeddings().weight.detach(),
                batch,
                anchors=self.config.anchors,
                decay=self.config.loss_decay,
                generator=generator,
            )
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(self.network.parameters(), self.config.clip)
        for optimiser in self.optimisers:
            for group in optimiser.param_groups:
                group["lr"] = self.learning_rate(self.step)
            optimiser.step()
            optimiser.zero_grad(set_to_none=True)
        return loss.detach(), accuracy

    def finished(self) -> DFlashDrafter:
        """A copy of the network for unscaled states: the scale of the training is part of its first layer.

        A few channels of a language model's states are a hundred times larger than the rest and nearly constant.
        Training on evened-out channels lets one learning rate fit all of them.
        """
        network = copy.deepcopy(self.network)
        with torch.no_grad():
            network.fc.weight.mul_(self.store.scale)
        return network

    def evaluate(self) -> dict[str, Acceptance]:
        """Chain and tree acceptance on every set of held-out responses."""
        network = self.finished()
        return {
            name: evaluate(network, self.target, responses, budget=self.config.budget)
            for name, responses in self.held_out.items()
        }

    def _evaluation(self, acceptance: dict[str, Acceptance]) -> dict[str, Any]:
        return {"step": self.step, "held_out": {name: asdict(a) for name, a in acceptance.items()}}
