"""What the records of ``demo_pair`` say, as one object and as Markdown tables."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from drafttree.bench.report import summarise
from drafttree.bench.runs import Run

Record = dict[str, Any]


def summarise_records(records: Sequence[Record]) -> dict[str, Any]:
    """Live and recorded numbers of one set, of all prompts and of those whose output does not loop."""
    straight = [record for record in records if not record["loops"]]
    return {
        "prompts": len(records),
        "looping": sorted(record["key"] for record in records if record["loops"]),
        "all": _part(records),
        "without_loops": _part(straight) if straight else None,
        "identical": {name: _identical(records, name) for name in ("chain", "tree")},
    }


def _part(records: Sequence[Record]) -> dict[str, Any]:
    names = list(records[0]["runs"])
    runs = {name: [Run.from_json(record["runs"][name]) for record in records] for name in names}
    live = {}
    for name in names:
        summary = summarise(runs[name])
        steps = max(1, sum(run.steps for run in runs[name]))
        stages = {stage for run in runs[name] for stage in run.stages} - {"prefill"}
        live[name] = {
            "tokens_per_second": round(summary.tokens_per_second, 3),
            "tokens_per_second_quartiles": [round(value, 3) for value in summary.quartiles],
            "step_ms": round(summary.step_ms, 3),
            "tau": round(summary.tau, 4),
            "acceptance_by_position": [round(share, 4) for share in summary.positions],
            "stage_ms": {
                stage: round(1e3 * sum(run.stages.get(stage, 0.0) for run in runs[name]) / steps, 3)
                for stage in sorted(stages)
            },
        }
    speed = {f"tree / {other}": _ratio(runs["tree"], runs[other]) for other in ("plain", "chain")}
    return {"live": live, "speed": speed, "offline": _offline([record["offline"] for record in records])}


def _ratio(ours: Sequence[Run], theirs: Sequence[Run]) -> dict[str, float]:
    """Tokens a second of one method by another's: pooled, and the quartiles of the prompts."""
    each = [a.tokens_per_second / b.tokens_per_second for a, b in zip(ours, theirs, strict=True) if b.steps and a.steps]
    pooled = summarise(ours).tokens_per_second / summarise(theirs).tokens_per_second
    low, middle, high = statistics.quantiles(each, n=4) if len(each) > 1 else each * 3
    return {name: round(value, 4) for name, value in zip(
        ("pooled", "lower_quartile", "median", "upper_quartile"), (pooled, low, middle, high), strict=True
    )}  # fmt: skip


def _offline(parts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    chain = _tau([part["chain"] for part in parts])
    trees = {
        rule: {budget: _tau([part["trees"][rule][budget] for part in parts]) for budget in parts[0]["trees"][rule]}
        for rule in parts[0]["trees"]
    }
    rule, budget = max(((r, b) for r in trees for b in trees[r]), key=lambda at: trees[at[0]][at[1]])
    best = {"spine": rule, "budget": int(budget), "tau": trees[rule][budget]}
    return {"chain": chain, "trees": trees, "best": best | {"ratio": round(best["tau"] / chain, 4)}}


def _tau(lengths: Sequence[Sequence[int]]) -> float:
    """Tokens a step over all prompts; every length is what its step emitted."""
    return round(sum(map(sum, lengths)) / max(1, sum(map(len, lengths))), 4)


def _identical(records: Sequence[Record], name: str) -> dict[str, Any]:
    found = {record["key"]: record["differences"][name] for record in records}
    return {
        "same": sum(difference is None for difference in found.values()),
        "of": len(found),
        "differences": {key: difference for key, difference in found.items() if difference is not None},
    }


def summarise_sampled(records: Sequence[Record]) -> dict[str, Any]:
    """By temperature: identity, and tau of chain and trees drafted with the request's noise and without."""
    summary = {}
    for temperature in sorted({record["sampling"]["temperature"] for record in records}):
        part = [record for record in records if record["sampling"]["temperature"] == temperature]
        summary[f"{temperature:g}"] = {
            "prompts": len(part),
            "identical": {name: _identical(part, name) for name in ("chain", "tree")},
            "drafting": {way: _offline([record["offline"][way] for record in part]) for way in part[0]["offline"]},
        }
    return summary


def markdown(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A Markdown table; the first column to the left, numbers to the right."""
    align = ["---", *["---:"] * (len(head) - 1)]
    lines = [head, align, *[[str(cell) for cell in row] for row in rows]]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def live_markdown(part: dict[str, Any]) -> str:
    """A row a method."""
    plain = part["live"]["plain"]["tokens_per_second"]
    rows = []
    for name, found in part["live"].items():
        low, middle, high = found["tokens_per_second_quartiles"]
        shares = " ".join(f"{share:.2f}" for share in found["acceptance_by_position"][:6]) or "-"
        rows.append([
            name, f"{found['tokens_per_second']:.1f}", f"{low:.1f} / {middle:.1f} / {high:.1f}",
            f"{found['tokens_per_second'] / plain:.2f}", f"{found['step_ms']:.0f}", f"{found['tau']:.2f}", shares,
        ])  # fmt: skip
    head = ("method", "tokens/s", "quartiles", "x plain", "ms a step", "tokens a step", "accepted at depth 1, 2, ...")
    return markdown(head, rows)


def tau_markdown(offline: dict[str, Any]) -> str:
    """Tokens a step by spine rule and budget, with the chain before them."""
    budgets = list(next(iter(offline["trees"].values())))
    rows = [["chain", *[f"{offline['chain']:.2f}"] * len(budgets)]]
    rows += [[f"tree, spine {rule}", *[f"{taus[b]:.2f}" for b in budgets]] for rule, taus in offline["trees"].items()]
    return markdown(["budget", *budgets], rows)


def stage_markdown(part: dict[str, Any]) -> str:
    """Milliseconds a step by stage."""
    stages = sorted({stage for found in part["live"].values() for stage in found["stage_ms"]})
    rows = [
        [name, *[f"{found['stage_ms'].get(stage, 0.0):.1f}" for stage in stages]]
        for name, found in part["live"].items()
    ]
    return markdown(["ms a step", *stages], rows)
