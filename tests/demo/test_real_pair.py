"""The demo's real target and drafter: the same tokens, in fewer steps. Slow, and fetches the target."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console

from drafttree.bench.runs import Method, run
from drafttree.demo.cache import default_cache
from drafttree.demo.default_drafter import PLACE
from drafttree.demo.prompts import GSM8K, HUMANEVAL, MT_BENCH, OWN, read_set
from drafttree.demo.target import demo_target
from drafttree.drafter.loading import load_drafter
from drafttree.errors import UserError
from drafttree.sampling import SamplingParams
from drafttree.training.prompts import chat_ids
from drafttree.transformers.divergence import first_divergence
from drafttree.transformers.loading import load_target

DRAFTER = Path(__file__).resolve().parents[2] / PLACE
TOKENS = 48

pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(not DRAFTER.is_dir(), reason=f"needs {PLACE}"),
]


@pytest.fixture(scope="module")
def pair() -> tuple[Any, Any, Any]:
    try:
        directory = demo_target(default_cache(), Console(stderr=True))
    except UserError as error:
        pytest.skip(f"needs the target: {error}")
    model, tokenizer = load_target(directory)
    return model, tokenizer, load_drafter(DRAFTER, model)


@pytest.mark.parametrize("params", [SamplingParams(), SamplingParams(temperature=0.8, top_p=0.95, seed=4)], ids=str)
@pytest.mark.parametrize("source", [OWN, HUMANEVAL, GSM8K, MT_BENCH])
def test_the_same_tokens_in_fewer_steps(source: str, params: SamplingParams, pair: tuple[Any, Any, Any]) -> None:
    model, tokenizer, drafter = pair
    prompt = read_set(source, default_cache())[1]
    ids = torch.tensor([chat_ids(tokenizer, prompt.text)])
    plain, chain, tree = (run(model, drafter, ids, Method(name), TOKENS, params) for name in ("plain", "chain", "tree"))
    for other in (chain, tree):
        found = first_divergence(model, ids, plain.tokens, other.tokens, params)
        assert found is None or found.near_tie, (prompt.name, found)
        assert other.steps < plain.steps
    assert tree.steps <= chain.steps
