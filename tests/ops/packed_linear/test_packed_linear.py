"""Packed layers are ``nn.Linear`` within the noise of float32, and say no where they cannot serve."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from saved_models import tiny_model
from torch import nn

from drafttree.drafter.target import TargetFacts
from drafttree.drafter.vocabulary import DraftVocabulary
from drafttree.errors import UserError
from drafttree.ops.packed_linear import PackedLinear, can_pack, onednn, pack_linears
from drafttree.transformers.generation import generate

needs_packing = pytest.mark.skipif(not can_pack(nn.Linear(1, 1)), reason="this PyTorch has no packed product")


@needs_packing
@pytest.mark.parametrize("rows", [1, 2, 5, 8, 16, 17, 33, 300])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("shape", [(576, 192), (96, 1000), (7, 3)])
def test_the_product_is_that_of_a_plain_layer(rows: int, bias: bool, shape: tuple[int, int]) -> None:
    torch.manual_seed(rows)
    plain = nn.Linear(*shape, bias=bias)
    x = torch.randn(2, rows, shape[0])
    exact = plain.double()(x.double())
    # float32 sums of n products err by a few n ** 0.5 roundings of their size
    noise = 4e-7 * float(exact.detach().std()) * shape[0] ** 0.5
    plain = plain.float()
    with torch.inference_mode():
        found = PackedLinear(plain)(x)
    assert found.shape == exact.shape and found.dtype == torch.float32
    assert float((found - exact.detach()).abs().max()) <= max(noise, 1e-6)


@needs_packing
def test_a_model_gives_the_same_tokens_with_packed_layers() -> None:
    prompt = [5, 9, 12]
    plain = tiny_model()
    packed = tiny_model()
    packed.load_state_dict(plain.state_dict())
    assert pack_linears(packed)
    assert not any(type(module) is nn.Linear for module in packed.modules())
    options: dict[str, Any] = dict(method="plain", max_new_tokens=40)
    assert generate(packed, None, prompt, **options).tokens == generate(plain, None, prompt, **options).tokens


@needs_packing
def test_a_drafter_shares_the_packed_head() -> None:
    model = tiny_model()
    weight = model.lm_head.weight.detach().clone()
    pack_linears(model)
    vocabulary = DraftVocabulary.of_target(TargetFacts.of(model))
    assert vocabulary.head_layer is model.lm_head and torch.equal(vocabulary.head, weight)
    hidden = torch.randn(3, weight.shape[1])
    torch.testing.assert_close(vocabulary.logits(hidden), hidden @ weight.T)


@needs_packing
def test_packed_layers_are_neither_moved_nor_saved() -> None:
    model = tiny_model()
    pack_linears(model)
    assert model.float().to("cpu") is model
    with pytest.raises(UserError, match="stay float32 on the CPU"):
        model.double()
    with pytest.raises(UserError, match="stay float32 on the CPU"):
        model.to("meta")
    with pytest.raises(UserError, match="are not saved"):
        model.state_dict()


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_other_dtypes_stay_as_they_are(dtype: torch.dtype) -> None:
    model = tiny_model().to(dtype)
    assert not pack_linears(model)
    assert type(model.lm_head) is nn.Linear


@pytest.mark.parametrize("fault", [AttributeError("no such operation"), RuntimeError("refused"), None])
def test_a_machine_without_the_product_keeps_plain_layers(
    fault: Exception | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def product(*_args: Any) -> torch.Tensor:
        if fault is None:  # an operation that gives something else
            return torch.zeros(2, 4)
        raise fault

    monkeypatch.setattr(onednn, "_product", product)
    onednn._machine_packs.cache_clear()
    try:
        model = tiny_model()
        assert not pack_linears(model) and type(model.lm_head) is nn.Linear
    finally:
        onednn._machine_packs.cache_clear()
