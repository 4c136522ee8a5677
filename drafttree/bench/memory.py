"""Memory of one tree step beyond the model's own cache, computed from a configuration alone."""

from __future__ import annotations

from typing import Any

import torch

from drafttree.transformers.architectures import attention_layers, head_size
from drafttree.transformers.hybrid import HybridTarget
from drafttree.transformers.hybrid_state import REPLAYED_LAYERS
from drafttree.transformers.target import DenseTarget

# Qwen3.5-27B and Qwen3.6-27B share this shape. Source: their config.json, text_config.
QWEN_27B: dict[str, Any] = {
    "vocab_size": 248320,
    "hidden_size": 5120,
    "intermediate_size": 17408,
    "num_hidden_layers": 64,
    "num_attention_heads": 24,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "linear_num_key_heads": 16,
    "linear_num_value_heads": 48,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "linear_conv_kernel_dim": 4,
}


def memory_of_tree_step(
    config: Any, budget: int, dtype: torch.dtype, *, taps: int = 5, context: int = 4096, block_size: int = 16
) -> dict[str, int]:
    """Bytes that a greedy verify and commit of ``budget`` nodes take for one sequence of the embedded engine.

    The model's own cache, which plain decoding has too, is left out: keys and values of the committed text,
    convolution windows and recurrent states. There is no state a node.

    Args:
        config: text configuration of a dense or hybrid target.
        budget: nodes without the root.
        dtype: of the target.
        taps: target layers that the drafter reads.
        context: tokens that may be committed; the mask has a column for each.
        block_size: of the drafter; an accepted path is at most so long.

    Returns:
        ``held_*``: buffers that last as long as the request. ``step_*``: tensors of one step, their most at one time;
        the work of a layer and that of the commit do not coincide. ``total``: their sum.
    """
    rows, size = budget + 1, dtype.itemsize
    wide = 8 if dtype == torch.float64 else 4
    attention = len(attention_layers(config))
    linear = config.num_hidden_layers - attention
    prefill = HybridTarget.prefill_tokens if linear else DenseTarget.prefill_tokens
    found = {
        "held_node_keys_and_values": 2 * attention * config.num_key_value_heads * head_size(config) * rows * size,
        "held_mask": max(rows, min(prefill, context)) * (context + rows),
        "step_logits": rows * config.vocab_size * size,
        "step_taps": 2 * taps * rows * config.hidden_size * size,  # the layers' outputs and their concatenation
    }
    work = 4 * rows * config.intermediate_size * size  # gate, its activation, up, product
    if linear:
        heads, key_dim, value_dim = (
            config.linear_num_value_heads,
            config.linear_key_head_dim,
            config.linear_value_head_dim,
        )
        kernel = config.linear_conv_kernel_dim
        channels = 2 * config.linear_num_key_heads * key_dim + heads * value_dim
        found["held_stashed_rows"] = linear * rows * channels * size
        found["held_stashed_gates"] = 2 * linear * rows * heads * wide
        found["held_convolution_weights"] = linear * channels * kernel * size
        path, group = min(rows, block_size), min(linear, REPLAYED_LAYERS)
        convolution = rows * channels * (3 * size + 2 * wide)  # raw, text, tap, the tap in wide, the sum
        rule = heads * rows * (6 * key_dim + 6 * value_dim + 5 * rows) * wide
        commit = group * path * (channels * (4 * size + 3 * wide) + heads * (2 * key_dim + 2 * value_dim) * wide)
        work = max(work, convolution + rule, commit)
    found["step_work_of_a_layer"] = work + 6 * rows * config.hidden_size * size  # states around the layer
    return found | {"total": sum(found.values())}
