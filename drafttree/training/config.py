"""Settings of a drafter training run."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class TrainingConfig(BaseModel):
    """Everything that changes the result of a run; saved beside the drafter.

    Defaults follow the DFlash recipe (cosine, 4% warm-up, clip 1.0, loss weight exp(-(k - 1) / decay)) but for the
    optimiser: Muon for the matrices learned several times faster than AdamW.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    # the network
    layers: int = Field(5, ge=1)
    intermediate_size: int | None = Field(None, ge=1)  # None: the target's
    num_attention_heads: int | None = Field(None, ge=1)
    num_key_value_heads: int | None = Field(None, ge=1)
    head_dim: int | None = Field(None, ge=2)
    taps: tuple[int, ...] | None = None  # None: the DFlash default, spread over the target
    block_size: int = Field(16, ge=2, le=64)
    mask_token_id: int = Field(ge=0)
    # the data
    own_prompts: int = Field(0, ge=0)  # prompts that the target writes itself, in addition to the files
    max_prompt_tokens: int = Field(384, ge=1)
    max_new_tokens: int = Field(384, ge=2)
    sample_temperatures: tuple[float, ...] = (0.0, 0.8)
    keep_loop_tokens: int = Field(48, ge=0)
    # the optimisation
    epochs: float = Field(6.0, gt=0)
    batch_sequences: int = Field(64, ge=1)
    anchors: int = Field(64, ge=1, le=512)
    learning_rate: float = Field(2e-3, gt=0)
    warmup: float = Field(0.04, ge=0, lt=1)
    weight_decay: float = Field(0.01, ge=0)
    clip: float = Field(1.0, gt=0)
    loss_decay: float = Field(7.0, gt=0)
    keep_taps: bool = False  # keep the target's states of all tokens on the device, not run it every step
    seed: int = 0
    # reporting and safety
    held_out: int = Field(64, ge=1)  # prompts of the files that are never trained on
    budget: int = Field(32, ge=1)  # nodes of the tree that is reported
    evaluate_every: int = Field(1000, ge=1)
    checkpoint_seconds: float = Field(60.0, gt=0)
