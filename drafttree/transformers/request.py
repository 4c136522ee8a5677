"""A request to generate, checked before anything runs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from drafttree.errors import UserError
from drafttree.sampling import SamplingParams

Method = Literal["tree", "chain", "plain"]


@dataclass(frozen=True)
class Request:
    """One prompt with its options; ``ids`` [T] on the target's device, ``context``: tokens that the target can hold."""

    ids: Tensor
    method: Method
    budget: int
    spine: bool | int
    max_new_tokens: int
    params: SamplingParams
    stops: frozenset[int]
    context: int

    @classmethod
    def checked(
        cls,
        target: Any,
        has_drafter: bool,
        input_ids: Any,
        *,
        method: str,
        budget: int,
        spine: bool | int,
        max_new_tokens: int,
        params: SamplingParams,
        stop_token_ids: Iterable[int] | int | None,
    ) -> Request:
        """The request, or UserError naming the argument, what was found and what is expected."""
        if method not in get_args(Method):
            raise UserError.field("generate", "method", method, " or ".join(get_args(Method)))
        if method != "plain" and not has_drafter:
            raise UserError.field("generate", "drafter", None, f"a drafter for the method {method}")
        _check_count("budget", budget, 0)
        if not isinstance(spine, bool):
            _check_count("spine", spine, 0)
        _check_count("max_new_tokens", max_new_tokens, 1)
        config = target.config.get_text_config()
        device = next(target.parameters()).device
        ids = prompt_ids(input_ids, config.vocab_size).to(device)
        context = int(config.max_position_embeddings)
        if len(ids) > context:
            raise UserError.field("generate", "input_ids", f"{len(ids)} tokens", f"at most the target's {context}")
        stops = stop_ids(target) if stop_token_ids is None else _id_set(stop_token_ids)
        noise = params if params.greedy else params.with_seed()
        return cls(ids, method, budget, spine, max_new_tokens, noise, stops, context)  # type: ignore[arg-type]


def prompt_ids(input_ids: Any, vocabulary: int) -> Tensor:
    """Prompt [T] int64 from a list, [T] or [1, T]; UserError when it is empty or holds no token ids."""
    try:
        ids = torch.as_tensor(input_ids)
    except (TypeError, ValueError, RuntimeError):
        raise UserError.field("generate", "input_ids", type(input_ids).__name__, "token ids, [T] or [1, T]") from None
    if ids.dim() == 2 and ids.shape[0] == 1:
        ids = ids[0]
    if ids.dim() != 1 or ids.numel() == 0 or ids.is_floating_point() or ids.is_complex() or ids.dtype == torch.bool:
        raise UserError.field("generate", "input_ids", f"{ids.dtype} {tuple(ids.shape)}", "token ids, [T] or [1, T]")
    low, high = int(ids.min()), int(ids.max())
    if low < 0 or high >= vocabulary:
        raise UserError.field(
            "generate", "input_ids", low if low < 0 else high, f"token ids from 0 to {vocabulary - 1}"
        )
    return ids.to(torch.int64)


def stop_ids(target: Any) -> frozenset[int]:
    """End-of-text ids of ``target``, from its generation settings or else its configuration."""
    settings = getattr(target, "generation_config", None)
    found = getattr(settings, "eos_token_id", None)
    if found is None:
        found = getattr(target.config.get_text_config(), "eos_token_id", None)
    return frozenset() if found is None else _id_set(found)


def _id_set(ids: Iterable[int] | int) -> frozenset[int]:
    values: Sequence[Any] = [ids] if isinstance(ids, int) else list(ids)
    for value in values:
        if isinstance(value, bool) or not isinstance(value, int):
            raise UserError.field("generate", "stop_token_ids", value, "token ids")
    return frozenset(values)


def _check_count(name: str, value: object, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise UserError.field("generate", name, value, f"an integer >= {least}")
