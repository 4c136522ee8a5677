"""One measured run of one method."""

from __future__ import annotations

from dataclasses import dataclass
from time import perf_counter
from typing import Any

import torch

from drafttree.bench.acceptance import by_position, tau
from drafttree.drafter.drafter import Drafter
from drafttree.errors import UserError
from drafttree.sampling import SamplingParams
from drafttree.transformers.generation import generate

METHODS = ("plain", "chain", "tree")


@dataclass(frozen=True)
class Method:
    """How to decode: ``name`` is plain, chain or tree; budget and spine are the tree's. UserError for others."""

    name: str
    budget: int = 8
    spine: bool | int = False

    def __post_init__(self) -> None:
        if self.name not in METHODS:
            raise UserError.field("generate", "method", self.name, " or ".join(METHODS))
        if self.budget < 0:
            raise UserError.field("generate", "budget", self.budget, "an integer >= 0")

    @property
    def label(self) -> str:
        """For tables."""
        if self.name != "tree":
            return self.name
        spine = {True: "full", False: "no"}[self.spine] if isinstance(self.spine, bool) else str(self.spine)
        return f"tree, budget {self.budget}, {spine} spine"


@dataclass(frozen=True)
class Run:
    """What a run gave and what it cost.

    Attributes:
        method: plain, chain or tree.
        budget: of the tree, None for the others.
        tokens: new token ids.
        acceptance_lengths: tokens emitted by every step, the root counted.
        seconds: of the whole call.
        stages: seconds of every stage.
    """

    method: str
    budget: int | None
    tokens: list[int]
    acceptance_lengths: list[int]
    seconds: float
    stages: dict[str, float]

    @property
    def decode_seconds(self) -> float:
        """Without the prefill, which every method shares."""
        return self.seconds - self.stages.get("prefill", 0.0)

    @property
    def steps(self) -> int:
        """Forward passes of the target after the prefill."""
        return len(self.acceptance_lengths)

    @property
    def tau(self) -> float:
        """Tokens a step."""
        return tau(len(self.tokens), self.steps)

    @property
    def tokens_per_second(self) -> float:
        """Tokens after the first, which the prefill gives, by the seconds they took."""
        return (len(self.tokens) - 1) / self.decode_seconds if self.steps else 0.0

    @property
    def step_seconds(self) -> float:
        """Seconds a step."""
        return self.decode_seconds / self.steps if self.steps else 0.0

    def as_json(self) -> dict[str, Any]:
        """Raw numbers and those derived from them."""
        depth = max(self.acceptance_lengths, default=1) - 1
        return {
            "method": self.method,
            "budget": self.budget,
            "tokens": self.tokens,
            "acceptance_lengths": self.acceptance_lengths,
            "seconds": round(self.seconds, 6),
            "stages": {name: round(seconds, 6) for name, seconds in self.stages.items()},
            "tokens_per_second": round(self.tokens_per_second, 4),
            "tau": round(self.tau, 4),
            "step_ms": round(self.step_seconds * 1e3, 4),
            "acceptance_by_position": [round(share, 4) for share in by_position(self.acceptance_lengths, depth)],
        }

    @classmethod
    def from_json(cls, record: dict[str, Any]) -> Run:
        """The run that ``as_json`` wrote."""
        names = ("method", "budget", "tokens", "acceptance_lengths", "seconds", "stages")
        return cls(*(record[name] for name in names))


def run(
    target: Any,
    drafter: Drafter | None,
    prompt: torch.Tensor,
    method: Method,
    max_new_tokens: int,
    params: SamplingParams,
    stop_token_ids: list[int] | None = None,
) -> Run:
    """Decode ``prompt`` [1, T] with ``method`` and measure it. Errors are those of ``generate``."""
    start = perf_counter()
    result = generate(
        target,
        None if method.name == "plain" else drafter,
        prompt,
        method=method.name,  # type: ignore[arg-type]
        budget=method.budget,
        spine=method.spine,
        max_new_tokens=max_new_tokens,
        temperature=params.temperature,
        top_k=params.top_k,
        top_p=params.top_p,
        seed=params.seed,
        stop_token_ids=stop_token_ids,
    )
    seconds = perf_counter() - start
    budget = method.budget if method.name == "tree" else None
    return Run(method.name, budget, result.tokens, result.acceptance_lengths, seconds, dict(result.seconds))
