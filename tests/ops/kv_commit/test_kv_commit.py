"""Committing rows: equal to the row-by-row specification, and nothing moves while the path is 0, 1, 2, ..."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from drafttree.ops.kv_commit import commit_rows, commit_rows_naive


@given(
    nodes=st.sets(st.integers(1, 12)),
    start=st.integers(0, 5),
    layers=st.integers(1, 3),
    dtype=st.sampled_from([torch.float64, torch.float32, torch.bfloat16]),
)
def test_equal_to_the_specification(nodes: set[int], start: int, layers: int, dtype: torch.dtype) -> None:
    path = [0, *sorted(nodes)]
    rows = torch.arange(layers * 2 * 2 * 18 * 3).view(layers, 2, 2, 18, 3).remainder(251).to(dtype)
    expected = rows.clone()
    commit_rows_naive(expected, start, path)
    found = rows.clone()
    commit_rows(found, start, path)
    assert torch.equal(found[:, :, :, : start + len(path)], expected[:, :, :, : start + len(path)])
    assert torch.equal(found[:, :, :, :start], rows[:, :, :, :start])
    for place, node in enumerate(path):
        assert torch.equal(found[:, :, :, start + place], rows[:, :, :, start + node])


@pytest.mark.parametrize("path", [[0], [0, 1], [0, 1, 2, 3]])
def test_a_path_at_the_front_moves_nothing(path: list[int]) -> None:
    rows = torch.randn(2, 2, 1, 9, 4)
    before, version = rows.clone(), rows._version
    commit_rows(rows, 3, path)
    assert rows._version == version and torch.equal(rows, before)


def test_only_the_rows_after_the_front_are_written() -> None:
    rows = torch.randn(2, 2, 1, 12, 4)
    before = rows.clone()
    commit_rows(rows, 2, [0, 1, 5, 7])
    assert torch.equal(rows[:, :, :, [4, 5]], before[:, :, :, [7, 9]])
    untouched = [row for row in range(12) if row not in (4, 5)]
    assert torch.equal(rows[:, :, :, untouched], before[:, :, :, untouched])
