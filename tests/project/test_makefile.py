"""The make targets: what they install, once, and again after an interruption. Python is a stub that keeps a log."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
STUB = """#!/bin/sh
echo "$@" >> "$STUB_LOG"
case "$*" in
  "-m venv .venv") mkdir -p .venv/bin; cp "$0" .venv/bin/python; cp "$0" .venv/bin/drafttree; cp "$0" .venv/bin/ruff
                   cp "$0" .venv/bin/mypy;;
  *"sys.version_info"*) exit ${STUB_OLD:-0};;
  *"torch.version.cuda"*) echo "$STUB_CPU";;
  *"-m pytest"*) exit ${STUB_RED:-0};;
  *"pip install"*"$STUB_FAIL"*) if [ -n "$STUB_FAIL" ]; then exit 1; fi;;
esac
"""

pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="needs make")


class Checkout:
    def __init__(self, folder: Path) -> None:
        self.folder, self.log = folder, folder / "log"
        for name in ("Makefile", "pyproject.toml", "constraints.txt", "constraints-cpu.txt"):
            shutil.copy2(ROOT / name, folder / name)
        self.python = folder / "stub-python"
        self.python.write_text(STUB)
        self.python.chmod(self.python.stat().st_mode | stat.S_IXUSR)

    def make(self, target: str, **environment: str) -> tuple[subprocess.CompletedProcess[str], list[str]]:
        """Result, and the stub's log of this call."""
        self.log.write_text("")
        values = {"STUB_LOG": str(self.log), "STUB_CPU": "-c constraints-cpu.txt", "STUB_FAIL": "", "STUB_OLD": "0"}
        done = subprocess.run(
            ["make", target, f"PYTHON={self.python}"], cwd=self.folder, capture_output=True, text=True, check=False,
            env={"PATH": os.environ["PATH"], **values, **environment},
        )  # fmt: skip
        return done, self.log.read_text().splitlines()


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path)


def installs(log: list[str]) -> list[str]:
    return [line for line in log if "pip install" in line]


@pytest.mark.parametrize(
    ("target", "extras", "last"),
    [
        ("demo", "demo", "demo"),
        ("test", "demo,train,bench,dev", "-m pytest -m not full --timeout 900"),
        ("test-full", "demo,train,bench,dev", "build/test-full.xml benchmarks/results/test-full.json"),
        ("lint", "demo,train,bench,dev", ""),
        ("wheel-check", "demo,train,bench,dev", "-m pytest tests/project/test_wheel.py"),
    ],
)
def test_first_use_installs_and_says_so(checkout: Checkout, target: str, extras: str, last: str) -> None:
    done, log = checkout.make(target)
    assert done.returncode == 0, done.stderr
    assert installs(log) == [
        "-m pip install -c constraints.txt torch",
        f"-m pip install -c constraints.txt -c constraints-cpu.txt -e .[{extras}]",
    ]
    assert last in log[-1]
    for words in ("making the environment .venv", "installing PyTorch", f"installing drafttree[{extras}]"):
        assert words in done.stdout


def test_failing_tests_fail_the_target_and_are_recorded(checkout: Checkout) -> None:
    done, log = checkout.make("test-full", STUB_RED="1")
    assert done.returncode != 0 and "record_tests.py" in log[-1]


def test_a_second_call_starts_at_once(checkout: Checkout) -> None:
    checkout.make("test")
    done, log = checkout.make("test")
    assert done.returncode == 0 and len(log) == 1 and "pytest" in log[0]


def test_new_pins_are_installed(checkout: Checkout) -> None:
    checkout.make("test")
    later = (checkout.folder / ".venv" / ".dev").stat().st_mtime + 10
    os.utime(checkout.folder / "constraints.txt", (later, later))
    assert len(installs(checkout.make("test")[1])) == 2


@pytest.mark.parametrize("where", ["torch", "-e ."])
def test_an_interrupted_installation_is_done_again(checkout: Checkout, where: str) -> None:
    done, log = checkout.make("test", STUB_FAIL=where)
    assert done.returncode != 0 and "pytest" not in log[-1]
    (checkout.folder / ".venv" / "half-a-package").touch()
    done, log = checkout.make("test")
    assert done.returncode == 0 and len(installs(log)) == 2
    assert "an installation was interrupted" in done.stdout
    assert not (checkout.folder / ".venv" / "half-a-package").exists()


def test_a_cuda_build_keeps_its_own_triton(checkout: Checkout) -> None:
    assert "constraints-cpu.txt" not in installs(checkout.make("test", STUB_CPU="")[1])[-1]


def test_an_old_python_is_told(checkout: Checkout) -> None:
    done, log = checkout.make("demo", STUB_OLD="1")
    assert done.returncode != 0 and "Python 3.11 or newer" in done.stderr and not installs(log)


def test_ci_runs_the_tests() -> None:
    script = ROOT / ".ci" / "run"
    assert os.access(script, os.X_OK) and "make test" in script.read_text()
