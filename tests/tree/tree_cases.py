"""Random drafter logits with and without ties, and what a tree over them looks like by name."""

from __future__ import annotations

import torch
from hypothesis import strategies as st

ABSENT = float("-inf")


@st.composite
def drafter_logits(draw, max_levels=16, max_vocabulary=2000):
    """[L, V] logits; coarse ones tie, some tokens are absent, some rows are absent whole."""
    levels = draw(st.integers(1, max_levels))
    vocabulary = draw(st.integers(2, max_vocabulary))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))
    logits = draw(st.sampled_from([1.0, 5.0])) * torch.randn(levels, vocabulary, generator=generator)
    step = draw(st.sampled_from([0.0, 0.0, 0.5, 4.0]))
    if step:
        logits = torch.round(logits / step) * step
    if draw(st.booleans()):
        absent = draw(st.sampled_from([0.1, 0.9]))
        logits[torch.rand(levels, vocabulary, generator=generator) < absent] = ABSENT
    if draw(st.integers(0, 9)) == 0:
        logits[draw(st.integers(0, levels - 1))] = ABSENT
    return logits


def lists_of(tree):
    return tree.tokens.tolist(), tree.parents.tolist(), tree.depths.tolist(), tree.scores.tolist()


def token_paths(tree):
    """The tokens from the root to each node: the node's name whatever the order of the nodes."""
    paths = [()]
    for token, parent in zip(tree.tokens.tolist(), tree.parents.tolist(), strict=True):
        paths.append((*paths[parent], token))
    return paths[1:]


def ranked_by_python(row, count):
    """Token ids by falling logit, equal ones by rising id."""
    return sorted(range(len(row)), key=lambda token: (-row[token], token))[:count]


def difference(left, right):
    """None, or where two trees given as lists first differ: one line, where pytest's own would take minutes."""
    for part, (ours, theirs) in enumerate(zip(left, right, strict=True)):
        if len(ours) != len(theirs):
            return f"part {part}: {len(ours)} and {len(theirs)} entries"
        for entry, (one, other) in enumerate(zip(ours, theirs, strict=True)):
            if one != other:
                return f"part {part}, entry {entry}: {one} and {other}"
    return None
