"""Arguments that cannot be used are one line each, before anything runs."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from engine_samples import OracleDrafter, tiny_target

import drafttree
from drafttree.errors import UserError
from drafttree.transformers.request import stop_ids

TARGET = tiny_target("llama", context=16)
FAULTS: list[tuple[dict[str, Any], str]] = [
    (dict(method="beam"), "method"),
    (dict(method="tree"), "drafter"),
    (dict(budget=-1), "budget"),
    (dict(budget=2.5), "budget"),
    (dict(budget=True), "budget"),
    (dict(spine=-1), "spine"),
    (dict(max_new_tokens=0), "max_new_tokens"),
    (dict(input_ids=[]), "input_ids"),
    (dict(input_ids=[[1, 2], [3, 4]]), "input_ids"),
    (dict(input_ids=[0.5]), "input_ids"),
    (dict(input_ids="text"), "input_ids"),
    (dict(input_ids=[1, 53]), "input_ids"),
    (dict(input_ids=[-1]), "input_ids"),
    (dict(input_ids=[1] * 17), "17 tokens"),
    (dict(stop_token_ids=["</s>"]), "stop_token_ids"),
    (dict(temperature=-1.0), "temperature"),
    (dict(temperature=1.0, top_p=1.5), "top_p"),
    (dict(temperature=1.0, top_k=0), "top_k"),
    (dict(temperature=1.0, seed=-3), "seed"),
]


@pytest.mark.parametrize(("change", "named"), FAULTS, ids=[str(change)[:40] for change, _ in FAULTS])
@pytest.mark.parametrize("call", [drafttree.generate, drafttree.stream])
def test_a_fault_is_one_line_that_names_the_argument(change: dict[str, Any], named: str, call: Any) -> None:
    options = dict(input_ids=[1, 2], method="plain", max_new_tokens=4) | change
    with pytest.raises(UserError) as refused:
        call(TARGET, None, options.pop("input_ids"), **options)
    assert named in str(refused.value) and "\n" not in str(refused.value)


def test_stream_knows_the_same_arguments() -> None:
    with pytest.raises(TypeError):
        drafttree.stream(TARGET, None, [1, 2], method="plain", max_new_tokens=4, budgets=3)
    with pytest.raises(TypeError):
        drafttree.stream(TARGET, None, [1, 2], method="plain")


@pytest.mark.parametrize(
    "ids", [[3, 1, 4], (3, 1, 4), torch.tensor([3, 1, 4]), torch.tensor([[3, 1, 4]]), torch.tensor([3, 1, 4]).int()]
)
def test_prompts_of_every_kind(ids: Any) -> None:
    expected = drafttree.generate(TARGET, None, [3, 1, 4], method="plain", max_new_tokens=5)
    assert drafttree.generate(TARGET, None, ids, method="plain", max_new_tokens=5).tokens == expected.tokens


def test_stop_ids_come_from_generation_settings_before_the_configuration() -> None:
    target = tiny_target("llama", eos_token_id=7)
    target.generation_config.eos_token_id = None
    assert stop_ids(target) == {7}
    target.generation_config.eos_token_id = [4, 5]
    assert stop_ids(target) == {4, 5}


def test_a_drafter_is_not_needed_for_plain_and_does_not_disturb_it() -> None:
    options: dict[str, Any] = dict(method="plain", max_new_tokens=6)
    with_one = drafttree.generate(TARGET, OracleDrafter([1] * 20), [3, 1, 4], **options)
    assert with_one.tokens == drafttree.generate(TARGET, None, [3, 1, 4], **options).tokens
    assert with_one.acceptance_lengths == [1] * 5
