"""Hybrid targets: every method gives the target's own tokens, in float64 and token for token."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from functools import cache
from typing import Any

import pytest
import torch
from engine_samples import OracleDrafter
from hybrid_samples import HYBRIDS, tiny_hybrid

from drafttree.transformers import hybrid_layer
from drafttree.transformers.generation import generate
from drafttree.transformers.hybrid import HybridTarget
from drafttree.transformers.hybrid_state import GatedDeltaState
from drafttree.transformers.target import DenseTarget

PROMPT = [3, 14, 15, 9, 2, 6, 5]
SAMPLED: dict[str, Any] = dict(temperature=1.0, seed=7)
OPTIONS: dict[str, dict[str, Any]] = {"greedy": {}, "sampled": SAMPLED}


@cache
def plain(family: str, kind: str, count: int) -> list[int]:
    target = tiny_hybrid(family)
    return generate(target, None, PROMPT, method="plain", max_new_tokens=count, **OPTIONS[kind]).tokens


def drafted(family: str, kind: str, count: int, method: str = "tree", **options: Any) -> Any:
    drafter = OracleDrafter(PROMPT + plain(family, kind, count))
    arguments = dict(method=method, budget=14, max_new_tokens=count) | OPTIONS[kind] | options
    return generate(tiny_hybrid(family), drafter, PROMPT, **arguments)


@pytest.fixture
def jumps(monkeypatch: pytest.MonkeyPatch) -> list[list[int]]:
    """The accepted paths that left the front, 0, 1, 2, ..., of the tree."""
    found: list[list[int]] = []
    commit = HybridTarget.commit

    def counted(self: HybridTarget, path: Sequence[int]) -> None:
        if list(path) != list(range(len(path))):
            found.append(list(path))
        commit(self, path)

    monkeypatch.setattr(HybridTarget, "commit", counted)
    return found


def check_equal(family: str, kind: str, count: int, jumps: list[list[int]]) -> None:
    expected = plain(family, kind, count)
    result = drafted(family, kind, count, spine=True)
    assert result.tokens == expected
    assert result.tau > 2, "the oracle's tokens were hardly accepted"
    assert len(jumps) > count / 20, "hardly any path left the front of the tree"


@pytest.mark.parametrize("family", HYBRIDS)
@pytest.mark.parametrize("kind", OPTIONS)
def test_equal_to_plain(family: str, kind: str, jumps: list[list[int]]) -> None:
    check_equal(family, kind, 200, jumps)


@pytest.mark.parametrize("kind", OPTIONS)
def test_equal_over_two_thousand_tokens(kind: str, jumps: list[list[int]]) -> None:
    check_equal("qwen3_5", kind, 2000, jumps)


@pytest.mark.full
@pytest.mark.parametrize("family", [f for f in HYBRIDS if f != "qwen3_5"])
@pytest.mark.parametrize("kind", OPTIONS)
def test_equal_over_two_thousand_tokens_of_every_family(family: str, kind: str, jumps: list[list[int]]) -> None:
    check_equal(family, kind, 2000, jumps)


def test_a_wrong_commit_after_token_1000_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """The recurrent state follows other nodes than the accepted ones, once; text, keys and values are right."""
    expected = plain("qwen3_5", "sampled", 2000)
    commit = GatedDeltaState.commit
    counts = {"tokens": len(PROMPT), "wrong": 0}

    def once_wrong(self: GatedDeltaState, path: Sequence[int]) -> None:
        counts["tokens"] += len(path)
        if counts["tokens"] > 1000 and not counts["wrong"] and list(path) != list(range(len(path))):
            counts["wrong"] = counts["tokens"]
            path = range(len(path))
        commit(self, path)

    monkeypatch.setattr(GatedDeltaState, "commit", once_wrong)
    found = drafted("qwen3_5", "sampled", 2000).tokens
    assert counts["wrong"] > 1000
    assert found[:900] == expected[:900]
    assert found != expected


@pytest.mark.parametrize("family", HYBRIDS)
def test_chain_is_plain_and_a_spine_only_tree_is_the_chain(family: str) -> None:
    chain = drafted(family, "sampled", 150, method="chain")
    depth = OracleDrafter([]).config.block_size - 1
    spine = drafted(family, "sampled", 150, method="tree", budget=depth, spine=True)
    assert chain.tokens == spine.tokens == plain(family, "sampled", 150)
    # near the end the block is shorter than the budget, so the last steps' trees have siblings
    whole = sum(total <= 150 - depth - 1 for total in itertools.accumulate(chain.acceptance_lengths))
    assert whole > 30
    assert spine.acceptance_lengths[:whole] == chain.acceptance_lengths[:whole]


def test_a_tree_never_accepts_less_than_its_spine(monkeypatch: pytest.MonkeyPatch) -> None:
    """On the same step, from the same state."""
    from drafttree.transformers import generation

    lengths: list[tuple[int, int]] = []
    walk = generation._walk

    def both(tree: Any, logits: Any, positions: Any, params: Any) -> Any:
        step = walk(tree, logits, positions, params)
        choices = generation.choose(logits, positions, params).tolist()
        along, here = 1, 0
        for node in tree.spine():
            if int(tree.tokens[node - 1]) != choices[here]:
                break
            along, here = along + 1, node
        lengths.append((len(step.path), along))
        return step

    monkeypatch.setattr(generation, "_walk", both)
    drafted("qwen3_5", "sampled", 300, spine=True)
    assert all(tree >= spine for tree, spine in lengths)
    assert sum(tree > spine for tree, spine in lengths) > 20


@pytest.mark.parametrize("family", HYBRIDS)
def test_a_run_leaves_nothing_behind(family: str) -> None:
    """A, B, A: the second A gives the first one's tokens, and the model answers as it did before."""
    target = tiny_hybrid(family, dtype=torch.float32)
    ids = torch.tensor([PROMPT])
    before = target(input_ids=ids).logits
    names = set(target.get_decoder().layers[0].linear_attn.__dict__)
    arguments = dict(method="tree", max_new_tokens=60, **SAMPLED)
    drafter = OracleDrafter(PROMPT + plain(family, "sampled", 200))
    first = generate(target, drafter, PROMPT, **arguments).tokens
    generate(target, OracleDrafter([1] * 90), [1, 2, 3], **arguments)
    assert generate(target, drafter, PROMPT, **arguments).tokens == first
    assert torch.equal(target(input_ids=ids).logits, before)
    assert set(target.get_decoder().layers[0].linear_attn.__dict__) == names


def test_the_models_forward_is_back_after_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny_hybrid("qwen3_5")
    target = HybridTarget(model, (), 16, 4)

    def fail(*_args: Any, **_options: Any) -> Any:
        raise RuntimeError("in the middle of a verify")

    monkeypatch.setattr(hybrid_layer, "gated_delta_tree", fail)
    with pytest.raises(RuntimeError, match="middle"):
        target.prefill(torch.tensor(PROMPT))
    assert all("forward" not in mixer.__dict__ for mixer in target._mixers)


def test_a_verify_changes_no_state() -> None:
    target = HybridTarget(tiny_hybrid("qwen3_5"), (), 16, 2)
    target.prefill(torch.tensor(PROMPT))
    before = [t.clone() for t in (target.state.states, target.state.windows)]
    mask = torch.tensor([[1, 0, 0], [1, 1, 0], [1, 0, 1]]).bool()
    first, _ = target.verify(torch.tensor([1, 2, 3]), torch.tensor([0, 1, 1]), mask)
    again, _ = target.verify(torch.tensor([1, 2, 3]), torch.tensor([0, 1, 1]), mask)
    assert torch.equal(first, again)
    assert all(torch.equal(a, b) for a, b in zip(before, (target.state.states, target.state.windows), strict=True))


@pytest.mark.parametrize("length", [1, 2, 3, 33])
def test_prompts_of_every_length(length: int) -> None:
    """Shorter than the convolution's window, and longer than a piece of the prefill."""
    target = tiny_hybrid("qwen3_5")
    prompt = torch.randint(0, 53, (length,), generator=torch.Generator().manual_seed(length)).tolist()
    expected = generate(target, None, prompt, method="plain", max_new_tokens=40, **SAMPLED).tokens
    found = generate(target, OracleDrafter(prompt + expected), prompt, max_new_tokens=40, **SAMPLED)
    assert found.tokens == expected


@pytest.mark.parametrize("name", ["rows", "g", "beta"])
def test_commit_reads_every_stashed_row(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stash that keeps one thing of the root's for all nodes is caught."""
    commit = GatedDeltaState.commit

    def stale(self: GatedDeltaState, path: Sequence[int]) -> None:
        stashed = getattr(self, name)
        stashed[:] = stashed[:, :1].clone()
        commit(self, path)

    expected = plain("qwen3_5", "sampled", 200)
    monkeypatch.setattr(GatedDeltaState, "commit", stale)
    assert drafted("qwen3_5", "sampled", 200).tokens != expected


def test_dense_verify_of_a_hybrid_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nodes taken as a chain by the recurrent layers: what a tree mask alone would do."""
    expected = plain("qwen3_5", "sampled", 200)
    of = hybrid_layer.TreeStep.of

    def as_chain(mask: torch.Tensor, depths: torch.Tensor, taps: int) -> Any:
        rows = torch.arange(len(depths))
        return of(rows[:, None] >= rows, rows, taps)

    monkeypatch.setattr(hybrid_layer.TreeStep, "of", as_chain)
    assert drafted("qwen3_5", "sampled", 200).tokens != expected


def test_dense_target_is_not_used_for_a_hybrid() -> None:
    from drafttree.transformers.target import target_for

    made = target_for(tiny_hybrid("qwen3_next"), (), 8, 1)
    assert isinstance(made, HybridTarget) and isinstance(made, DenseTarget)
