"""The drafter's configuration, one meaning for every public format."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

MAX_SIZE = 2**31 - 1
MAX_BLOCK_SIZE = 1024

Size = Annotated[int, Field(ge=1, le=MAX_SIZE)]
Index = Annotated[int, Field(ge=0, le=MAX_SIZE)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
LayerType = Literal["full_attention", "sliding_attention"]


class DrafterConfig(BaseModel):
    """Validated shape and constants of a DFlash drafter; readers translate the public formats into it.

    ``target_layer_ids``: tap l is the output of target layer l. ``num_target_layers`` is None where the format does
    not say. ``draft_vocab_size``: rows of the drafter's own output head when it predicts only part of the vocabulary.
    A causal layer hides later slots of the block from earlier ones; the context is visible in any case.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    hidden_size: Size
    intermediate_size: Size
    num_attention_heads: Size
    num_key_value_heads: Size
    head_dim: Size
    vocab_size: Size
    block_size: Annotated[int, Field(ge=2, le=MAX_BLOCK_SIZE)]
    mask_token_id: Index
    target_layer_ids: Annotated[tuple[Index, ...], Field(min_length=1)]
    num_target_layers: Size | None
    target_hidden_size: Size
    layer_types: Annotated[tuple[LayerType, ...], Field(min_length=1)]
    sliding_window: Size | None = None
    sliding_is_causal: bool = True
    full_is_causal: bool = False
    rope_theta: Positive
    rms_norm_eps: Positive = 1e-6
    attention_bias: bool = False
    max_position_embeddings: Size = 32768
    input_embedding_scale: Positive = 1.0
    output_multiplier: Positive = 1.0
    final_logit_softcapping: Positive | None = None
    draft_vocab_size: Size | None = None

    @model_validator(mode="after")
    def _consistent(self) -> DrafterConfig:
        if self.num_attention_heads % self.num_key_value_heads:
            raise ValueError(
                f"num_attention_heads: found {self.num_attention_heads}, "
                f"expected a multiple of num_key_value_heads, {self.num_key_value_heads}"
            )
        if self.head_dim % 2:
            raise ValueError(f"head_dim: found {self.head_dim}, expected an even number")
        if "sliding_attention" in self.layer_types and self.sliding_window is None:
            raise ValueError("sliding_window: found None, expected a number, because layer_types has sliding layers")
        if self.mask_token_id >= self.vocab_size:
            raise ValueError(f"mask_token_id: found {self.mask_token_id}, expected less than {self.vocab_size}")
        if self.draft_vocab_size is not None and self.draft_vocab_size > self.vocab_size:
            raise ValueError(f"draft_vocab_size: found {self.draft_vocab_size}, expected at most {self.vocab_size}")
        if len(set(self.target_layer_ids)) != len(self.target_layer_ids):
            raise ValueError(f"target_layer_ids: found {list(self.target_layer_ids)}, expected distinct layers")
        if self.num_target_layers is not None and max(self.target_layer_ids) >= self.num_target_layers:
            raise ValueError(
                f"target_layer_ids: found {max(self.target_layer_ids)}, "
                f"expected less than num_target_layers, {self.num_target_layers}"
            )
        return self


def default_target_layer_ids(num_target_layers: int, num_layers: int) -> tuple[int, ...]:
    """Taps of a z-lab drafter that names none: evenly from layer 1 to N - 3; the middle layer for a single one.

    Source: DFlash (z-lab), the rule of the official package.
    """
    if num_layers == 1:
        return (num_target_layers // 2,)
    span = num_target_layers - 4
    return tuple(round(1 + i * span / (num_layers - 1)) for i in range(num_layers))
