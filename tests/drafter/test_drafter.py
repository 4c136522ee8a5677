"""The context cache and the drafting call against the plain network."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from drafter_samples import HIDDEN, VOCAB, Z_LAB, edited, embedding, head, make_target, taps, weights
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

from drafttree.drafter.config import DrafterConfig, default_target_layer_ids
from drafttree.drafter.drafter import Drafter
from drafttree.drafter.network import DFlashDrafter
from drafttree.drafter.readers import parse_config
from drafttree.errors import UserError

KINDS: dict[str, dict[str, Any]] = {
    "full": {"layer_types": ["full_attention"] * 3},
    "sliding": {"layer_types": ["sliding_attention"] * 3, "sliding_window": 5},
    "mixed": {},
    "two_sided": {"is_causal": False, "sliding_window": 3},
    "causal": {"is_causal": True, "sliding_window": 1},
    "scaled": {"input_embedding_scale": 3.0, "output_multiplier": 0.25, "final_logit_softcapping": 2.0},
}
TARGET = make_target()


def make_network(kind: str) -> DFlashDrafter:
    config = parse_config(edited(Z_LAB, **KINDS[kind]), kind)
    network = DFlashDrafter(config).double()
    network.load_state_dict(weights(config))
    return network


DRAFTERS = {kind: Drafter.for_target(make_network(kind), TARGET) for kind in KINDS}


def one_shot(network: DFlashDrafter, rows: torch.Tensor, anchor: int, size: int) -> torch.Tensor:
    """Draft logits from the call that training uses, without any buffer."""
    length = rows.shape[1]
    block = F.embedding(torch.tensor([[anchor] + [network.config.mask_token_id] * (size - 1)]), embedding())
    before, positions = torch.arange(length)[None], torch.arange(length, length + size)[None]
    hidden = network(block, positions, network.encode_context(rows, before), before)
    return network.logits(hidden[0, 1:], head())


@settings(max_examples=60, deadline=None)
@given(
    kind=st.sampled_from(sorted(KINDS)),
    pieces=st.lists(st.integers(0, 9), max_size=6),
    anchors=st.lists(st.integers(0, VOCAB - 1), min_size=6, max_size=6),
    size=st.integers(2, 6),
    keep=st.integers(0, 5),
)
def test_a_context_grown_in_pieces_drafts_like_one_shot(
    kind: str, pieces: list[int], anchors: list[int], size: int, keep: int
) -> None:
    drafter = DRAFTERS[kind]
    rows = taps(3, sum(pieces))
    context = drafter.new_context(sum(pieces))
    for piece, anchor in zip(pieces, anchors, strict=False):
        start = context.length
        drafter.extend(context, rows[:, start : start + piece], start)
        drafter.draft(context, anchor)  # leaves its own rows behind the context
        found = drafter.draft(context, anchor, size)
        expected = one_shot(drafter.network, rows[:, : start + piece], anchor, size)
        assert found.shape == (size - 1, VOCAB)
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
    back = min(keep, context.length)
    drafter.extend(context, rows[:, back : back + 1], back)
    shorter = rows[:, : min(back + 1, rows.shape[1])]
    expected = one_shot(drafter.network, shorter, anchors[0], size)
    torch.testing.assert_close(drafter.draft(context, anchors[0], size), expected, rtol=0, atol=1e-12)


def test_training_blocks_in_one_row_equal_drafting_each() -> None:
    """Two anchors' blocks side by side, each allowed its own context and itself, as training runs them."""
    for kind, drafter in DRAFTERS.items():
        network, size, rows = drafter.network, 6, taps(3, 20)
        ends, before = (11, 17), torch.arange(20)[None]
        ids = torch.tensor([[3, *[60] * 5, 8, *[60] * 5]])
        positions = torch.cat([torch.arange(end, end + size) for end in ends])[None]
        owner = torch.arange(2).repeat_interleave(size)
        allowed = torch.zeros(1, 1, 12, 32, dtype=torch.bool)
        for row in range(12):
            allowed[0, 0, row, : ends[int(owner[row])]] = True
            allowed[0, 0, row, 20:] = owner == owner[row]
        context = network.encode_context(rows, before)
        hidden = network(F.embedding(ids, embedding()), positions, context, before, allowed)
        for i, (end, anchor) in enumerate(zip(ends, (3, 8), strict=True)):
            found = network.logits(hidden[0, i * size + 1 : (i + 1) * size], head())
            expected = one_shot(network, rows[:, :end], anchor, size)
            torch.testing.assert_close(found, expected, rtol=0, atol=1e-12, msg=kind)


def test_every_weight_gets_a_gradient() -> None:
    network = make_network("mixed").requires_grad_(True)
    one_shot(network, taps(3, 12), 4, 6).square().sum().backward()
    assert all(p.grad is not None and p.grad.abs().max() > 0 for p in network.parameters())


def test_the_anchor_may_be_a_tensor() -> None:
    drafter = DRAFTERS["mixed"]
    context = drafter.new_context(4)
    drafter.extend(context, taps(3, 4), 0)
    assert torch.equal(drafter.draft(context, torch.tensor(7)), drafter.draft(context, 7))
    assert torch.equal(drafter.draft(context, torch.tensor([7])), drafter.draft(context, 7))


def test_embedding_and_head_are_shared_with_the_target() -> None:
    drafter = Drafter.for_target(make_network("full"), TARGET)
    assert drafter.vocabulary.embedding.data_ptr() == TARGET.get_input_embeddings().weight.data_ptr()
    assert drafter.vocabulary.head.data_ptr() == TARGET.lm_head.weight.data_ptr()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_a_network_in_training_is_not_changed_by_its_drafter(dtype: torch.dtype) -> None:
    network = make_network("full")
    drafter = Drafter.for_target(network, make_target(dtype))
    assert network.fc.weight.dtype == torch.float64
    assert drafter.network.fc.weight.dtype == dtype
    assert (drafter.network is network) == (dtype == torch.float64)
    context = drafter.new_context(5)
    drafter.extend(context, taps(3, 5), 0)
    logits = drafter.draft(context, 1)
    assert logits.dtype == dtype
    assert not logits.requires_grad
    context64 = DRAFTERS["full"].new_context(5)
    DRAFTERS["full"].extend(context64, taps(3, 5), 0)
    tolerance = {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 0.3}[dtype]
    assert (logits.double() - DRAFTERS["full"].draft(context64, 1)).abs().max() < tolerance


def test_wrong_use_is_refused() -> None:
    drafter = DRAFTERS["mixed"]
    context = drafter.new_context(5)
    with pytest.raises(ValueError, match="start 1, length 0"):
        drafter.extend(context, taps(3, 2), 1)
    with pytest.raises(ValueError, match="context of 6 rows exceeds the capacity of 5"):
        drafter.extend(context, taps(3, 6), 0)
    assert context.length == 0
    for size in (1, 0, -1, 7):
        with pytest.raises(ValueError, match=r"block size must lie in 2\.\.6"):
            drafter.draft(context, 0, size)
    drafter.extend(context, taps(3, 5), 0)
    assert drafter.draft(context, 0).shape == (5, VOCAB)  # a block fits behind a full context
    context.clear()
    assert context.length == 0


def test_buffers_are_made_once() -> None:
    drafter = DRAFTERS["sliding"]
    context = drafter.new_context(10)
    assert context.nbytes() == 3 * 2 * 2 * 16 * (10 + 6) * 8
    before = [t.data_ptr() for buffer in context._buffers for t in buffer]
    drafter.extend(context, taps(3, 7), 0)
    drafter.draft(context, 2)
    assert before == [t.data_ptr() for buffer in context._buffers for t in buffer]


def test_summary_counts_weights_and_context() -> None:
    summary = DRAFTERS["mixed"].summary()
    drafter = DRAFTERS["mixed"]
    assert summary["parameters"] == sum(p.numel() for p in drafter.network.parameters())
    assert summary["weight_bytes"] == 8 * summary["parameters"]
    assert summary["context_bytes_per_token"] * 16 == drafter.new_context(10).nbytes()
    assert summary["layer_types"] == ["sliding_attention", "sliding_attention", "full_attention"]
    assert summary["shares_embedding"] and summary["shares_head"]


@pytest.mark.parametrize(
    ("layers", "drafter_layers", "expected"),
    [
        (36, 5, (1, 9, 17, 25, 33)),
        (64, 5, (1, 16, 31, 46, 61)),
        (40, 8, (1, 6, 11, 16, 22, 27, 32, 37)),
        (30, 1, (15,)),
        (12, 3, (1, 5, 9)),
    ],
)
def test_default_taps_are_those_of_the_public_checkpoints(
    layers: int, drafter_layers: int, expected: tuple[int, ...]
) -> None:
    assert default_target_layer_ids(layers, drafter_layers) == expected


def config_with(**changes: Any) -> DrafterConfig:
    return DrafterConfig(**(parse_config(Z_LAB, "sample").model_dump() | changes))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"num_attention_heads": 3}, "num_attention_heads"),
        ({"head_dim": 15}, "head_dim"),
        ({"sliding_window": None}, "sliding_window"),
        ({"mask_token_id": VOCAB}, "mask_token_id"),
        ({"target_layer_ids": (1, 1)}, "target_layer_ids"),
        ({"target_layer_ids": (12,)}, "target_layer_ids"),
        ({"target_layer_ids": ()}, "target_layer_ids"),
        ({"layer_types": ("linear_attention",)}, "layer_types"),
        ({"rope_theta": float("nan")}, "rope_theta"),
        ({"rope_theta": 0.0}, "rope_theta"),
        ({"block_size": 1}, "block_size"),
        ({"hidden_size": 0}, "hidden_size"),
        ({"draft_vocab_size": VOCAB + 1}, "draft_vocab_size"),
        ({"surprise": 1}, "surprise"),
    ],
)
def test_a_configuration_made_by_hand_is_checked(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        config_with(**changes)


@pytest.mark.parametrize(
    ("target_changes", "words"),
    [
        ({"hidden_size": 64}, "hidden_size: found 32, expected the target's 64"),
        ({"vocab_size": 70}, "vocab_size: found 61, expected the target's 70"),
        ({"num_hidden_layers": 11}, "num_target_layers: found 12, expected the target's 11"),
    ],
)
def test_another_target_is_refused(target_changes: dict[str, Any], words: str) -> None:
    with pytest.raises(UserError, match=words):
        Drafter.for_target(make_network("full"), make_target(**target_changes))


def test_a_target_whose_ends_cannot_be_shared_is_refused() -> None:
    network = make_network("full")

    def refused(words: str, target: Any) -> None:
        with pytest.raises(UserError, match=words) as caught:
            Drafter.for_target(network, target)
        assert "\n" not in str(caught.value)

    target = make_target()
    target.lm_head.weight = torch.nn.Parameter(target.lm_head.weight.to(torch.int8), requires_grad=False)
    refused("output head: found 'Linear of torch.int8', expected an unquantised float matrix", target)
    target = make_target()
    target.lm_head = torch.nn.Identity()
    refused("output head: found Identity without a plain weight", target)
    target = make_target()
    target.lm_head = None
    refused("output head: found none", target)
    target = make_target()
    target.lm_head = torch.nn.Linear(HIDDEN, VOCAB, bias=True)
    refused("output head: found 'Linear with a bias'", target)
    target = make_target()
    target.lm_head = torch.nn.Linear(HIDDEN, VOCAB + 3, bias=False)
    refused(r"output head: found \[64, 32\]", target)
    target = make_target()
    target.model.embed_tokens.to("meta")
    refused("input embedding: found it offloaded", target)
    refused("found no config", torch.nn.Linear(2, 2))
    refused("found no config", "not a model")
