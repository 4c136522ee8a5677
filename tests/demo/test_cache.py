"""Cache entries are complete or absent."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from drafttree.demo.cache import new_entry
from drafttree.errors import UserError
from drafttree.files import write_atomically


def test_an_entry_appears_when_it_is_complete(tmp_path: Path) -> None:
    with new_entry(tmp_path / "a" / "entry") as part:
        (part / "x").write_text("1")
        assert not (tmp_path / "a" / "entry").exists()
    assert [p.name for p in (tmp_path / "a").iterdir()] == ["entry"]
    assert (tmp_path / "a" / "entry" / "x").read_text() == "1"


@pytest.mark.parametrize("error", [KeyboardInterrupt, UserError, ValueError])
def test_a_failure_leaves_nothing(tmp_path: Path, error: type[BaseException]) -> None:
    with pytest.raises(error), new_entry(tmp_path / "entry") as part:
        (part / "x").write_text("1")
        raise error("stop")
    assert list(tmp_path.iterdir()) == []


def test_the_first_of_two_stays(tmp_path: Path) -> None:
    with new_entry(tmp_path / "entry") as slow:
        (slow / "x").write_text("slow")
        with new_entry(tmp_path / "entry") as quick:
            (quick / "x").write_text("quick")
    assert (tmp_path / "entry" / "x").read_text() == "quick"
    assert len(list(tmp_path.iterdir())) == 1


def test_old_leftovers_go_and_young_ones_stay(tmp_path: Path) -> None:
    for name, age in (("old", 2 * 86400), ("young", 60)):
        (tmp_path / f"{name}.part-1").mkdir()
        os.utime(tmp_path / f"{name}.part-1", (time.time() - age,) * 2)
    with new_entry(tmp_path / "entry"):
        pass
    assert sorted(p.name for p in tmp_path.iterdir()) == ["entry", "young.part-1"]


def test_a_file_is_old_or_new_never_half(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "deep" / "result.json"
    write_atomically(path, "old")

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("drafttree.demo.cache.os.replace", fail)
    with pytest.raises(UserError, match="No space left"):
        write_atomically(path, "new")
    assert path.read_text() == "old"
    assert [p.name for p in path.parent.iterdir()] == ["result.json"]
