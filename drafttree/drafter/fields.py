"""Typed reading of a JSON object, with every complaint naming the file and the field."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from drafttree.drafter.config import MAX_SIZE
from drafttree.errors import UserError


def read_json(path: Path) -> dict[str, Any]:
    """The JSON object in ``path``; UserError if it cannot be read, is no object or repeats a key."""
    try:
        text = path.read_bytes().decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(one_line(f"{path}: cannot be read: {error}")) from None
    try:
        values = json.loads(text, object_pairs_hook=lambda pairs: _distinct(path, pairs))
    except (ValueError, RecursionError) as error:
        raise UserError(one_line(f"{path}: not valid JSON: {error}")) from None
    if not isinstance(values, dict):
        raise UserError(f"{path}: found {type(values).__name__}, expected a JSON object")
    return values


def one_line(text: str) -> str:
    """``text`` with all white space runs reduced to a blank."""
    return " ".join(text.split())


def _distinct(path: Path, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise UserError(one_line(f"{path}: {twice}: found twice, expected once"))
    return values


class Fields:
    """The fields of one JSON object, each to be taken once; what is left over at the end is an error."""

    def __init__(self, source: object, values: Mapping[str, Any], prefix: str = "") -> None:
        self.source = source
        self._prefix = prefix
        self._values = dict(values)
        self._left = set(self._values)
        self._reject_non_finite(prefix, values)

    def _reject_non_finite(self, name: str, value: object) -> None:
        if isinstance(value, float) and not math.isfinite(value):
            raise UserError.field(self.source, name, value, "a finite number")
        if isinstance(value, Mapping):
            for key, inner in value.items():
                self._reject_non_finite(f"{name}.{key}".lstrip("."), inner)
        elif isinstance(value, list):
            for inner in value:
                self._reject_non_finite(name, inner)

    def error(self, name: str, found: object, expected: str) -> UserError:
        """UserError about field ``name`` of this object."""
        name = f"{self._prefix}.{name}".lstrip(".")
        if len(repr(found)) > 200:
            found = f"{repr(found)[:200]}..."
        return UserError.field(self.source, name, found, expected)

    def has(self, name: str) -> bool:
        """Whether the field is there and not null."""
        return self._values.get(name) is not None

    def take(self, name: str) -> Any:
        """The raw value, None if absent."""
        self._left.discard(name)
        return self._values.get(name)

    def _required(self, name: str, expected: str) -> Any:
        value = self.take(name)
        if value is None:
            raise self.error(name, None, expected)
        return value

    def integer(self, name: str, low: int = 1, high: int = MAX_SIZE) -> int:
        """A required integer in ``low..high``."""
        expected = f"an integer from {low} to {high}"
        value = self._required(name, expected)
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise self.error(name, value, expected)
        return value

    def integers(self, name: str, low: int = 0) -> tuple[int, ...]:
        """A required list of at least one integer, none below ``low``."""
        expected = f"a list of integers from {low} on"
        value = self._required(name, expected)
        good = isinstance(value, list) and value
        if not good or not all(isinstance(v, int) and not isinstance(v, bool) and low <= v <= MAX_SIZE for v in value):
            raise self.error(name, value, expected)
        return tuple(value)

    def positive(self, name: str) -> float:
        """A required finite number above zero."""
        expected = "a number above 0"
        value = self._required(name, expected)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e30:
            raise self.error(name, value, expected)
        return float(value)

    def flag(self, name: str) -> bool:
        """A required boolean."""
        value = self._required(name, "true or false")
        if not isinstance(value, bool):
            raise self.error(name, value, "true or false")
        return value

    def names(self, name: str, allowed: tuple[str, ...]) -> tuple[str, ...]:
        """A required list of at least one of the ``allowed`` strings."""
        expected = f"a list of {' or '.join(allowed)}"
        value = self._required(name, expected)
        if not isinstance(value, list) or not value:
            raise self.error(name, value, expected)
        for item in value:
            if item not in allowed:
                raise self.error(name, item, expected)
        return tuple(value)

    def section(self, name: str) -> Fields:
        """A nested object; an empty one if absent."""
        value = self.take(name)
        if value is not None and not isinstance(value, dict):
            raise self.error(name, value, "an object")
        return Fields(self.source, value or {}, f"{self._prefix}.{name}".lstrip("."))

    def neutral(self, values: Mapping[str, tuple[Any, ...]]) -> None:
        """Take fields that change the maths, unless they are null or have one of the values that do nothing."""
        for name, allowed in values.items():
            value = self.take(name)
            if value is not None and not any(type(value) is type(a) and value == a for a in allowed):
                shown = " or ".join(json.dumps(a) for a in allowed) or "no such field"
                raise self.error(name, value, f"{shown}: this feature is not supported")

    def ignore(self, names: Iterable[str]) -> None:
        """Drop fields that do not change the maths."""
        self._left.difference_update(names)

    def finish(self, features: Mapping[str, str] | None = None) -> None:
        """UserError naming the first field that nobody took, unless it is null.

        ``features`` tells which other method a field belongs to, for the message.
        """
        for name in sorted(self._left):
            if self._values[name] is None:
                continue
            other = (features or {}).get(name)
            why = f"{other} is not supported" if other else "it is unknown and might change the result"
            raise self.error(name, self._values[name], f"no such field: {why}")
