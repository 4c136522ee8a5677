"""Sampling through the engine, over many seeds: the joint distribution is the target's, siblings accepted or not."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from engine_samples import tiny_target
from scipy import stats

from drafttree.sampling import SamplingParams, filtered_log_probs
from drafttree.transformers import generation
from drafttree.transformers.cache import KeyValueCache
from drafttree.transformers.generation import generate

VOCABULARY, SEEDS, PROMPT = 5, 2000, [2, 0]
TARGET = tiny_target("llama", vocab_size=VOCABULARY, num_hidden_layers=2, hidden_size=16, initializer_range=0.5)
FILTERS: list[dict[str, Any]] = [dict(temperature=1.0), dict(temperature=0.9, top_k=4, top_p=0.95)]


class FixedDrafter:
    """Always the same distributions, of a drafter that is often wrong."""

    class config:
        block_size, target_layer_ids = 4, (0,)

    logits = torch.randn(3, VOCABULARY, generator=torch.Generator().manual_seed(4))

    def new_context(self, capacity: int) -> object:
        return object()

    def extend(self, context: object, taps: torch.Tensor, start_position: int) -> None:
        pass

    def draft(self, context: object, anchor: int, block_size: int) -> torch.Tensor:
        return self.logits[: block_size - 1]


@torch.inference_mode()
def joint(options: dict[str, Any]) -> dict[tuple[int, ...], float]:
    """Probability of every three tokens after the first one, from the model alone."""
    texts = torch.tensor([[*PROMPT, *four] for four in itertools.product(range(VOCABULARY), repeat=4)])
    logits = TARGET(texts).logits[:, len(PROMPT) - 1 : -1]  # [texts, 4, V]
    log_probs = filtered_log_probs(logits.flatten(0, 1), SamplingParams(**options)).view_as(logits)
    chosen = log_probs.gather(-1, texts[:, len(PROMPT) :, None])[..., 0].sum(-1).exp()
    found: dict[tuple[int, ...], float] = {}
    for text, share in zip(texts.tolist(), chosen.tolist(), strict=True):
        triple = tuple(text[-3:])
        found[triple] = found.get(triple, 0.0) + share
    return found


def p_value(counts: dict[tuple[int, ...], int], expected: dict[tuple[int, ...], float]) -> float:
    """Chi-square, cells expected fewer than 5 times taken together."""
    cells, rare = [], [0.0, 0.0]
    for triple, share in expected.items():
        pair = (counts.get(triple, 0), share * SEEDS)
        if pair[1] >= 5:
            cells.append(pair)
        else:
            rare = [rare[0] + pair[0], rare[1] + pair[1]]
    if rare[1] >= 5:
        cells.append((int(rare[0]), rare[1]))
    seen = sum(count for count, _ in cells)
    total = sum(share for _, share in cells)
    return float(stats.chisquare([c for c, _ in cells], [e * seen / total for _, e in cells]).pvalue)


def sample(options: dict[str, Any]) -> dict[tuple[int, ...], int]:
    counts: dict[tuple[int, ...], int] = {}
    drafter: Any = FixedDrafter()
    for seed in range(SEEDS):
        found = generate(
            TARGET, drafter, PROMPT, budget=4, spine=1, max_new_tokens=4, seed=seed, stop_token_ids=[], **options
        )
        triple = tuple(found.tokens[1:])
        counts[triple] = counts.get(triple, 0) + 1
    return counts


@pytest.mark.parametrize("options", FILTERS, ids=["plain", "filtered"])
def test_three_tokens_in_a_row(options: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    jumps = [0]
    commit = KeyValueCache.commit

    def counted(self: KeyValueCache, path: list[int]) -> None:
        jumps[0] += list(path) != list(range(len(path)))
        commit(self, path)

    monkeypatch.setattr(KeyValueCache, "commit", counted)
    counts = sample(options)
    assert jumps[0] > SEEDS / 10, "hardly any sibling was accepted"
    assert p_value(counts, joint(options)) > 1e-3


def test_a_drafter_that_decides_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """A root that leans to its children, as "accept if p / q is large enough" does, is there to be seen."""
    walk = generation._walk

    def biased(tree: Any, logits: torch.Tensor, positions: torch.Tensor, params: SamplingParams) -> Any:
        pushed = logits.clone()
        pushed[0, tree.tokens[tree.parents == 0]] += 0.5
        return walk(tree, pushed, positions, params)

    monkeypatch.setattr(generation, "_walk", biased)
    assert p_value(sample(FILTERS[0]), joint(FILTERS[0])) < 1e-3
