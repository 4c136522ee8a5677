"""What a step costs by its width on this machine, and the budget that follows."""

from __future__ import annotations

from typing import Any

import torch

from drafttree.drafter.drafter import Drafter
from drafttree.transformers.calibrate import WIDTHS, cost_curve, medians
from drafttree.transformers.target import target_for
from drafttree.tree import build_tree

__all__ = ["WIDTHS", "best_budget", "measure_costs"]


@torch.inference_mode()
def measure_costs(target: Any, drafter: Drafter, *, context: int = 256, repeats: int = 9) -> dict[str, Any]:
    """Median milliseconds of a verify by number of nodes, and of a draft with the building of its tree.

    Random tokens behind ``context`` random ones: the time does not depend on what they say.
    """
    device = next(target.parameters()).device
    verify = cost_curve(target, WIDTHS, context=context, repeats=repeats)
    facts = target_for(target, drafter.config.target_layer_ids, context + 1, 0)
    generator = torch.Generator().manual_seed(0)
    vocabulary = target.config.get_text_config().vocab_size
    ids = torch.randint(0, vocabulary, (context,), generator=generator).to(device)
    try:
        _, taps = facts.prefill(ids)
    finally:
        facts.close()
    assert taps is not None
    memory = drafter.new_context(context + drafter.config.block_size)
    drafter.extend(memory, taps, 0)
    draft = medians({0: lambda: build_tree(drafter.draft(memory, 0), 16)}, repeats, device)[0]
    milliseconds = {str(width): round(1e3 * seconds, 3) for width, seconds in verify.items()}
    return {"context": context, "verify": milliseconds, "draft": round(1e3 * draft, 3)}


def best_budget(costs: dict[str, Any], offline: dict[str, Any]) -> dict[str, Any]:
    """The budget and spine rule with most tokens a second by the cost curve.

    ``offline``: tokens a step by rule and budget, as ``pair_summary`` has them. Only budgets that ``costs`` measured.
    """
    speeds = {
        (rule, budget): 1e3 * tau / (costs["verify"][budget] + costs["draft"])
        for rule, taus in offline["trees"].items()
        for budget, tau in taus.items()
        if budget in costs["verify"]
    }
    rule, budget = max(speeds, key=lambda at: speeds[at])
    return {"spine": rule, "budget": int(budget), "tokens_per_second": round(speeds[rule, budget], 3)}
