"""What a generation gave and what it cost."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal

STAGES = ("prefill", "draft", "build", "verify", "walk", "commit")

FinishReason = Literal["stop", "length", "context"]


@dataclass
class Generation:
    """Result of ``generate``.

    Attributes:
        tokens: new token ids, a stop token included.
        acceptance_lengths: tokens emitted by every step after the prefill, which emits the first token.
        paths: accepted nodes of every step, the root (0) first; the last one may go on behind the end of the text.
        finish_reason: ``stop`` (a stop token), ``length`` (max_new_tokens) or ``context`` (the target's longest text).
        seed: key of the sampling noise, None for greedy.
        seconds: wall-clock seconds of every stage, summed over the steps: prefill, draft, build, verify, walk (the
            target's choices included), commit. A GPU works behind the clock: there a stage may hold the wait for an
            earlier one, and only the sum is exact.
        wall_seconds: of the whole call.
    """

    tokens: list[int] = field(default_factory=list)
    acceptance_lengths: list[int] = field(default_factory=list)
    paths: list[list[int]] = field(default_factory=list)
    finish_reason: FinishReason | None = None
    seed: int | None = None
    seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys(STAGES, 0.0))
    wall_seconds: float = 0.0

    @property
    def steps(self) -> int:
        """Number of verify steps."""
        return len(self.acceptance_lengths)

    @property
    def tau(self) -> float:
        """Mean acceptance length: tokens a step; 0 without a step."""
        return sum(self.acceptance_lengths) / self.steps if self.steps else 0.0

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Add the seconds of the block to stage ``name``."""
        start = time.perf_counter()
        yield
        self.seconds[name] += time.perf_counter() - start
