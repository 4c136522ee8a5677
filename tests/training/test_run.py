"""A whole training run on a tiny target: it learns, resumes exactly, and saves what loads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.progress import Progress
from training_samples import tiny_target, tiny_tokenizer

from drafttree.drafter.loading import load_drafter
from drafttree.errors import UserError
from drafttree.training.config import TrainingConfig
from drafttree.training.data import draft_hidden
from drafttree.training.run import TrainingRun
from drafttree.training.trainer import Trainer
from drafttree.transformers.generation import generate

PROMPTS = [f"w{i} w{i * 7 % 59}" for i in range(40)]


def settings(**changes: Any) -> TrainingConfig:
    values: dict[str, Any] = dict(
        layers=2, block_size=4, mask_token_id=3, max_new_tokens=24, epochs=20, learning_rate=1e-2, batch_sequences=8,
        anchors=8, held_out=4, own_prompts=12, budget=8, sample_temperatures=(0.0, 1.0), evaluate_every=1000,
    )  # fmt: skip
    return TrainingConfig(**{**values, **changes})


def start(out: Path, config: TrainingConfig, target: Any = None) -> TrainingRun:
    return TrainingRun(
        target or tiny_target(), tiny_tokenizer(), config, out, slots=16, progress=Progress(disable=True)
    )


def test_a_run_learns_and_its_drafter_loads_and_drafts(tmp_path: Path) -> None:
    target = tiny_target()
    run = start(tmp_path, settings(), target)
    training, sets = run.responses(PROMPTS, {"own": ["w1 w2"]})
    acceptance = run.train(training, sets)
    assert acceptance["held-out"].chain > 2.0
    assert acceptance["held-out"].tree >= acceptance["held-out"].chain
    drafter = load_drafter(str(tmp_path / "drafter"), target)
    prompt = sets["own"][0].tokens[: sets["own"][0].prompt_length]
    plain = generate(target, None, prompt, method="plain", max_new_tokens=24)
    assert plain.tokens == sets["own"][0].tokens[len(prompt) :]  # slots decode what the engine decodes
    chain = generate(target, drafter, prompt, method="chain", max_new_tokens=24)
    assert chain.tokens == plain.tokens and chain.tau > 2.0
    facts = json.loads((tmp_path / "drafter" / "training.json").read_text())
    assert facts["acceptance"].keys() == {"held-out", "own"}


def test_a_finished_drafter_takes_the_targets_states_as_they_are(tmp_path: Path) -> None:
    target = tiny_target()
    training, sets = start(tmp_path, settings(own_prompts=0), target).responses(PROMPTS, {})
    trainer = Trainer(target, settings(), training, sets, tmp_path)
    raw = trainer.store.batch([0, 1])
    trainer.store.even_out()
    scale = trainer.store.scale
    assert float(scale.max() / scale.min()) > 1.2  # there is something to even out
    anchors = torch.tensor([[6, 9, 14], [6, 8, 20]])
    embedding = target.get_input_embeddings()
    expected = draft_hidden(trainer.network, embedding, trainer.store.batch([0, 1]), anchors)
    assert torch.allclose(draft_hidden(trainer.finished(), embedding, raw, anchors), expected, atol=1e-4)


def test_responses_are_the_targets_greedy_ones(tmp_path: Path) -> None:
    target = tiny_target()
    run = start(tmp_path, settings(sample_temperatures=(0.0,), own_prompts=0), target)
    training, _ = run.responses(PROMPTS, {})
    assert len(training) == 36
    for response in training[:12]:
        ids = torch.tensor([response.tokens[: response.prompt_length]])
        expected = target.generate(ids, max_new_tokens=24, do_sample=False, pad_token_id=0)[0].tolist()
        assert response.tokens == expected


def test_kept_states_change_nothing(tmp_path: Path) -> None:
    results = []
    for keep in (False, True):
        run = start(tmp_path / str(keep), settings(keep_taps=keep, epochs=2))
        results.append(run.train(*run.responses(PROMPTS, {})))
    assert results[0] == results[1]


def test_an_interrupted_run_goes_on_as_if_nothing_had_happened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = settings(epochs=3)
    whole = start(tmp_path / "whole", config)
    data = whole.responses(PROMPTS, {})
    whole.train(*data)

    step = Trainer.train_step

    def interrupted(self: Trainer, batch: Any) -> Any:
        if self.step == 11:
            self.save_checkpoint()
            raise KeyboardInterrupt
        return step(self, batch)

    cut = start(tmp_path / "cut", config)
    (tmp_path / "cut").mkdir()
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Trainer, "train_step", interrupted)
        cut.train(*data)
    start(tmp_path / "cut", config).train(*data)
    weights = [(tmp_path / name / "drafter" / "model.safetensors").read_bytes() for name in ("whole", "cut")]
    assert weights[0] == weights[1]


def test_interrupted_generation_keeps_what_was_finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from drafttree.training import responses

    original = responses.slot_responses

    def broken(*args: Any) -> Any:
        for count, response in enumerate(original(*args)):
            if count == 20:
                raise KeyboardInterrupt
            yield response

    run = start(tmp_path, settings(own_prompts=0))
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(responses, "slot_responses", broken)
        jobs = run._jobs(PROMPTS, (0.0,))
        run.generate("responses", jobs, 24, "")
    kept = list(responses.read_shards(tmp_path / "responses"))
    assert len(kept) == 20
    everything = run.generate("responses", jobs, 24, "")
    assert [r.job for r in everything] == list(range(len(PROMPTS)))


def test_other_prompts_or_settings_are_refused_by_name(tmp_path: Path) -> None:
    run = start(tmp_path, settings(own_prompts=0, epochs=1))
    data = run.responses(PROMPTS, {})
    with pytest.raises(UserError, match=r"jobs\.json: belongs to other prompts"):
        run.generate("responses", run._jobs(PROMPTS[:5], (0.0,)), 24, "")
    run.train(*data)
    with pytest.raises(UserError, match=r"checkpoint\.pt: belongs to a run with other settings"):
        start(tmp_path, settings(own_prompts=0, epochs=1, seed=5)).train(*data)
    (tmp_path / "checkpoint.pt").write_bytes(b"broken")
    with pytest.raises(UserError, match="not a checkpoint"):
        start(tmp_path, settings(own_prompts=0, epochs=1)).train(*data)
