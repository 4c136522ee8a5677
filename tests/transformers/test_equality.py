"""Every method gives the target's own tokens, in float64 and token for token."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from engine_samples import FAMILIES, OracleDrafter, tiny_target

from drafttree.transformers import generation
from drafttree.transformers.cache import KeyValueCache
from drafttree.transformers.generation import generate, stream
from drafttree.transformers.target import DenseTarget
from drafttree.transformers.tree_mask import TreeMask

PROMPT = [3, 14, 15, 9, 2, 6, 5]
SAMPLED: dict[str, Any] = dict(temperature=1.0, seed=7)
OPTIONS: dict[str, dict[str, Any]] = {
    "greedy": {},
    "sampled": SAMPLED,
    "filtered": dict(temperature=0.8, top_k=20, top_p=0.9, seed=3),
}


def plain(target: Any, prompt: list[int], count: int, **options: Any) -> list[int]:
    return generate(target, None, prompt, method="plain", max_new_tokens=count, **options).tokens


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
@pytest.mark.parametrize(
    ("method", "spine", "least"), [("chain", False, 1.2), ("tree", False, 1.8), ("tree", True, 2.0)]
)
def test_equal_to_plain(family: str, options: dict[str, Any], method: str, spine: bool, least: float) -> None:
    target = tiny_target(family)
    expected = plain(target, PROMPT, 120, **options)
    drafter = OracleDrafter(PROMPT + expected)
    result = generate(target, drafter, PROMPT, method=method, budget=12, spine=spine, max_new_tokens=120, **options)
    assert result.tokens == expected
    assert result.finish_reason == "length"
    assert sum(result.acceptance_lengths) == len(expected) - 1
    assert result.tau > least, "the oracle's tokens were hardly accepted"


@pytest.mark.parametrize("family", FAMILIES)
def test_plain_is_what_transformers_generates(family: str) -> None:
    target = tiny_target(family)
    ids = torch.tensor([PROMPT])
    expected = target.generate(ids, max_new_tokens=60, do_sample=False, use_cache=True)[0, len(PROMPT) :].tolist()
    assert plain(target, PROMPT, 60) == expected


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_both_attentions(attention: str) -> None:
    target = tiny_target("llama")
    target.set_attn_implementation(attention)
    expected = plain(target, PROMPT, 60, **SAMPLED)
    result = generate(target, OracleDrafter(PROMPT + expected), PROMPT, spine=True, max_new_tokens=60, **SAMPLED)
    assert result.tokens == expected
    assert result.tau > 2


def test_long_prompt_goes_through_in_pieces() -> None:
    target = tiny_target("qwen3")
    prompt = torch.randint(0, 53, (1300,), generator=torch.Generator().manual_seed(0)).tolist()
    expected = target.generate(torch.tensor([prompt]), max_new_tokens=20, do_sample=False)[0, 1300:].tolist()
    assert plain(target, prompt, 20) == expected
    result = generate(target, OracleDrafter(prompt + expected), prompt, max_new_tokens=20)
    assert result.tokens == expected


@pytest.mark.parametrize("method", ["chain", "tree"])
def test_prompt_of_one_token_and_one_new_token(method: str) -> None:
    target = tiny_target("llama")
    expected = plain(target, [5], 30, **SAMPLED)
    for count in (1, 2, 30):
        result = generate(target, OracleDrafter([5, *expected]), [5], method=method, max_new_tokens=count, **SAMPLED)
        assert result.tokens == expected[:count]
        assert result.finish_reason == "length"


@pytest.mark.parametrize("method", ["plain", "chain", "tree"])
def test_stop_token_inside_a_path_ends_the_text(method: str) -> None:
    target = tiny_target("llama")
    whole = plain(target, PROMPT, 80, **SAMPLED)
    inside = 0
    for token in sorted(set(whole)):
        expected = whole[: whole.index(token) + 1]
        drafter = OracleDrafter(PROMPT + whole)
        result = generate(target, drafter, PROMPT, method=method, max_new_tokens=80, stop_token_ids=[token], **SAMPLED)
        assert result.tokens == expected
        assert result.finish_reason == "stop"
        assert sum(result.acceptance_lengths) == len(expected) - 1
        inside += bool(result.acceptance_lengths) and result.acceptance_lengths[-1] > 1
    assert method == "plain" or inside > 0, "no stop token fell inside a path"


def test_stop_tokens_are_the_targets_own_unless_given() -> None:
    target = tiny_target("llama")
    whole = plain(target, PROMPT, 40, **SAMPLED)
    token = whole[10]
    target.generation_config.eos_token_id = [token]
    assert plain(target, PROMPT, 40, **SAMPLED) == whole[: whole.index(token) + 1]
    assert plain(target, PROMPT, 40, stop_token_ids=[], **SAMPLED) == whole


@pytest.mark.parametrize("method", ["plain", "chain", "tree"])
@pytest.mark.parametrize("context", [len(PROMPT), len(PROMPT) + 1, 20, 33])
def test_context_end(method: str, context: int) -> None:
    target = tiny_target("llama", context=context)
    truth = PROMPT + plain(tiny_target("llama"), PROMPT, 60, **SAMPLED)
    result = generate(target, OracleDrafter(truth), PROMPT, method=method, max_new_tokens=60, **SAMPLED)
    assert result.finish_reason == "context"
    # every position of the context was fed, and the last one's choice is kept
    assert result.tokens == truth[len(PROMPT) : context + 1]


def test_mask_token_stays_in_the_output() -> None:
    target = tiny_target("llama")
    expected = plain(target, PROMPT, 60, **SAMPLED)
    drafter = OracleDrafter(PROMPT + expected)
    drafter.config.mask_token_id = expected[17]
    result = generate(target, drafter, PROMPT, max_new_tokens=60, **SAMPLED)
    assert result.tokens == expected and expected[17] in result.tokens


def test_spine_only_tree_is_the_chain_step_for_step() -> None:
    target = tiny_target("qwen2")
    truth = PROMPT + plain(target, PROMPT, 100)
    chain = generate(target, OracleDrafter(truth), PROMPT, method="chain", max_new_tokens=100)
    tree = generate(target, OracleDrafter(truth), PROMPT, method="tree", budget=5, spine=True, max_new_tokens=100)
    assert tree.tokens == chain.tokens
    # near the end the block is shorter than the budget, so the last steps' trees have siblings
    whole = sum(total <= 100 - 6 for total in itertools.accumulate(chain.acceptance_lengths))
    assert whole > 20
    assert tree.acceptance_lengths[:whole] == chain.acceptance_lengths[:whole]


def test_budget_zero_is_plain_decoding() -> None:
    target = tiny_target("llama")
    expected = plain(target, PROMPT, 30)
    result = generate(target, OracleDrafter(PROMPT + expected), PROMPT, budget=0, max_new_tokens=30)
    assert result.tokens == expected and result.acceptance_lengths == [1] * 29


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_stream_gives_the_same_tokens(options: dict[str, Any]) -> None:
    target = tiny_target("llama")
    expected = plain(target, PROMPT, 50, **options)
    drafter = OracleDrafter(PROMPT + expected)
    assert list(stream(target, drafter, PROMPT, max_new_tokens=50, **options)) == expected


def test_no_seed_draws_one_and_tells_it() -> None:
    target = tiny_target("llama")
    first = generate(target, None, PROMPT, method="plain", max_new_tokens=30, temperature=1.0)
    second = generate(target, None, PROMPT, method="plain", max_new_tokens=30, temperature=1.0)
    assert first.seed is not None and first.seed != second.seed and first.tokens != second.tokens
    assert plain(target, PROMPT, 30, temperature=1.0, seed=first.seed) == first.tokens
    assert generate(target, None, PROMPT, method="plain", max_new_tokens=2).seed is None


def test_hooks_are_gone_afterwards() -> None:
    target = tiny_target("llama")
    drafter = OracleDrafter(PROMPT * 9)
    generate(target, drafter, PROMPT, max_new_tokens=9)
    half = stream(target, drafter, PROMPT, max_new_tokens=9)
    next(half)
    half.close()  # type: ignore[attr-defined]
    assert not any(layer._forward_hooks for layer in target.model.layers)


def _no_mask(monkeypatch: pytest.MonkeyPatch) -> None:
    view = TreeMask.view
    monkeypatch.setattr(TreeMask, "view", lambda self, length, square: view(self, length, torch.ones_like(square)))


def _slot_positions(monkeypatch: pytest.MonkeyPatch) -> None:
    forward = DenseTarget._forward
    monkeypatch.setattr(
        DenseTarget,
        "_forward",
        lambda self, tokens, depths, mask: forward(self, tokens, torch.arange(len(tokens)), mask),
    )


def _no_compaction(monkeypatch: pytest.MonkeyPatch) -> None:
    def commit(self: KeyValueCache, path: list[int]) -> None:
        self.length += len(path)

    monkeypatch.setattr(KeyValueCache, "commit", commit)


def _one_compaction_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    commit = KeyValueCache.commit
    seen = [0]

    def once(self: KeyValueCache, path: list[int]) -> None:
        moved = list(path) != list(range(len(path)))
        seen[0] += moved
        if moved and seen[0] == 3:
            self.length += len(path)
        else:
            commit(self, path)

    monkeypatch.setattr(KeyValueCache, "commit", once)


def _wrong_noise_position(monkeypatch: pytest.MonkeyPatch) -> None:
    walk = generation._walk
    monkeypatch.setattr(
        generation, "_walk", lambda tree, logits, positions, params: walk(tree, logits, positions - 1, params)
    )


@pytest.mark.parametrize(
    "mutate", [_no_mask, _slot_positions, _no_compaction, _one_compaction_missed, _wrong_noise_position]
)
@pytest.mark.parametrize("family", FAMILIES)
def test_a_fault_is_caught(mutate: Any, family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The equality test must be able to fail: each fault of the kind that users reported changes the tokens."""
    target = tiny_target(family)
    expected = plain(target, PROMPT, 200, **SAMPLED)
    mutate(monkeypatch)
    result = generate(target, OracleDrafter(PROMPT + expected), PROMPT, budget=12, max_new_tokens=200, **SAMPLED)
    assert result.tokens != expected


def test_paths_that_are_not_contiguous_occur(monkeypatch: pytest.MonkeyPatch) -> None:
    target = tiny_target("llama")
    expected = plain(target, PROMPT, 120, **SAMPLED)
    paths: list[list[int]] = []
    commit = KeyValueCache.commit
    monkeypatch.setattr(KeyValueCache, "commit", lambda self, path: (paths.append(list(path)), commit(self, path))[1])
    generate(target, OracleDrafter(PROMPT + expected), PROMPT, budget=12, max_new_tokens=120, **SAMPLED)
    assert sum(path != list(range(len(path))) for path in paths) >= 10
