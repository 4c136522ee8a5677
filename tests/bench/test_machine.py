"""Facts of a measurement's record."""

from __future__ import annotations

import pytest

from drafttree.bench.machine import command_line


@pytest.mark.parametrize(
    ("started", "expected"),
    [
        (["benchmarks/tables.py", "a", "--into", "/home/x/out"], "python benchmarks/tables.py a --into out"),
        (["/opt/x/bin/drafttree", "demo", "--json=/tmp/r.json"], "drafttree demo --json=r.json"),
    ],
)
def test_the_command_names_no_place_of_the_machine(
    started: list[str], expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", started)
    assert command_line() == expected
