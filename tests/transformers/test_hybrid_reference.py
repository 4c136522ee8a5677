"""Our layers of a hybrid held against stock Transformers, at float32's precision."""

from __future__ import annotations

import pytest
import torch
from hybrid_samples import HYBRIDS, tiny_hybrid

from drafttree.errors import UserError
from drafttree.transformers import hybrid_state
from drafttree.transformers.architectures import check_architecture
from drafttree.transformers.generation import generate
from drafttree.transformers.hybrid import HybridTarget
from drafttree.tree import DraftTree

PROMPT = torch.tensor([3, 14, 15, 9, 2, 6, 5, 40, 1])
TREE = DraftTree.from_lists([8, 9, 10, 11, 12, 13, 14, 15], [0, 0, 1, 1, 2, 3, 6, 7])
TOKENS = torch.cat([torch.tensor([7]), TREE.tokens])


def path_to(node: int) -> list[int]:
    path = [node]
    while path[0]:
        path.insert(0, int(TREE.parents[path[0] - 1]))
    return path


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("family", HYBRIDS)
def test_every_node_is_the_models_forward_along_its_path(family: str, dtype: torch.dtype) -> None:
    """Logits and taps; float64 too, where Transformers itself works in float32 inside the delta rule."""
    model = tiny_hybrid(family, dtype=dtype)
    target = HybridTarget(model, (0, 3), 32, len(TREE))
    logits, taps = target.prefill(PROMPT)
    stock = model(input_ids=PROMPT[None], output_hidden_states=True)
    assert torch.allclose(logits, stock.logits[0, -1], atol=1e-4)
    assert torch.allclose(taps, torch.cat([stock.hidden_states[1], taps[..., 32:]], -1), atol=1e-4)
    found, taps = target.verify(TOKENS, TREE.node_depths(), TREE.ancestor_mask())
    for node in range(len(TREE) + 1):
        text = torch.cat([PROMPT, TOKENS[path_to(node)]])
        stock = model(input_ids=text[None], output_hidden_states=True)
        assert torch.allclose(found[node], stock.logits[0, -1], atol=1e-4), node
        assert torch.allclose(taps[0, node, :32], stock.hidden_states[1][0, -1], atol=1e-4), node


@pytest.mark.parametrize("at_once", [2, 8])
@pytest.mark.parametrize("leaf", [0, 4, 8])
@pytest.mark.parametrize("family", HYBRIDS)
def test_committed_state_is_the_models_own(
    family: str, leaf: int, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also with more layers than a commit takes at once."""
    from transformers import DynamicCache

    from drafttree.transformers.compat import cache_keyword

    monkeypatch.setattr(hybrid_state, "REPLAYED_LAYERS", at_once)
    model = tiny_hybrid(family, dtype=torch.float32)
    target = HybridTarget(model, (), 32, len(TREE))
    target.prefill(PROMPT)
    target.verify(TOKENS, TREE.node_depths(), TREE.ancestor_mask())
    path = path_to(leaf)
    target.commit(path)
    decoder = model.get_decoder()
    cache = DynamicCache(config=decoder.config)
    text = torch.cat([PROMPT, TOKENS[path]])
    decoder(input_ids=text[None], use_cache=True, **{cache_keyword(model): cache})
    assert target.length == len(text)
    for place, layer in enumerate(target._linear):
        entry = cache.layers[layer]
        assert torch.allclose(target.state.states[place], entry.recurrent_states[0][0], atol=1e-4)
        assert torch.allclose(target.state.windows[place], entry.conv_states[0][0, :, -3:].T, atol=1e-4)
    keys = target.cache.buffers[0, 0, :, : len(text)]
    assert torch.allclose(keys, cache.layers[3].keys[0], atol=1e-4)


@pytest.mark.parametrize("family", HYBRIDS)
def test_plain_is_what_transformers_generates(family: str) -> None:
    model = tiny_hybrid(family, dtype=torch.float32)
    expected = model.generate(PROMPT[None], max_new_tokens=60, do_sample=False)[0, len(PROMPT) :].tolist()
    assert generate(model, None, PROMPT, method="plain", max_new_tokens=60).tokens == expected


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_low_precision_runs_and_keeps_its_state_in_float32(dtype: torch.dtype) -> None:
    model = tiny_hybrid("qwen3_5", dtype=dtype)
    target = HybridTarget(model, (), 32, len(TREE))
    target.prefill(PROMPT)
    found, _ = target.verify(TOKENS, TREE.node_depths(), TREE.ancestor_mask())
    target.commit(path_to(8))
    assert target.state.states.dtype == torch.float32 and target.state.windows.dtype == dtype
    text = torch.cat([PROMPT, TOKENS[path_to(8)]])
    stock = model(input_ids=text[None]).logits[0, -1]
    assert found.dtype == dtype
    assert torch.allclose(found[8], stock, atol=0.5 if dtype == torch.bfloat16 else 1e-4)


def test_text_part_of_a_model_with_a_vision_tower_is_supported() -> None:
    config = tiny_hybrid("qwen3_5_vision").config.to_dict()
    check_architecture(config, "config.json")
    config["text_config"]["layer_types"][0] = "sliding_attention"
    with pytest.raises(UserError, match="layer_types: found 'sliding_attention'"):
        check_architecture(config, "config.json")


def test_another_activation_is_refused() -> None:
    config = tiny_hybrid("qwen3_5").config.to_dict() | {"hidden_act": "gelu"}
    with pytest.raises(UserError, match="hidden_act: found 'gelu'"):
        check_architecture(config, "config.json")
