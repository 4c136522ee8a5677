"""The drafter's configuration, one meaning for every public format."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class DrafterConfig(BaseModel):
    """Validated shape and constants of a DFlash drafter; readers translate the public formats into it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    hidden_size: int
    intermediate_size: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    vocab_size: int
    block_size: int
    mask_token_id: int
    target_layer_ids: tuple[int, ...]
    num_target_layers: int
    target_hidden_size: int
    layer_types: tuple[str, ...]
    sliding_window: int | None = None
    sliding_is_causal: bool = True
    full_is_causal: bool = False
    rope_theta: float
    rms_norm_eps: float = 1e-6
    attention_bias: bool = False
    max_position_embeddings: int = 32768
    input_embedding_scale: float = 1.0
    output_multiplier: float = 1.0
    final_logit_softcapping: float | None = None
