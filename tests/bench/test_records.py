"""Records on disk: an interrupted measurement goes on, a different one is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from drafttree.bench.records import Records
from drafttree.errors import UserError

SETTINGS = {"budget": 16, "spines": (1, 2)}


def test_records_are_there_again(tmp_path: Path) -> None:
    records = Records(tmp_path / "deep" / "r.jsonl", SETTINGS)
    records.add("a", {"tau": 2.0})
    records.add("b", {"tau": 3.0})
    again = Records(tmp_path / "deep" / "r.jsonl", SETTINGS)
    assert "a" in again and "c" not in again
    assert again.all() == [{"key": "a", "tau": 2.0}, {"key": "b", "tau": 3.0}]


@pytest.mark.parametrize("cut", [1, 5, 12])
def test_a_record_cut_short_is_made_again(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "r.jsonl"
    records = Records(path, SETTINGS)
    records.add("a", {"tau": 2.0})
    records.add("b", {"tau": 3.0})
    path.write_bytes(path.read_bytes()[:-cut])
    again = Records(path, SETTINGS)
    assert "a" in again and "b" not in again
    again.add("b", {"tau": 4.0})
    assert Records(path, SETTINGS).all() == [{"key": "a", "tau": 2.0}, {"key": "b", "tau": 4.0}]


def test_other_settings_are_refused_by_name(tmp_path: Path) -> None:
    Records(tmp_path / "r.jsonl", SETTINGS)
    with pytest.raises(UserError, match=r"settings.budget: found 16, expected 32"):
        Records(tmp_path / "r.jsonl", SETTINGS | {"budget": 32})


@pytest.mark.parametrize("text", ["", "x\n", "[]\n", '{"a": 1}\n', '{"settings": {}}\n{"tau": 1}\n'])
def test_something_else_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "r.jsonl").write_text(text)
    with pytest.raises(UserError, match="not a file of records"):
        Records(tmp_path / "r.jsonl", {})
