"""``drafttree generate``: one prompt, one answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from drafttree.bench.runs import Method, Run, run
from drafttree.commands.placement import placement
from drafttree.drafter.loading import load_drafter
from drafttree.errors import UserError
from drafttree.sampling import SamplingParams
from drafttree.training.prompts import chat_ids
from drafttree.transformers.loading import load_target


@dataclass(frozen=True)
class Answer:
    """The text, with how it was made."""

    text: str
    run: Run

    def as_json(self) -> dict[str, Any]:
        """For programs."""
        return {"text": self.text, **self.run.as_json()}

    def summary(self) -> str:
        """One line: what it cost."""
        run = self.run
        return (
            f"{run.method}: {len(run.tokens)} tokens, {run.tokens_per_second:.1f} tokens/s, "
            f"{run.tau:.2f} tokens a step, {run.step_seconds * 1e3:.0f} ms a step"
        )


def run_generate(
    target: str,
    drafter: str | None,
    prompt: str,
    method: Method,
    params: SamplingParams,
    max_new_tokens: int,
    *,
    chat: bool,
    device: str | None,
    dtype: str | None,
) -> Answer:
    """Load what is needed, decode, and return the answer. UserError for anything that cannot be used."""
    where, kind = placement(device, dtype)
    if max_new_tokens < 1:
        raise UserError.field("generate", "max_new_tokens", max_new_tokens, "an integer >= 1")
    if method.name != "plain" and drafter is None:
        raise UserError(f"--drafter: not given, expected one for the method {method.name} (or use --method plain)")
    model, tokenizer = load_target(target, dtype=kind, device=where)
    network = load_drafter(drafter, model) if drafter is not None and method.name != "plain" else None
    ids = chat_ids(tokenizer, prompt) if chat else [int(t) for t in tokenizer(prompt)["input_ids"]]
    if not ids:
        raise UserError("prompt: found no token, expected at least one")
    result = run(model, network, torch.tensor([ids], device=where), method, max_new_tokens, params)
    return Answer(tokenizer.decode(result.tokens, skip_special_tokens=True), result)
