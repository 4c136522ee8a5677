"""The target adapter: what it accepts, and that its buffers are made once."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from engine_samples import FAMILIES, OracleDrafter, tiny_target
from transformers import GPT2Config, GPT2LMHeadModel, MistralConfig, MistralForCausalLM

from drafttree.errors import UserError
from drafttree.transformers.architectures import SUPPORTED, check_architecture
from drafttree.transformers.generation import generate
from drafttree.transformers.target import DenseTarget, target_for
from drafttree.transformers.tree_mask import TreeMask

PROMPT = torch.tensor([3, 14, 15, 9, 2, 6, 5])


def chain_rows(tokens: list[int]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    depths = torch.arange(len(tokens))
    return torch.tensor(tokens), depths, depths[:, None] >= depths


@pytest.mark.parametrize("family", FAMILIES)
@torch.inference_mode()
def test_logits_and_taps_are_those_of_the_model(family: str) -> None:
    model = tiny_target(family)
    target = DenseTarget(model, (0, 2), 40, 12)
    last, taps = target.prefill(PROMPT)
    out = model(PROMPT[None], output_hidden_states=True)
    torch.testing.assert_close(last, out.logits[0, -1])
    torch.testing.assert_close(taps, torch.cat([out.hidden_states[1], _before_norm(model, PROMPT)], dim=-1))
    # two branches: 7 -> 8 -> 9 and 7 -> 4; every node sees its own branch alone
    tokens, depths = torch.tensor([7, 8, 4, 9]), torch.tensor([0, 1, 1, 2])
    mask = torch.tensor([[1, 0, 0, 0], [1, 1, 0, 0], [1, 0, 1, 0], [1, 1, 0, 1]], dtype=torch.bool)
    logits, taps = target.verify(tokens, depths, mask)
    for node, branch in enumerate(([7], [7, 8], [7, 4], [7, 8, 9])):
        whole = model(torch.cat([PROMPT, torch.tensor(branch)])[None], output_hidden_states=True)
        torch.testing.assert_close(logits[node], whole.logits[0, -1])
        assert taps is not None
        torch.testing.assert_close(taps[0, node, :32], whole.hidden_states[1][0, -1])
    target.commit([0, 1, 3])
    assert target.length == len(PROMPT) + 3
    after, _ = target.verify(*chain_rows([11]))
    text = torch.cat([PROMPT, torch.tensor([7, 8, 9, 11])])
    torch.testing.assert_close(after[0], model(text[None]).logits[0, -1])
    target.close()


def _before_norm(model: Any, ids: torch.Tensor) -> torch.Tensor:
    """Output of the last layer: ``hidden_states`` has it only after the final norm."""
    kept: list[torch.Tensor] = []
    hook = model.model.norm.register_forward_pre_hook(lambda _module, args: kept.append(args[0]))
    model(ids[None])
    hook.remove()
    return kept[0]


def test_buffers_are_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[DenseTarget] = []
    views: list[tuple[int, int]] = []
    init, view = DenseTarget.__init__, TreeMask.view

    def keep(self: DenseTarget, *args: Any) -> None:
        init(self, *args)
        made.append(self)

    def seen(self: TreeMask, length: int, square: torch.Tensor) -> torch.Tensor:
        found = view(self, length, square)
        views.append((found.data_ptr() - self.buffer.data_ptr(), found.untyped_storage().data_ptr()))
        return found

    monkeypatch.setattr(DenseTarget, "__init__", keep)
    monkeypatch.setattr(TreeMask, "view", seen)
    model = tiny_target("llama")
    drafter = OracleDrafter([*PROMPT.tolist(), *[1] * 60])
    result = generate(model, drafter, PROMPT, max_new_tokens=50, budget=9)
    (target,) = made
    assert len(views) == result.steps + 1
    assert set(views) == {(0, target._mask.buffer.untyped_storage().data_ptr())}, "a mask was made anew"
    # tokens that may be committed, and the nodes of one tree: nothing for the steps in between
    assert target.cache.capacity == len(PROMPT) + 50 + 9 + 1
    assert target.cache.nbytes() == 3 * 2 * 2 * target.cache.capacity * 8 * 8


def test_mask_shows_committed_text_and_ancestors() -> None:
    for attention, dtype in (("sdpa", torch.float32), ("eager", torch.float32)):
        mask = TreeMask(6, 20, attention, dtype, torch.device("cpu"))
        mask.view(3, torch.ones(4, 4, dtype=torch.bool))  # an earlier, wider step leaves its square behind
        square = torch.tensor([[1, 0, 0], [1, 1, 0], [1, 0, 1]], dtype=torch.bool)
        found = mask.view(5, square)
        assert found.shape == (1, 1, 3, 8)
        seen = found[0, 0] if attention == "sdpa" else found[0, 0] == 0
        assert bool(seen[:, :5].all()) and torch.equal(seen[:, 5:], square)
        mask.view(6, square[:1, :1])  # a narrow step: the wider one after it sees all text in all rows
        wide = mask.view(9, torch.eye(6, dtype=torch.bool))[0, 0]
        seen = wide if attention == "sdpa" else wide == 0
        assert bool(seen[:, :9].all()) and torch.equal(seen[:, 9:], torch.eye(6, dtype=torch.bool))


def test_other_architectures_are_refused_with_the_supported_ones() -> None:
    sizes = dict(vocab_size=20, hidden_size=16, num_hidden_layers=1, num_attention_heads=2)
    gpt2 = GPT2LMHeadModel(GPT2Config(vocab_size=20, n_embd=16, n_layer=1, n_head=2))
    mistral = MistralForCausalLM(MistralConfig(**sizes, intermediate_size=16, num_key_value_heads=1))
    for model in (gpt2, mistral):
        with pytest.raises(UserError) as refused:
            generate(model, None, [1, 2], method="plain", max_new_tokens=2)
        assert all(name in str(refused.value) for name in SUPPORTED) and "\n" not in str(refused.value)
        assert str(model.config.model_type) in str(refused.value)


@pytest.mark.parametrize("family", ["qwen2", "qwen3"])
def test_sliding_layers_are_refused_by_name(family: str) -> None:
    options: dict[str, Any] = dict(use_sliding_window=True, sliding_window=4, max_window_layers=1)
    with pytest.raises(UserError, match=r"sliding"):
        target_for(tiny_target(family, **options), (), 10, 3)
    target_for(tiny_target(family, use_sliding_window=False, sliding_window=4), (), 10, 3).close()


@pytest.mark.parametrize("name", ["rope_parameters", "rope_scaling"])
@pytest.mark.parametrize("key", ["rope_type", "type"])
def test_rotation_that_depends_on_the_length_is_refused(name: str, key: str) -> None:
    values = {"model_type": "llama", name: {key: "longrope", "rope_theta": 10000.0}}
    with pytest.raises(UserError, match=r"config.json: .*longrope"):
        check_architecture(values, "config.json")
    check_architecture({"model_type": "llama", name: {key: "llama3"}}, "config.json")


def test_attention_without_a_mask_is_refused() -> None:
    model = tiny_target("llama")
    model.config._attn_implementation = "flash_attention_2"
    with pytest.raises(UserError, match=r"attn_implementation: found flash_attention_2|flash_attention_2"):
        target_for(model, (), 10, 3)
