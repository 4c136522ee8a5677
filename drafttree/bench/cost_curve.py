"""What a step costs by its width on this machine, and the budget that follows."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from functools import partial
from time import perf_counter
from typing import Any

import torch

from drafttree.drafter.drafter import Drafter
from drafttree.transformers.target import target_for
from drafttree.tree import build_tree

WIDTHS = (0, 4, 7, 8, 12, 15, 16, 23, 24, 31, 32)


@torch.inference_mode()
def measure_costs(target: Any, drafter: Drafter, *, context: int = 256, repeats: int = 9) -> dict[str, Any]:
    """Median milliseconds of a verify by number of nodes, and of a draft with the building of its tree.

    Random tokens behind ``context`` random ones: the time does not depend on what they say.
    """
    device = next(target.parameters()).device
    facts = target_for(target, drafter.config.target_layer_ids, context + 1, max(WIDTHS))
    generator = torch.Generator().manual_seed(0)
    vocabulary = target.config.get_text_config().vocab_size
    ids = torch.randint(0, vocabulary, (context,), generator=generator).to(device)
    try:
        _, taps = facts.prefill(ids)
        assert taps is not None
        memory = drafter.new_context(context + drafter.config.block_size)
        drafter.extend(memory, taps, 0)
        logits = drafter.draft(memory, 0)
        verify = {}
        for width in WIDTHS:
            tree = build_tree(logits, width)
            rows = (torch.cat([ids[:1], tree.tokens]), tree.node_depths(), tree.ancestor_mask())
            verify[str(width)] = _median(partial(facts.verify, *rows), repeats, device)
        draft = _median(lambda: build_tree(drafter.draft(memory, 0), 16), repeats, device)
    finally:
        facts.close()
    return {"context": context, "verify": verify, "draft": draft}


def _median(call: Callable[[], object], repeats: int, device: torch.device) -> float:
    call()
    seconds = []
    for _ in range(repeats):
        start = perf_counter()
        call()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        seconds.append(perf_counter() - start)
    return round(1e3 * statistics.median(seconds), 3)


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
