"""A tiny target with a tokenizer, for the training tests."""

from __future__ import annotations

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

WORDS = ["<end>", "<user>", "<bot>", "<mask>", "<unk>"] + [f"w{i}" for i in range(59)]
TEMPLATE = (
    "{% for m in messages %}<user> {{ m.content }} <end> {% endfor %}{% if add_generation_prompt %}<bot>{% endif %}"
)


def tiny_tokenizer() -> PreTrainedTokenizerFast:
    raw = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="<unk>"))
    raw.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=raw, eos_token="<end>", unk_token="<unk>")
    tokenizer.chat_template = TEMPLATE
    return tokenizer


def tiny_target(seed: int = 0, dtype: torch.dtype = torch.float32) -> LlamaForCausalLM:
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=len(WORDS),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=6,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=256,
        eos_token_id=0,
        bos_token_id=None,
        tie_word_embeddings=False,
    )
    model = LlamaForCausalLM(config).to(dtype).eval()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():  # a habit to learn: the head likes the follower of the token that it reads
        table = torch.randn(len(WORDS), config.hidden_size, generator=generator)
        follower = 1 + torch.randperm(len(WORDS) - 1, generator=generator)  # never the end
        model.model.embed_tokens.weight.copy_(table)
        model.lm_head.weight[follower] = 0.5 * table[1:].to(dtype)
    return model
