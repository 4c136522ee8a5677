"""The demo from its cache to its tables, on a tiny pair and small prompt sets."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from saved_models import save_tiny_drafter, save_tiny_target

from drafttree.cli import run
from drafttree.demo.default_drafter import PLACE
from drafttree.demo.prompts import FILES, GSM8K, HUMANEVAL, MT_BENCH
from drafttree.demo.target import NAME


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache in which everything has been fetched."""
    cache = tmp_path_factory.mktemp("cache")
    save_tiny_target(cache / "targets" / f"{NAME}-float32")
    rows = {
        HUMANEVAL: {"task_id": "HumanEval/0", "prompt": "w1 w2 w3"},
        GSM8K: {"id": "g-0", "prompt": "w4 w5"},
        MT_BENCH: {"question_id": 81, "turns": ["w6 w7 w8"]},
    }
    for source, file in FILES.items():
        data = b"".join(json.dumps(rows[source]).encode() + b"\n" for _ in range(3))
        path = cache / "packages" / f"{file.package}-{file.version}" / file.member.rsplit("/", 1)[-1]
        path.parent.mkdir(parents=True)
        path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return cache


def test_tables_tree_and_raw_results(cache: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    drafter = save_tiny_drafter(tmp_path / "drafter")
    out = tmp_path / "results.json"
    options = ["--cache-dir", str(cache), "--drafter", str(drafter), "--json", str(out)]
    assert run(["demo", *options, "--budget", "6", "--max-new-tokens", "8"]) == 0
    printed = capfd.readouterr().out
    print(printed)
    for words in ("plain", "chain", "tree, budget 6, no spine", "tokens/s", "same as", "greedy: 12 prompts"):
        assert words in " ".join(printed.split())
    assert "(anchor)" in printed and printed.count("`- ") + printed.count("|- ") == 6
    results = json.loads(out.read_text())
    assert len(results["prompts"]) == 24  # greedy and seeded
    for found in results["prompts"]:
        seeded = found["sampling"]["seed"] is not None
        runs = found["runs"]
        assert list(runs) == ["plain", "chain", "tree"]
        assert len(runs["plain"]["tokens"]) == (4 if seeded else 8)
        for label, difference in found["differences"].items():
            assert (difference is None) == (runs[label]["tokens"] == runs["plain"]["tokens"])
    assert {found["source"] for found in results["prompts"]} == {"own", "humaneval", "gsm8k", "mt-bench"}
    assert results["machine"]["torch"]


def test_the_checkouts_drafter_is_the_default(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    save_tiny_drafter(tmp_path / PLACE)
    monkeypatch.chdir(tmp_path)
    assert run(["demo", "--cache-dir", str(cache), "--max-new-tokens", "2", "--budget", "3"]) == 0
    assert str(PLACE) in "".join(capfd.readouterr().out.split())


def test_without_a_drafter_it_says_where_one_is(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("drafttree.__file__", str(tmp_path / "site" / "drafttree" / "__init__.py"))
    assert run(["demo", "--cache-dir", str(cache)]) == 2
    assert f"found no {PLACE}" in capfd.readouterr().err
