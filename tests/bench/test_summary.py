"""Numbers and tables made of runs, held against numbers worked out by hand."""

from __future__ import annotations

from typing import Any

import pytest

from drafttree.bench.acceptance import by_position, pooled_tau, tau
from drafttree.bench.cost_curve import best_budget
from drafttree.bench.loops import loops
from drafttree.bench.pair_summary import (
    live_markdown,
    markdown,
    stage_markdown,
    summarise_records,
    summarise_sampled,
    tau_markdown,
)
from drafttree.bench.report import summarise
from drafttree.bench.runs import Run


def make_run(method: str, lengths: list[int], seconds: float, tokens: list[int] | None = None) -> Run:
    stages = {"prefill": 1.0, "verify": 0.5 * (seconds - 1.0), "draft": 0.0}
    return Run(method, None, tokens or list(range(1 + sum(lengths))), lengths, seconds, stages)


def test_tau_counts_the_first_token_to_the_prefill() -> None:
    assert tau(13, 4) == 3.0
    assert tau(1, 0) == 0.0
    assert pooled_tau([(13, 4), (3, 1)]) == pytest.approx(14 / 5)  # not the mean of 3 and 2


def test_acceptance_by_position() -> None:
    assert by_position([1, 3, 2, 3], 3) == [0.75, 0.5, 0.0]
    assert by_position([], 2) == [0.0, 0.0]


def test_a_runs_rates_leave_the_prefill_out() -> None:
    run = make_run("tree", [3, 2, 3], 3.0)
    assert run.decode_seconds == 2.0 and run.steps == 3
    assert run.tokens_per_second == 4.0 and run.tau == pytest.approx(8 / 3)
    assert run.step_seconds == pytest.approx(2 / 3)
    assert Run.from_json(run.as_json()) == run


def test_a_run_without_a_step_divides_by_nothing() -> None:
    run = make_run("tree", [], 1.0)
    assert (run.tau, run.tokens_per_second, run.step_seconds) == (0.0, 0.0, 0.0)
    assert summarise([run]).tau == 0.0


def test_methods_are_pooled() -> None:
    summary = summarise([make_run("tree", [4, 4], 3.0), make_run("tree", [1, 1], 2.0)])
    assert summary.tokens_per_second == pytest.approx(10 / 3)
    assert summary.tau == 2.5 and summary.step_ms == 750.0
    assert summary.positions == [0.5, 0.5, 0.5]


def test_loops_are_told_apart() -> None:
    assert loops([9, 8, *([1, 2, 3] * 10)])
    assert not loops(list(range(60)))
    assert not loops([1, 2, 3, 1, 2, 3])


def make_record(key: str, looping: bool, chain: list[int], tree: list[int], difference: Any = None) -> dict[str, Any]:
    size = 1 + sum(tree)
    return {
        "key": key,
        "sampling": {"temperature": 0.6},
        "loops": looping,
        "runs": {
            "plain": make_run("plain", [1] * (size - 1), 1.0 + size - 1).as_json(),
            "chain": make_run("chain", chain, 1.0 + 2 * len(chain)).as_json(),
            "tree": make_run("tree", tree, 1.0 + 2 * len(tree)).as_json(),
        },
        "differences": {"chain": None, "tree": difference},
        "offline": {"chain": chain, "trees": {"full": {"4": chain, "8": tree}, "none": {"4": tree, "8": chain}}},
    }


RECORDS = [
    make_record("a", False, [2, 2, 2], [3, 3]),
    make_record("b", True, [6], [6]),
    make_record("c", False, [1, 1], [2], {"position": 1, "expected": 3, "found": 4, "gap": 1e-6}),
]


def test_summary_of_a_set() -> None:
    summary = summarise_records(RECORDS)
    assert summary["prompts"] == 3 and summary["looping"] == ["b"]
    offline = summary["all"]["offline"]
    assert offline["chain"] == pytest.approx(14 / 6, abs=1e-3)
    assert offline["trees"]["full"]["8"] == pytest.approx(14 / 4, abs=1e-3)
    assert offline["best"]["ratio"] == pytest.approx((14 / 4) / (14 / 6), abs=1e-3)
    straight = summary["without_loops"]
    assert straight["offline"]["chain"] == pytest.approx(8 / 5, abs=1e-3)
    assert straight["live"]["tree"]["tau"] == pytest.approx(8 / 3, abs=1e-3)
    assert summary["identical"]["chain"] == {"same": 3, "of": 3, "differences": {}}
    assert summary["identical"]["tree"]["same"] == 2 and summary["identical"]["tree"]["differences"]["c"]["gap"] == 1e-6
    # plain makes one token a second; the tree's four steps take two seconds each for 14 tokens
    assert summary["all"]["live"]["tree"]["tokens_per_second"] == pytest.approx(14 / 8)
    assert summary["all"]["speed"]["tree / plain"]["pooled"] == pytest.approx(1.75)
    assert summary["all"]["live"]["tree"]["stage_ms"] == {"draft": 0.0, "verify": 1000.0}


def test_a_set_of_loops_alone_has_nothing_apart() -> None:
    assert summarise_records(RECORDS[1:2])["without_loops"] is None


def test_sampled_summary_by_temperature_and_way_of_drafting() -> None:
    records = [r | {"offline": {"uncoupled": r["offline"], "coupled, c 1": r["offline"]}} for r in RECORDS]
    records[2] = records[2] | {"sampling": {"temperature": 1.0}}
    summary = summarise_sampled(records)
    assert list(summary) == ["0.6", "1"] and summary["0.6"]["prompts"] == 2
    assert summary["1"]["identical"]["tree"]["same"] == 0
    assert summary["0.6"]["drafting"]["coupled, c 1"]["chain"] == pytest.approx(12 / 4)


def test_markdown() -> None:
    assert markdown(("a", "b"), [["x", 1]]) == "| a | b |\n| --- | ---: |\n| x | 1 |"
    part = summarise_records(RECORDS)["all"]
    assert "| tree | 1.8 |" in live_markdown(part) and "| plain | 1.0 |" in live_markdown(part)
    assert "| chain | 2.33 | 2.33 |" in tau_markdown(part["offline"])
    assert "| tree, spine full | 2.33 | 3.50 |" in tau_markdown(part["offline"])
    assert stage_markdown(part).startswith("| ms a step | draft | verify |")


def test_best_budget_weighs_tokens_against_cost() -> None:
    costs = {"verify": {"4": 100.0, "8": 150.0}, "draft": 50.0}
    offline = {"trees": {"full": {"4": 3.0, "8": 3.9, "16": 9.0}}}  # 16 was not measured
    assert best_budget(costs, offline) == {"spine": "full", "budget": 4, "tokens_per_second": 20.0}
    offline["trees"]["none"] = {"8": 4.2}
    assert best_budget(costs, offline)["spine"] == "none"
