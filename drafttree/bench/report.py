"""Summaries of many runs, and the tables made of them."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from rich.table import Table

from drafttree.bench.acceptance import by_position, pooled_tau
from drafttree.bench.runs import Run

SHOWN_POSITIONS = 6


@dataclass(frozen=True)
class MethodSummary:
    """One method over several prompts.

    Attributes:
        tokens_per_second: all tokens by all seconds, prefills left out.
        quartiles: lower quartile, median and upper quartile of the prompts' tokens a second.
        step_ms: milliseconds a step.
        tau: tokens a step.
        positions: share of steps that accepted the token at depth 1, 2, ...
    """

    tokens_per_second: float
    quartiles: tuple[float, float, float]
    step_ms: float
    tau: float
    positions: list[float]


def summarise(runs: Sequence[Run]) -> MethodSummary:
    """Pool the runs of one method."""
    seconds, steps = sum(run.decode_seconds for run in runs), sum(run.steps for run in runs)
    lengths = [length for run in runs for length in run.acceptance_lengths]
    speeds = [run.tokens_per_second for run in runs]
    low, middle, high = statistics.quantiles(speeds, n=4) if len(speeds) > 1 else speeds * 3
    return MethodSummary(
        tokens_per_second=sum(len(run.tokens) - 1 for run in runs) / seconds if seconds else 0.0,
        quartiles=(low, middle, high),
        step_ms=1e3 * seconds / steps if steps else 0.0,
        tau=pooled_tau([(len(run.tokens), run.steps) for run in runs]),
        positions=by_position(lengths, max(lengths, default=1) - 1),
    )


def method_table(summaries: dict[str, MethodSummary], identical: dict[str, str], title: str) -> Table:
    """A row a method, plain first; ``identical``: what to say of the others' output. tau: tokens a step."""
    table = Table(title=title)
    plain = next(iter(summaries.values()))
    heads = ("", "tokens/s", "x plain", "ms a step", "tau", "accepted at depth 1, 2, ...", "same as plain")
    for head in heads:
        table.add_column(head, justify="left" if head in heads[::6] else "right")
    for label, summary in summaries.items():
        shares = " ".join(f"{share:.2f}" for share in summary.positions[:SHOWN_POSITIONS])
        more = " ..." if len(summary.positions) > SHOWN_POSITIONS else ""
        table.add_row(
            label,
            f"{summary.tokens_per_second:.1f}",
            f"{summary.tokens_per_second / plain.tokens_per_second:.2f}" if plain.tokens_per_second else "-",
            f"{summary.step_ms:.0f}",
            f"{summary.tau:.2f}",
            shares + more or "-",
            identical.get(label, ""),
        )
    return table
