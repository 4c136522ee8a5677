"""Outputs that repeat themselves: easy to draft, and so reported apart."""

from __future__ import annotations

from drafttree.training.data import loop_start


def loops(tokens: list[int]) -> bool:
    """Whether the output ends in a loop: a period of at most 64 tokens, three times and at least 24 tokens."""
    return loop_start(tokens) is not None
