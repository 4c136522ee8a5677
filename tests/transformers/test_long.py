"""Long texts: bad state that loops would hide is seen, even when it goes bad late."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import pytest
from engine_samples import OracleDrafter, tiny_target

from drafttree.transformers.cache import KeyValueCache
from drafttree.transformers.generation import generate

PROMPT = [3, 14, 15, 9, 2, 6, 5]
SAMPLED: dict[str, Any] = dict(temperature=1.0, seed=20)
TOKENS = 2000


@cache
def plain(family: str, count: int) -> list[int]:
    return generate(tiny_target(family), None, PROMPT, method="plain", max_new_tokens=count, **SAMPLED).tokens


def tree(family: str, count: int) -> list[int]:
    drafter: Any = OracleDrafter(PROMPT + plain(family, count))
    return generate(tiny_target(family), drafter, PROMPT, budget=12, max_new_tokens=count, **SAMPLED).tokens


FULL = pytest.mark.full


@pytest.mark.parametrize("family", ["llama", pytest.param("qwen2", marks=FULL), pytest.param("qwen3", marks=FULL)])
def test_two_thousand_tokens(family: str) -> None:
    assert tree(family, TOKENS) == plain(family, TOKENS)


@pytest.mark.parametrize("family", ["llama", pytest.param("qwen3", marks=FULL)])
def test_one_path_misplaced_after_a_thousand_tokens_is_seen(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    commit = KeyValueCache.commit
    missed: list[int] = []

    def once(self: KeyValueCache, path: Sequence[int]) -> None:
        if not missed and self.length > 1000 and list(path) != list(range(len(path))):
            missed.append(self.length)
            self.length += len(path)
        else:
            commit(self, path)

    monkeypatch.setattr(KeyValueCache, "commit", once)
    found, expected = tree(family, TOKENS), plain(family, TOKENS)
    assert missed and found != expected
    first = next(i for i, (a, b) in enumerate(zip(found, expected, strict=True)) if a != b)
    assert first + len(PROMPT) >= missed[0] > 1000
