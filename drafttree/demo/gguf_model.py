"""Llama models in GGUF files, dequantised to a Hugging Face directory.

The names of fields and tensors are those of the GGUF format (ggml-org). A llama file stores the rows of the query and
key projections with the two halves of a head interleaved, as ggml rotates neighbours; Transformers rotates halves.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file

from drafttree.errors import UserError

WHOLE = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
IN_LAYER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


class GgufLlama:
    """The configuration and the tensors of one GGUF file."""

    def __init__(self, path: Path) -> None:
        try:
            from gguf import GGUFReader
        except ImportError:
            raise UserError("gguf: the package is missing; install it: pip install 'drafttree[demo]'") from None
        self.path = path
        try:
            self._reader = GGUFReader(path)
        except (OSError, ValueError, IndexError) as error:
            raise UserError(f"{path}: not a GGUF file: {error}") from None
        if self.field("general.architecture") != "llama":
            raise UserError.field(path, "general.architecture", self.field("general.architecture"), "llama")

    def field(self, name: str) -> Any:
        """Value of a metadata field, None if absent."""
        field = self._reader.fields.get(name)
        return None if field is None else field.contents()

    def config(self) -> Any:
        """The model's ``LlamaConfig``."""
        from transformers import LlamaConfig

        names = {tensor.name for tensor in self._reader.tensors}
        return LlamaConfig(
            architectures=["LlamaForCausalLM"],
            dtype="float32",
            vocab_size=len(self._reader.fields["tokenizer.ggml.tokens"].data),
            hidden_size=self.field("llama.embedding_length"),
            intermediate_size=self.field("llama.feed_forward_length"),
            num_hidden_layers=self.field("llama.block_count"),
            num_attention_heads=self.field("llama.attention.head_count"),
            num_key_value_heads=self.field("llama.attention.head_count_kv"),
            max_position_embeddings=self.field("llama.context_length"),
            rms_norm_eps=self.field("llama.attention.layer_norm_rms_epsilon"),
            rope_parameters={"rope_type": "default", "rope_theta": self.field("llama.rope.freq_base")},
            tie_word_embeddings="output.weight" not in names,
            bos_token_id=self.field("tokenizer.ggml.bos_token_id"),
            eos_token_id=self.field("tokenizer.ggml.eos_token_id"),
        )

    def weights(self) -> dict[str, torch.Tensor]:
        """Every tensor in float32 under its Transformers name."""
        from gguf.quants import dequantize

        weights = {}
        for tensor in self._reader.tensors:
            values = np.array(dequantize(tensor.data, tensor.tensor_type), dtype=np.float32)
            shape = tuple(int(size) for size in reversed(tensor.shape))
            kind, name = self._transformers_name(tensor.name)
            weight = torch.from_numpy(values).reshape(shape)
            if kind in ("attn_q", "attn_k"):
                heads = self.field("llama.attention.head_count" + ("" if kind == "attn_q" else "_kv"))
                # [heads, half, 2, H] -> [heads, 2, half, H]
                weight = weight.view(heads, -1, 2, shape[1]).transpose(1, 2).reshape(shape)
            weights[name] = weight.contiguous()
        return weights

    def _transformers_name(self, name: str) -> tuple[str, str]:
        """Kind of the tensor in the file, and its name in Transformers."""
        match name.split("."):
            case [kind, "weight"] if kind in WHOLE:
                return kind, f"{WHOLE[kind]}.weight"
            case ["blk", layer, kind, "weight"] if kind in IN_LAYER:
                return kind, f"model.layers.{layer}.{IN_LAYER[kind]}.weight"
        raise UserError(f"{self.path}: tensor {name}: unknown, expected a plain llama model")

    def tokenizer(self) -> Any:
        """The tokenizer with its chat template; its end token is the file's, whatever the release makes of it."""
        from transformers import AutoTokenizer

        tokenizer = AutoTokenizer.from_pretrained(self.path.parent, gguf_file=self.path.name)
        # Transformers 5.17 takes <|im_start|> for the end token of this kind of file; see the eos id in the file.
        tokenizer.eos_token = tokenizer.convert_ids_to_tokens(self.field("tokenizer.ggml.eos_token_id"))
        if tokenizer.pad_token is None:
            tokenizer.pad_token = tokenizer.eos_token
        return tokenizer

    def save(self, directory: Path) -> None:
        """Write config.json, generation_config.json, model.safetensors and the tokenizer to ``directory``."""
        from transformers import GenerationConfig

        config = self.config()
        config.save_pretrained(directory)
        GenerationConfig.from_model_config(config).save_pretrained(directory)
        self.tokenizer().save_pretrained(directory)
        save_file(self.weights(), directory / "model.safetensors", metadata={"format": "pt"})
