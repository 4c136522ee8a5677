"""The budget follows what was measured."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from engine_samples import OracleDrafter, tiny_target

from drafttree.transformers import calibrate as module
from drafttree.transformers.calibrate import (
    WIDTHS,
    Choice,
    acceptance_curve,
    calibrate,
    cost_curve,
    medians,
    pick_budget,
)
from drafttree.transformers.generation import generate

PROMPT = [3, 14, 15, 9, 2, 6, 5]


def test_costs_of_every_width() -> None:
    costs = cost_curve(tiny_target("llama"), context=40, repeats=2)
    assert tuple(costs) == WIDTHS and all(0 < seconds < 1 for seconds in costs.values())


def test_medians_leave_out_the_first_call_and_take_turns() -> None:
    order: list[int] = []
    calls = {width: lambda width=width: order.append(width) for width in (3, 1)}
    assert set(medians(calls, 2, torch.device("cpu"))) == {3, 1}
    assert order == [3, 1] * 3


def test_acceptance_of_smaller_budgets() -> None:
    paths = [[0, 1, 2], [0, 3, 9], [0], [0, 1, 4, 5]]
    assert acceptance_curve(paths, (0, 1, 4, 8, 9)) == {0: 1.0, 1: 1.5, 4: 9 / 4, 8: 10 / 4, 9: 11 / 4}


@pytest.mark.parametrize("budget", [5, 8, 12])
def test_acceptance_is_that_of_trees_of_that_budget(budget: int) -> None:
    """On the same anchors: the steps of a smaller tree, cut out of a larger one."""
    target = tiny_target("llama")
    truth = PROMPT + generate(target, None, PROMPT, method="plain", max_new_tokens=400).tokens
    wide = generate(target, OracleDrafter(truth), PROMPT, budget=24, max_new_tokens=390)
    narrow = generate(target, OracleDrafter(truth), PROMPT, budget=budget, max_new_tokens=390)
    assert acceptance_curve(wide.paths, (budget,))[budget] == pytest.approx(narrow.tau, rel=0.12)


@pytest.mark.parametrize(
    ("costs", "acceptance", "rest", "expected"),
    [
        ({0: 1.0, 8: 1.2, 16: 1.3}, {0: 1.0, 8: 2.0, 16: 2.2}, 0.2, 16),
        ({0: 1.0, 8: 1.2, 16: 2.0}, {0: 1.0, 8: 2.0, 16: 2.2}, 0.2, 8),
        ({0: 1.0, 8: 1.9, 16: 2.4}, {0: 1.0, 8: 2.0, 16: 2.2}, 0.2, 0),  # a small target: better without
        ({0: 1.0, 8: 1.2}, {0: 1.0, 8: 2.0}, 1.0, 0),  # a slow drafter
        ({0: 1.0}, {}, 0.0, 0),
    ],
)
def test_the_fastest_budget(costs: dict[int, float], acceptance: dict[int, float], rest: float, expected: int) -> None:
    found = pick_budget(costs, acceptance, rest)
    assert found.budget == expected
    speed = acceptance[expected] / (costs[expected] + rest) if expected else 1.0
    assert found.speedup == pytest.approx(speed) and found.speedup >= 1.0


def test_a_whole_calibration(monkeypatch: pytest.MonkeyPatch) -> None:
    target = tiny_target("llama")
    truth = PROMPT + generate(target, None, PROMPT, method="plain", max_new_tokens=60).tokens
    drafter: Any = OracleDrafter(truth)
    contexts: list[int] = []

    def costs(_model: Any, widths: Any, *, context: int, repeats: int) -> dict[int, float]:
        contexts.append(context)
        return {width: 10.0 if width <= 12 else 100.0 for width in widths}  # wide steps are slow, all else is free

    monkeypatch.setattr(module, "cost_curve", costs)
    found = calibrate(target, drafter, [PROMPT, torch.tensor([PROMPT])], max_new_tokens=50)
    assert 0 < found.budget <= 12 and found.speedup > 1.5
    assert contexts == [len(PROMPT) + 25]
    assert calibrate(target, drafter, [PROMPT], max_new_tokens=1) == Choice(0, 1.0)
