"""Records of a tiny pair: the acceptance told from the record is what live decoding gave."""

from __future__ import annotations

import json

import pytest
import torch
from saved_models import tiny_model, tiny_network

from drafttree.bench.cost_curve import WIDTHS, measure_costs
from drafttree.bench.demo_pair import BUDGETS, evenly, greedy_record, live, sampled_record, spines
from drafttree.bench.pair_summary import summarise_records, summarise_sampled
from drafttree.bench.runs import Method, Run, run
from drafttree.drafter.context import DrafterContext
from drafttree.drafter.drafter import Drafter
from drafttree.errors import UserError
from drafttree.sampling import SamplingParams

TARGET = tiny_model().double()
PROMPT = torch.tensor([[5, 9, 12, 7, 30, 41]])
TOKENS = 40
SAMPLED = SamplingParams(temperature=0.8, seed=11)


def knowing_drafter(params: SamplingParams) -> Drafter:
    """A random drafter that likes the true token more, by an amount that depends on the place alone."""
    output = run(TARGET, None, PROMPT, Method("plain"), TOKENS, params).tokens
    truth = PROMPT[0].tolist() + output
    drafter = Drafter.for_target(tiny_network(), TARGET)
    blind = drafter.draft

    def draft(context: DrafterContext, anchor: int, block_size: int | None = None) -> torch.Tensor:
        logits = blind(context, anchor, block_size)
        for row in range(len(logits)):
            position = context.length + 1 + row
            if position < len(truth):
                generator = torch.Generator().manual_seed(31 * position + row)
                logits[row, truth[position]] += 9 * torch.rand((), generator=generator, dtype=logits.dtype)
        return logits

    drafter.draft = draft  # type: ignore[method-assign]
    return drafter


DRAFTER = knowing_drafter(SamplingParams())


@pytest.mark.parametrize("rule", ["full", "partial", "none"])
@pytest.mark.parametrize("budget", [4, 16])
def test_recorded_acceptance_is_that_of_decoding(rule: str, budget: int) -> None:
    methods = [Method("plain"), Method("chain"), Method("tree", budget, spines(4)[rule])]
    record = greedy_record(TARGET, DRAFTER, PROMPT, methods, TOKENS, 0)
    assert record["differences"] == {"chain": None, "tree": None}
    assert record["offline"]["chain"] == record["runs"]["chain"]["acceptance_lengths"]
    found = record["offline"]["trees"][rule][str(budget)]
    decoded = record["runs"]["tree"]["acceptance_lengths"]
    # Near the token limit decoding shortens the block, which leaves more of the budget to breadth.
    assert found[:-2] == decoded[: len(found) - 2]
    assert sum(found) == sum(decoded) == TOKENS - 1
    assert len(record["offline"]["chain"]) < 30 and len(set(decoded)) > 2  # something is accepted, not everything
    json.dumps(record)


def test_a_seeded_record_drafts_with_the_noise_and_without() -> None:
    methods = [Method("plain"), Method("chain"), Method("tree", 8)]
    record = sampled_record(TARGET, knowing_drafter(SAMPLED), PROMPT, methods, TOKENS, SAMPLED, 1, (1.0, 0.5))
    assert record["differences"] == {"chain": None, "tree": None}
    assert list(record["offline"]) == ["uncoupled", "coupled, c 1", "coupled, c 0.5"]
    assert all(sum(part["chain"]) == TOKENS - 1 for part in record["offline"].values())
    plain, noisy = record["offline"]["uncoupled"], record["offline"]["coupled, c 1"]
    assert plain != noisy
    summary = summarise_sampled([{"key": "x", **record}])
    assert summary["0.8"]["identical"]["tree"]["same"] == 1


def test_the_order_of_methods_turns_and_the_result_does_not() -> None:
    methods = [Method("plain"), Method("tree", 4)]
    first = live(TARGET, DRAFTER, PROMPT, methods, 6, SamplingParams(), 0)
    second = live(TARGET, DRAFTER, PROMPT, methods, 6, SamplingParams(), 1)
    assert list(first) == list(second) == ["plain", "tree"]
    assert first["tree"].tokens == second["tree"].tokens == first["plain"].tokens


def test_a_record_summarises() -> None:
    methods = [Method("plain"), Method("chain"), Method("tree", 16)]
    record = {"key": "x", **greedy_record(TARGET, DRAFTER, PROMPT, methods, 12, 0)}
    summary = summarise_records([record])
    assert summary["prompts"] == 1 and set(summary["all"]["live"]) == {"plain", "chain", "tree"}
    assert isinstance(Run.from_json(record["runs"]["tree"]), Run)


def test_evenly_spreads_over_the_items() -> None:
    assert evenly(list(range(10)), 3) == [0, 3, 6]
    assert evenly([1, 2], 5) == [1, 2]


def test_the_cost_of_every_width_is_measured() -> None:
    costs = measure_costs(tiny_model(), Drafter.for_target(tiny_network(), tiny_model()), context=40, repeats=1)
    assert list(costs["verify"]) == [str(width) for width in WIDTHS]
    assert all(value > 0 for value in (*costs["verify"].values(), costs["draft"]))
    assert set(map(str, BUDGETS)) <= set(costs["verify"])


@pytest.mark.parametrize(("name", "budget"), [("magic", 1), ("tree", -1)])
def test_a_method_that_is_none(name: str, budget: int) -> None:
    with pytest.raises(UserError, match="found"):
        Method(name, budget)
