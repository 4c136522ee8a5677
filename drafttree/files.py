"""Files that are complete or absent."""

from __future__ import annotations

import os
from pathlib import Path

from drafttree.errors import UserError

PART = ".part-"  # in the name of what is still being written


def write_atomically(path: Path, content: str | bytes) -> None:
    """Write ``content``, text as UTF-8, to ``path``; a reader sees the old file or the new one.

    UserError if that cannot be done.
    """
    part = path.with_name(f"{path.name}{PART}{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        part.write_bytes(content.encode() if isinstance(content, str) else content)
        os.replace(part, path)
    except OSError as error:
        raise UserError(f"{path}: cannot be written: {error.strerror or error}") from None
    finally:
        part.unlink(missing_ok=True)


def check_writable(path: Path) -> None:
    """UserError unless ``write_atomically`` can write ``path``: told before the work whose result goes there."""
    part = path.with_name(f"{path.name}{PART}{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        part.touch()
        part.unlink()
    except OSError as error:
        raise UserError(f"{path}: cannot be written: {error.strerror or error}") from None
