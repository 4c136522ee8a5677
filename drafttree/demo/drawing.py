"""One step's tree as text, the accepted path marked."""

from __future__ import annotations

import math
from collections.abc import Callable

from rich.text import Text

from drafttree.tree import DraftTree


def draw_tree(tree: DraftTree, path: list[int], anchor: str, token_text: Callable[[int], str]) -> Text:
    """A line a node: its token, its probability under the drafter, ``*`` where the target took it.

    Args:
        tree: the step's tree.
        path: accepted node numbers, without the root.
        anchor: text of the root.
        token_text: text of a token id.
    """
    tokens, scores = tree.tokens.tolist(), tree.scores.tolist()
    taken = set(path)
    text = Text()
    text.append(f"* {anchor!r}  (anchor)\n", style="bold green")

    def draw(node: int, indent: str) -> None:
        children = tree.children(node)
        for child in children:
            last = child == children[-1]
            mark, style = ("*", "bold green") if child in taken else (" ", "dim")
            probability = f"{math.exp(scores[child - 1]):.2f}"
            branch = "`- " if last else "|- "
            text.append(f"{mark} {indent}{branch}{token_text(tokens[child - 1])!r}  {probability}\n", style=style)
            draw(child, indent + ("   " if last else "|  "))

    draw(0, "")
    return text
