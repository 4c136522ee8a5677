"""A tiny target and a tiny drafter on disk, for every test that starts from directories."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from drafttree.drafter.config import DrafterConfig
from drafttree.drafter.network import DFlashDrafter
from drafttree.drafter.saving import save_drafter

WORDS = ["<end>", "<user>", "<bot>", "<mask>", "<unk>"] + [f"w{i}" for i in range(59)]
TEMPLATE = "{% for m in messages %}<user> {{ m.content }} {% endfor %}{% if add_generation_prompt %}<bot>{% endif %}"
HIDDEN, LAYERS, CONTEXT = 32, 4, 96


def save_tiny_tokenizer(directory: Path) -> None:
    raw = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="<unk>"))
    raw.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=raw, eos_token="<end>", unk_token="<unk>")
    tokenizer.chat_template = TEMPLATE
    tokenizer.save_pretrained(directory)


def tiny_model(seed: int = 0) -> LlamaForCausalLM:
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=len(WORDS),
        hidden_size=HIDDEN,
        intermediate_size=64,
        num_hidden_layers=LAYERS,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=CONTEXT,
        eos_token_id=0,
        bos_token_id=None,
        initializer_range=0.3,
    )
    return LlamaForCausalLM(config).eval()


def save_tiny_target(directory: Path, seed: int = 0) -> Path:
    tiny_model(seed).save_pretrained(directory)
    save_tiny_tokenizer(directory)
    return directory


def tiny_network(seed: int = 1, **changes: Any) -> DFlashDrafter:
    torch.manual_seed(seed)
    values: dict[str, Any] = {
        "hidden_size": HIDDEN,
        "intermediate_size": 48,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "vocab_size": len(WORDS),
        "block_size": 4,
        "mask_token_id": 3,
        "target_layer_ids": (0, 2),
        "num_target_layers": LAYERS,
        "target_hidden_size": HIDDEN,
        "layer_types": ("full_attention",),
        "rope_theta": 10000.0,
    }
    return DFlashDrafter(DrafterConfig(**(values | changes))).eval()


def save_tiny_drafter(directory: Path, seed: int = 1, **changes: Any) -> Path:
    save_drafter(tiny_network(seed, **changes), directory, dtype=torch.float32)
    return directory


def edit_json(path: Path, **changes: Any) -> None:
    """Change fields of a JSON object; None removes one."""
    values = json.loads(path.read_text()) | changes
    path.write_text(json.dumps({name: value for name, value in values.items() if value is not None}))
