"""The built wheel, installed elsewhere, runs without the checkout."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = """
import drafttree, sys, torch
assert drafttree.__file__.startswith(sys.argv[1]), drafttree.__file__
tree = drafttree.build_tree(torch.tensor([[0.0, 2.0, 1.0], [3.0, 0.0, 0.0]]), 4)
print(drafttree.__version__, tree.tokens.tolist(), tree.parents.tolist())
"""


def python(*arguments: str, cwd: Path, site: Path | None = None) -> str:
    environment = dict(os.environ) | {"PYTHONPATH": str(site or "")}
    done = subprocess.run(
        [sys.executable, *arguments], cwd=cwd, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("hatchling", reason="needs hatchling, which the dev extra has")
    out = tmp_path_factory.mktemp("wheel")
    options = ["--no-deps", "--no-build-isolation", "--quiet", "--wheel-dir", str(out)]
    python("-m", "pip", "wheel", *options, str(ROOT), cwd=out)
    return next(out.glob("drafttree-*.whl"))


def test_it_holds_the_package_and_the_licence_alone(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    assert {name.split("/")[0] for name in names} == {"drafttree", f"drafttree-{wheel.name.split('-')[1]}.dist-info"}
    assert any(name.endswith("LICENSE") for name in names)
    source = {str(p.relative_to(ROOT)) for p in (ROOT / "drafttree").rglob("*.py")}
    assert source <= set(names)


def test_it_runs_outside_the_checkout(wheel: Path, tmp_path: Path) -> None:
    site = tmp_path / "site"
    python("-m", "pip", "install", "--no-deps", "--quiet", "--target", str(site), str(wheel), cwd=tmp_path)
    version = wheel.name.split("-")[1]
    printed = python("-c", PROGRAM, str(site), cwd=tmp_path, site=site)
    assert printed.strip() == f"{version} [1, 0, 2, 0] [0, 1, 0, 3]"
    environment = dict(os.environ) | {"PYTHONPATH": str(site)}
    done = subprocess.run(
        [str(site / "bin" / "drafttree"), "--help"], cwd=tmp_path, env=environment, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert all(command in done.stdout for command in ("generate", "inspect", "demo", "train"))
