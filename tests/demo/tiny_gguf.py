"""A tiny llama in a GGUF file with quantised weights, written as llama.cpp's converter lays it out."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from gguf import GGMLQuantizationType, GGUFWriter
from gguf.quants import quantize
from transformers import LlamaConfig, LlamaForCausalLM

HIDDEN, LAYERS, HEADS, KV_HEADS, FFN = 64, 2, 4, 2, 96
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
TOKENS = [*SPECIAL, *"abcdefghijklmnop", "ab", "cd", "Ġ", "Ċ"]


WHOLE = {"embed_tokens": "token_embd", "norm": "output_norm"}
IN_LAYER = {
    "input_layernorm": "attn_norm", "q_proj": "attn_q", "k_proj": "attn_k", "v_proj": "attn_v", "o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm", "gate_proj": "ffn_gate", "up_proj": "ffn_up", "down_proj": "ffn_down",
}  # fmt: skip


def tiny_llama() -> LlamaForCausalLM:
    """Random weights, a multiple of a sixteenth each so that a block of 32 of them survives the quantisation."""
    generator = torch.Generator().manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(TOKENS), hidden_size=HIDDEN, num_hidden_layers=LAYERS, num_attention_heads=HEADS,
        num_key_value_heads=KV_HEADS, intermediate_size=FFN, max_position_embeddings=128, rms_norm_eps=1e-5,
        rope_parameters={"rope_type": "default", "rope_theta": 100000.0}, tie_word_embeddings=True,
        bos_token_id=1, eos_token_id=2,
    )  # fmt: skip
    model = LlamaForCausalLM(config).eval()
    with torch.no_grad():
        for weight in model.parameters():
            steps = torch.randint(0, 16, weight.shape, generator=generator)
            flat = steps.view(-1, 32)
            flat[:, 0], flat[:, 1] = 0, 15  # the ends of the range are in every block, so that the step is one
            weight.copy_((steps - 8) / 16)
    return model


def interleaved(weight: np.ndarray, heads: int) -> np.ndarray:
    """Rows of a head in the order in which ggml rotates neighbours: 0, d/2, 1, d/2 + 1, ..."""
    size = weight.shape[0] // heads
    order = np.arange(size).reshape(2, size // 2).T.reshape(-1)
    return np.concatenate([weight[head * size : (head + 1) * size][order] for head in range(heads)])


def quantised(values: np.ndarray) -> tuple[np.ndarray, None, GGMLQuantizationType] | tuple[np.ndarray]:
    if values.ndim == 1:
        return (values,)
    return quantize(values, GGMLQuantizationType.Q4_1), None, GGMLQuantizationType.Q4_1


def write_tiny_gguf(path: Path, *, architecture: str = "llama", extra: str | None = None) -> Path:
    writer = GGUFWriter(path, architecture)
    writer.add_context_length(128)
    writer.add_embedding_length(HIDDEN)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(FFN)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(100000.0)
    writer.add_vocab_size(len(TOKENS))
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(TOKENS)
    writer.add_token_types([3] * len(SPECIAL) + [1] * (len(TOKENS) - len(SPECIAL)))
    writer.add_token_merges(["a b", "c d"])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_chat_template("{% for m in messages %}{{ m.content }}<|im_end|>{% endfor %}")

    for name, weight in tiny_llama().state_dict().items():
        if name == "lm_head.weight":  # tied
            continue
        values = weight.numpy()
        parts = name.removeprefix("model.").removesuffix(".weight").split(".")
        if parts[0] != "layers":
            writer.add_tensor(f"{WHOLE[parts[0]]}.weight", *quantised(values))
            continue
        kind = IN_LAYER[parts[-1]]
        if kind in ("attn_q", "attn_k"):
            values = interleaved(values, HEADS if kind == "attn_q" else KV_HEADS)
        writer.add_tensor(f"blk.{parts[1]}.{kind}.weight", *quantised(values))
    if extra is not None:
        writer.add_tensor(extra, np.zeros((HIDDEN, HIDDEN), np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
