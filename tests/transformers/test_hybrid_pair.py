"""Storage of the hybrid pair, and the pair itself where its weights are present."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest
import torch

from drafttree.training.prompts import chat_ids
from drafttree.transformers.generation import generate

PAIR = Path(__file__).resolve().parents[2] / "fixtures" / "hybrid_pair"
needs_weights = pytest.mark.skipif(
    not (PAIR / "target.safetensors").is_file() or not (PAIR / "drafter").is_dir(),
    reason="the pair's weights are not in the repository yet",
)


def script(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(f"pair_{name}", PAIR / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_stored_weights_come_back_within_half_a_step(tmp_path: Path) -> None:
    torch.manual_seed(0)
    matrix, vector = torch.randn(7, 33) * torch.logspace(-3, 2, 7)[:, None], torch.randn(5)
    matrix[3] = 0
    quantise = script("quantise")
    quantise.save({"m": matrix, "v": vector}, tmp_path / "w.safetensors", {"steps": 3})
    found = quantise.load(tmp_path / "w.safetensors")
    step = matrix.abs().amax(1, keepdim=True) / 127
    assert bool(((found["m"] - matrix).abs() <= 0.5001 * step).all())
    assert torch.equal(found["v"], vector)
    again = quantise.dequantise(quantise.quantise(found))
    assert torch.allclose(again["m"], found["m"], rtol=1e-6)
    assert (tmp_path / "w.safetensors").stat().st_size < 1500


def test_loaded_values_are_one_multiplication(tmp_path: Path) -> None:
    """The same float32 on every machine: int8 times scale."""
    quantise = script("quantise")
    stored = quantise.quantise({"m": torch.randn(4, 9, generator=torch.Generator().manual_seed(1))})
    assert stored["m"].dtype == torch.int8
    expected = stored["m"].numpy().astype("float32") * stored["m.scale"].numpy()[:, None]
    assert (quantise.dequantise(stored)["m"].numpy() == expected).all()


@needs_weights
def test_the_pair_is_small() -> None:
    names = ("target.safetensors", "drafter/model.safetensors", "tokenizer.json")
    assert sum((PAIR / name).stat().st_size for name in names) <= 8e6


@pytest.fixture(scope="module")
def pair() -> Any:
    return script("load").load(dtype=torch.float64)


@needs_weights
@pytest.mark.parametrize(
    ("options", "least"), [({}, 1.3), ({"temperature": 1.0, "seed": 5}, 1.0)], ids=["greedy", "sampled"]
)
def test_the_pairs_methods_agree_in_float64(pair: Any, options: dict[str, Any], least: float) -> None:
    model, tokenizer, drafter = pair
    lines = (PAIR / "held_out_prompts.jsonl").read_text(encoding="utf-8").splitlines()
    for line in lines[:2]:
        ids = chat_ids(tokenizer, json.loads(line)["prompt"])
        plain = generate(model, None, ids, method="plain", max_new_tokens=64, **options)
        for method in ("chain", "tree"):
            drafted = generate(model, drafter, ids, method=method, max_new_tokens=64, **options)
            assert drafted.tokens == plain.tokens, method
            assert drafted.tau > least
