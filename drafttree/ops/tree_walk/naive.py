"""The walk as the paper reads: from the root to the child that carries the target's choice, until there is none."""

from __future__ import annotations

from collections.abc import Sequence


def walk_nodes(tokens: Sequence[int], parents: Sequence[int], choices: Sequence[int]) -> tuple[list[int], int]:
    """Follow the target's choices.

    Args:
        tokens: [n] token of each node without the root.
        parents: [n] parent node numbers, as in ``DraftTree``: parents precede children, siblings differ in token.
        choices: [n + 1] the target's token after each node, the root first.

    Returns:
        The path (node numbers, root first) and the bonus, the choice at its last node.
    """
    path = [0]
    # A child comes after its parent, so one pass over the nodes in order meets the whole path.
    for node, (token, parent) in enumerate(zip(tokens, parents, strict=True), start=1):
        if parent == path[-1] and token == choices[parent]:
            path.append(node)
    return path, choices[path[-1]]
