"""Records of a long measurement: JSON lines, one a prompt, so that an interrupted one goes on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from drafttree.errors import UserError
from drafttree.files import write_atomically


class Records:
    """A file whose first line holds the settings of the measurement, and every other one a record with a ``key``."""

    def __init__(self, path: Path, settings: dict[str, Any]) -> None:
        """Open or begin ``path``. UserError where it was made with other settings, or is something else.

        A last line that an interruption cut short is dropped.
        """
        self.path = path
        self.settings: dict[str, Any] = json.loads(json.dumps(settings))
        self.records: dict[str, dict[str, Any]] = {}
        if path.exists():
            self._read()
        else:
            write_atomically(path, json.dumps({"settings": self.settings}) + "\n")

    def _read(self) -> None:
        try:
            text = self.path.read_text(encoding="utf-8")
            lines = [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]
            found = lines[0]["settings"]
            self.records = {line["key"]: line for line in lines[1:]}
        except (OSError, ValueError, KeyError, TypeError, IndexError) as error:
            raise UserError(f"{self.path}: not a file of records: {type(error).__name__} {error}") from None
        for name in sorted({*found, *self.settings}):
            if found.get(name) != self.settings.get(name):
                raise UserError.field(
                    self.path, f"settings.{name}", found.get(name), f"{self.settings.get(name)!r}, or another file"
                )
        if not text.endswith("\n"):
            write_atomically(self.path, text[: text.rfind("\n") + 1])

    def __contains__(self, key: str) -> bool:
        return key in self.records

    def add(self, key: str, record: dict[str, Any]) -> None:
        """Append one record; it is on disk when this returns."""
        line = {"key": key, **record}
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
        self.records[key] = line

    def all(self) -> list[dict[str, Any]]:
        """Records in the order in which they were made."""
        return list(self.records.values())
