"""The cache folder: every entry in it is complete or absent."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from drafttree.errors import UserError
from drafttree.files import PART

STALE_SECONDS = 24 * 3600.0


def default_cache() -> Path:
    """Where downloads and converted models are kept unless the user says otherwise."""
    return Path.home() / ".cache" / "drafttree"


@contextmanager
def new_entry(entry: Path) -> Iterator[Path]:
    """A temporary folder that becomes ``entry`` when the block ends well, and vanishes when it does not.

    Where another process has made ``entry`` in the meantime, that one stays. Leftovers of killed runs are removed
    after a day. Raises UserError when the folder cannot be written.
    """
    part: Path | None = None
    try:
        entry.parent.mkdir(parents=True, exist_ok=True)
        _remove_stale(entry.parent)
        part = Path(tempfile.mkdtemp(prefix=f"{entry.name}{PART}", dir=entry.parent))
        yield part
        try:
            os.replace(part, entry)
        except OSError:
            if not entry.is_dir():
                raise
    except OSError as error:
        raise UserError(f"{entry}: cannot be written: {error.strerror or error}") from None
    finally:
        if part is not None:
            shutil.rmtree(part, ignore_errors=True)


def _remove_stale(folder: Path) -> None:
    for path in folder.glob(f"*{PART}*"):
        if time.time() - path.stat().st_mtime > STALE_SECONDS:
            shutil.rmtree(path, ignore_errors=True)
