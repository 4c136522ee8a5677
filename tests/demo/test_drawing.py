"""A step's tree as text."""

from __future__ import annotations

import math

from drafttree.demo.drawing import draw_tree
from drafttree.tree import DraftTree


def lines(tree: DraftTree, path: list[int]) -> list[str]:
    return draw_tree(tree, path, "root", lambda token: f"t{token}").plain.splitlines()


def test_the_whole_tree_with_the_path_marked() -> None:
    scores = [math.log(p) for p in (0.5, 0.3, 0.25, 0.2, 0.06)]
    tree = DraftTree.from_lists([1, 2, 3, 4, 5], [0, 0, 1, 2, 4], scores)
    assert lines(tree, [2, 4]) == [
        "* 'root'  (anchor)",
        "  |- 't1'  0.50",
        "  |  `- 't3'  0.25",
        "* `- 't2'  0.30",
        "*    `- 't4'  0.20",
        "        `- 't5'  0.06",
    ]


def test_nothing_accepted_and_nothing_drafted() -> None:
    assert lines(DraftTree.root_only(), []) == ["* 'root'  (anchor)"]
    assert [line[0] for line in lines(DraftTree.chain([7, 8]), [])] == ["*", " ", " "]


def test_a_line_a_node_and_text_that_would_break_lines_is_quoted() -> None:
    tree = DraftTree.from_lists([1, 2], [0, 0])
    drawn = draw_tree(tree, [1], "\n", lambda token: "\n" if token == 1 else "[bold]").plain
    assert len(drawn.splitlines()) == 3
    assert "'\\n'" in drawn and "'[bold]'" in drawn
