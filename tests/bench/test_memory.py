"""The account of memory against what a tiny model really allocates."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.profiler import ProfilerActivity, profile
from transformers import Qwen3_5ForCausalLM, Qwen3_5TextConfig, Qwen3Config, Qwen3ForCausalLM

from drafttree.bench.memory import QWEN_27B, memory_of_tree_step
from drafttree.transformers.target import target_for
from drafttree.tree import DraftTree

COMMON: dict[str, Any] = dict(
    hidden_size=64,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=16,
    max_position_embeddings=512,
    eos_token_id=None,
    bos_token_id=None,
    pad_token_id=None,
)
LINEAR: dict[str, Any] = dict(
    linear_num_key_heads=2, linear_num_value_heads=6, linear_key_head_dim=32, linear_value_head_dim=32
)
CONTEXT, BUDGET = 200, 40
TREE = DraftTree.from_lists(list(range(BUDGET)), [max(0, i - i % 4 - 3) if i % 4 == 0 else i for i in range(BUDGET)])


def hybrid(intermediate: int, vocabulary: int) -> Any:
    config = Qwen3_5TextConfig(
        **COMMON, **LINEAR, num_hidden_layers=8, intermediate_size=intermediate, vocab_size=vocabulary
    )
    return Qwen3_5ForCausalLM(config).eval()


def dense() -> Any:
    return Qwen3ForCausalLM(Qwen3Config(**COMMON, num_hidden_layers=4, intermediate_size=256, vocab_size=500)).eval()


MODELS: dict[str, Callable[[], Any]] = {
    "hybrid": lambda: hybrid(256, 500),
    "hybrid, wide feed-forward layers": lambda: hybrid(4096, 500),
    "hybrid, large vocabulary": lambda: hybrid(128, 20000),
    "dense": dense,
}


def peak_of(step: Callable[[], Any]) -> int:
    """Most bytes alive at one time that ``step`` allocated, by the allocator's own events."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as recorded:
        kept = step()
    events = [event for event in recorded.profiler.kineto_results.events() if event.name() == "[memory]"]
    now = peak = 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        now += event.nbytes()
        peak = max(peak, now)
    del kept
    return peak


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", MODELS)
def test_a_step_stays_within_the_account(name: str, dtype: torch.dtype) -> None:
    """What is held is counted to the byte; what a step takes for a while is at most the account, and most of it."""
    model = MODELS[name]().to(dtype)
    account = memory_of_tree_step(model.config, BUDGET, dtype, taps=2, context=CONTEXT, block_size=16)
    target = target_for(model, (1, 3), CONTEXT, BUDGET)
    assert account["total"] == sum(value for key, value in account.items() if key != "total")
    if name != "dense":
        state = target.state
        assert account["held_stashed_rows"] == state.rows.nbytes
        assert account["held_stashed_gates"] == state.g.nbytes + state.beta.nbytes
        assert account["held_convolution_weights"] == state.weights.nbytes
    assert account["held_mask"] == target._mask.buffer.nbytes
    node_rows = target.cache.buffers[:, :, :, CONTEXT:]
    assert account["held_node_keys_and_values"] == node_rows.numel() * node_rows.element_size()
    target.prefill(torch.arange(30))
    tokens = torch.cat([torch.tensor([7]), TREE.tokens])
    mask, depths = TREE.ancestor_mask(), TREE.node_depths()
    path = [0, *TREE.spine()][:16]
    logits, taps = target.verify(tokens, depths, mask)
    assert account["step_logits"] == logits.nbytes and account["step_taps"] == 2 * taps.nbytes

    def step() -> Any:
        outputs = target.verify(tokens, depths, mask)
        target.commit(path)
        return outputs

    allowed = sum(value for key, value in account.items() if key.startswith("step_"))
    peak = peak_of(step)
    assert 0.4 * allowed < peak <= 1.05 * allowed, (peak, account)


def test_a_27b_step_of_63_nodes_takes_less_than_200_megabytes() -> None:
    account = memory_of_tree_step(Qwen3_5TextConfig(**QWEN_27B), 63, torch.bfloat16)
    assert account["total"] <= 200e6, account
    assert account["held_stashed_rows"] == 48 * 64 * 10240 * 2


def test_the_account_grows_with_the_budget_alone_where_it_should() -> None:
    config = Qwen3_5TextConfig(**QWEN_27B)
    small, large = (memory_of_tree_step(config, budget, torch.bfloat16) for budget in (31, 63))
    assert large["held_convolution_weights"] == small["held_convolution_weights"]
    assert large["step_logits"] == 2 * small["step_logits"]
