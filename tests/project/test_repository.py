"""Rules of the house that a machine can check."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LIMIT_BYTES = 30_000_000


def git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True).stdout


@pytest.fixture(scope="module")
def tracked() -> list[Path]:
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    return [ROOT / name for name in git("ls-files").splitlines() if (ROOT / name).is_file()]


def test_the_repository_stays_small(tracked: list[Path]) -> None:
    assert sum(path.stat().st_size for path in tracked) < LIMIT_BYTES
    found = dict(line.split(": ") for line in git("count-objects", "-v").splitlines())
    loose = int(found["size"]) + int(found["size-pack"])  # KiB
    assert loose * 1024 < 4 * LIMIT_BYTES  # loose objects and old packs included; a fresh clone is smaller


def test_no_file_of_the_package_is_long(tracked: list[Path]) -> None:
    package = [path for path in tracked if path.suffix == ".py" and path.is_relative_to(ROOT / "drafttree")]
    long = [str(path) for path in package if len(path.read_text().splitlines()) > 300]
    assert len(package) > 30 and not long


def test_the_dependency_arrow_points_one_way(tracked: list[Path]) -> None:
    """tree, drafter, ops and sampling know no engine."""
    engines = re.compile(r"drafttree\.(transformers|vllm|bench|demo|commands|training|cli)\b")
    for part in ("tree", "drafter", "ops", "sampling"):
        for path in tracked:
            if path.is_relative_to(ROOT / "drafttree" / part) and path.suffix == ".py":
                assert not engines.search(path.read_text()), path


def test_pins_satisfy_the_project_file() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = project["dependencies"] + [
        r for e in ("demo", "bench", "dev") for r in project["optional-dependencies"][e]
    ]
    names = {re.split(r"[<>=;\[ ]", requirement)[0].lower().replace("_", "-") for requirement in wanted}
    text = (ROOT / "constraints.txt").read_text() + (ROOT / "constraints-cpu.txt").read_text()
    pins = dict(line.split("==") for line in text.splitlines() if "==" in line and not line.startswith("#"))
    assert {name.lower().replace("_", "-") for name in pins} >= names
    assert pins["torch"] == "2.13.0"


def test_readme_begins_with_the_two_commands() -> None:
    commands = re.findall(r"^    (make \w+)", (ROOT / "README.md").read_text(), re.MULTILINE)
    assert commands[:2] == ["make demo", "make test"]


def test_links_of_the_documents_lead_somewhere() -> None:
    for document in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]:
        for link in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", document.read_text()):
            if "://" not in link:
                assert (document.parent / link).exists(), f"{document.name}: {link}"
