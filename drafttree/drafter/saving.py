"""Write a drafter in the z-lab format."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save

from drafttree.drafter.config import DrafterConfig
from drafttree.drafter.network import DFlashDrafter
from drafttree.files import write_atomically


def save_drafter(
    network: DFlashDrafter, directory: str | os.PathLike[str], *, dtype: torch.dtype = torch.bfloat16
) -> None:
    """Write ``config.json`` and ``model.safetensors`` to ``directory``, made if need be.

    ``dtype``: bfloat16 or float32 of the stored weights. Each file is complete or absent, the weights come first.
    The official package reads the result. Raises ValueError for a configuration that the format cannot express.
    """
    if dtype not in (torch.bfloat16, torch.float32):
        raise ValueError(f"stored dtype must be bfloat16 or float32, found {dtype}")
    values = z_lab_values(network.config, dtype)
    folder = Path(directory)
    weights = {name: w.detach().to("cpu", dtype).contiguous() for name, w in network.state_dict().items()}
    # save_file would make a file that its owner alone can read
    write_atomically(folder / "model.safetensors", save(weights, metadata={"format": "pt"}))
    write_atomically(folder / "config.json", json.dumps(values, indent=2) + "\n")


def z_lab_values(config: DrafterConfig, dtype: torch.dtype) -> dict[str, Any]:
    """The config.json of ``config`` in the z-lab format."""
    if config.draft_vocab_size is not None or config.num_target_layers is None:
        raise ValueError("the z-lab format needs num_target_layers and has no reduced vocabulary")
    kept = (
        "hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads", "head_dim", "vocab_size",
        "num_target_layers", "rms_norm_eps", "attention_bias", "max_position_embeddings", "rope_theta",
    )  # fmt: skip
    inner = (
        "block_size", "mask_token_id", "target_layer_ids", "input_embedding_scale", "output_multiplier",
        "final_logit_softcapping",
    )  # fmt: skip
    dumped = config.model_dump(mode="json")
    slides = "sliding_attention" in config.layer_types
    values: dict[str, Any] = {
        "architectures": ["DFlashDraftModel"],
        "model_type": "qwen3",
        "dtype": str(dtype).removeprefix("torch."),
        "hidden_act": "silu",
        "tie_word_embeddings": False,
        **{name: dumped[name] for name in kept},
        "rope_parameters": {"rope_type": "default", "rope_theta": config.rope_theta},
        "num_hidden_layers": len(config.layer_types),
        "layer_types": dumped["layer_types"],
        "use_sliding_window": slides,
        "sliding_window": config.sliding_window if slides else None,
        "dflash_config": {name: dumped[name] for name in inner if dumped[name] is not None},
    }
    causal = _is_causal(config)
    if causal is not None:
        values["is_causal"] = causal
    if config.target_hidden_size != config.hidden_size:
        values["target_hidden_size"] = config.target_hidden_size
    return values


def _is_causal(config: DrafterConfig) -> bool | None:
    """One flag for the layer types in use; None where the default holds: sliding layers causal, full ones not."""
    in_use = {
        kind: config.sliding_is_causal if kind == "sliding_attention" else config.full_is_causal
        for kind in config.layer_types
    }
    if all(causal == (kind == "sliding_attention") for kind, causal in in_use.items()):
        return None
    if len(set(in_use.values())) > 1:
        raise ValueError("the z-lab format cannot say that full layers are causal and sliding ones are not")
    return next(iter(in_use.values()))
