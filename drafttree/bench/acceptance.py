"""Numbers made of acceptance lengths."""

from __future__ import annotations

from collections.abc import Sequence


def tau(new_tokens: int, steps: int) -> float:
    """Tokens emitted a step. The first token comes from the prefill, so it is not counted; 0 without a step.

    A last step that the token limit or a stop token cuts short counts with what it emitted.
    """
    return (new_tokens - 1) / steps if steps else 0.0


def by_position(lengths: Sequence[int], depth: int) -> list[float]:
    """Share of the steps that accepted a token at depth 1, 2, ... ``depth``.

    ``lengths``: acceptance length of every step, the root counted.
    """
    return [sum(length > d for length in lengths) / max(len(lengths), 1) for d in range(1, depth + 1)]


def pooled_tau(parts: Sequence[tuple[int, int]]) -> float:
    """Tokens a step over several prompts: all emitted tokens by all steps. ``parts``: (new tokens, steps) each."""
    steps = sum(steps for _, steps in parts)
    return sum(tokens - 1 for tokens, _ in parts) / steps if steps else 0.0
