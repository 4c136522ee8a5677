"""The scripts in benchmarks/ on a tiny pair: records, tables, resuming, and faults in one line."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from saved_models import save_tiny_drafter, save_tiny_target

from drafttree.demo.prompts import FILES, HUMANEVAL, MT_BENCH
from drafttree.demo.target import NAME

ROOT = Path(__file__).resolve().parents[2]


def script(name: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    environment = dict(os.environ) | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, str(ROOT / "benchmarks" / name), *map(str, arguments)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    cache = tmp_path_factory.mktemp("cache")
    save_tiny_target(cache / "targets" / f"{NAME}-float32")
    rows = {
        HUMANEVAL: [{"task_id": f"HumanEval/{i}", "prompt": f"w{i} w2"} for i in range(4)],
        MT_BENCH: [{"question_id": 81 + i, "turns": [f"w{i} w5"]} for i in range(4)],
    }
    for source, found in rows.items():
        file = FILES[source]
        data = "\n".join(map(json.dumps, found)).encode()
        path = cache / "packages" / f"{file.package}-{file.version}" / file.member.rsplit("/", 1)[-1]
        path.parent.mkdir(parents=True)
        path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return cache


def test_record_resume_and_tables(cache: Path, tmp_path: Path) -> None:
    drafter = save_tiny_drafter(tmp_path / "drafter")
    out = tmp_path / "out"
    options = ["--cache-dir", cache, "--drafter", drafter, "--out", out, "--prompts", 2, "--sampled-prompts", 1]
    done = script("record_demo_pair.py", *options, "--max-new-tokens", 6)
    assert done.returncode == 0, done.stderr
    summary = json.loads((out / "summary.json").read_text())
    assert set(summary["greedy"]) == {HUMANEVAL, MT_BENCH}
    assert summary["greedy"][HUMANEVAL]["prompts"] == 2
    assert set(summary["sampled"][MT_BENCH]) == {"0.6", "1"}
    greedy = out / f"{HUMANEVAL}-greedy.jsonl"
    lines = greedy.read_text().splitlines()
    assert len(lines) == 3  # the settings and two prompts

    greedy.write_text("\n".join([*lines[:2], lines[2][:40]]))  # interrupted while the second was written
    done = script("record_demo_pair.py", *options, "--max-new-tokens", 6)
    assert done.returncode == 0, done.stderr
    again = greedy.read_text().splitlines()
    assert again[:2] == lines[:2] and json.loads(again[2])["key"] == json.loads(lines[2])["key"]

    done = script("record_demo_pair.py", *options, "--max-new-tokens", 7)
    assert done.returncode == 2 and "settings.max_new_tokens: found 6" in done.stderr

    save_tiny_drafter(drafter, seed=2)  # another drafter of the same size
    done = script("record_demo_pair.py", *options, "--max-new-tokens", 6)
    assert done.returncode == 2 and "settings.drafter_sha256" in done.stderr

    document = tmp_path / "benchmarks.md"
    shutil.copy(ROOT / "docs" / "benchmarks.md", document)
    done = script("tables.py", out, "--into", document)
    assert done.returncode == 0, done.stderr
    text = document.read_text()
    assert "| tree, spine none |" in text and "| humaneval, greedy | 2 of 2 |" in text
    assert "has no place" not in done.stderr


def test_the_peers_checkout_is_asked_for(cache: Path, tmp_path: Path) -> None:
    drafter = save_tiny_drafter(tmp_path / "drafter")
    done = script("peer_ddtree.py", tmp_path, "--cache-dir", cache, "--drafter", drafter, "--out", tmp_path / "out")
    assert done.returncode == 2 and "found no ddtree.py" in done.stderr.splitlines()[-1]


def test_results_of_the_tests_are_kept(tmp_path: Path) -> None:
    (tmp_path / "r.xml").write_text(
        "<testsuites><testsuite>"
        '<testcase classname="a" name="x" time="2.5"/>'
        '<testcase classname="a" name="y" time="0.5"><failure/></testcase>'
        '<testcase classname="b" name="z" time="0.1"><skipped/></testcase>'
        "</testsuite></testsuites>"
    )
    done = script("record_tests.py", tmp_path / "r.xml", tmp_path / "deep" / "r.json")
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "deep" / "r.json").read_text())
    assert (found["tests"], found["passed"], found["failed"], found["skipped"]) == (3, 1, ["a.y"], 1)
    assert next(iter(found["slowest"])) == "a.x"
