"""``drafttree inspect``: facts about a target, a drafter, or the two together."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from rich.table import Table

from drafttree.bench.memory import memory_of_tree_step
from drafttree.commands.placement import DTYPES
from drafttree.drafter.fields import read_json
from drafttree.drafter.loading import CONFIG, load_drafter
from drafttree.drafter.readers import is_speculators, parse_config
from drafttree.drafter.tensors import open_tensors
from drafttree.errors import UserError
from drafttree.transformers.architectures import attention_layers, head_size
from drafttree.transformers.loading import load_config, load_target

Facts = dict[str, dict[str, Any]]


def facts(path: str, drafter: str | None, *, budget: int, dtype: str | None, config_only: bool = False) -> Facts:
    """Sections of facts: ``target``, ``drafter``, and ``step``, the memory of one tree step.

    ``path``: a target, or the directory of a drafter, whose fit then is not checked. ``config_only``: read no weights
    of the target; the step is then that of a DFlash drafter with five taps and blocks of 16. UserError for anything
    that does not load.
    """
    if budget < 0:
        raise UserError.field("inspect", "budget", budget, "an integer >= 0")
    if dtype is not None and dtype not in DTYPES:
        raise UserError.field("--dtype", "dtype", dtype, " or ".join(DTYPES))
    config = Path(path) / CONFIG
    if config.is_file() and _is_drafter(values := read_json(config)):
        if drafter is not None:
            raise UserError(f"{path}: found a drafter, expected a target, because --drafter was given")
        return {"drafter": _drafter_file(Path(path), values)}
    precision = DTYPES[dtype or "float32"]
    if config_only:
        if drafter is not None:
            raise UserError("--config-only: found --drafter beside it, expected one of the two")
        shape = load_config(path).get_text_config()
        return {"target": {"source": path, **_shape(shape, precision)}, "step": _step(shape, precision, budget)}
    model, tokenizer = load_target(path, dtype=precision)
    found: Facts = {"target": _target(path, model, tokenizer)}
    if drafter is not None:
        network = load_drafter(drafter, model)
        found["drafter"] = network.summary()
        taps, block = len(network.config.target_layer_ids), network.config.block_size
        found["step"] = _step(model.config.get_text_config(), precision, budget, taps=taps, block_size=block)
    return found


def facts_table(found: Facts) -> Table:
    """The facts for a reader."""
    table = Table(show_header=False, title="drafttree inspect")
    table.add_column("fact")
    table.add_column("value", overflow="fold")
    for section, values in found.items():
        table.add_section()
        table.add_row(f"[bold]{section}[/bold]", "")
        for name, value in values.items():
            shown = _size(value) if "bytes" in name else f"{value}"
            table.add_row(name.replace("_bytes", "").replace("_", " "), shown)
    return table


def _size(count: int) -> str:
    return f"{count / 1e6:.1f} MB" if count >= 1e6 else f"{count / 1e3:.1f} kB"


def _is_drafter(values: dict[str, Any]) -> bool:
    names = values.get("architectures")
    named = isinstance(names, list) and any("DFlash" in str(name) for name in names)
    return named or "dflash_config" in values or is_speculators(values)


def _drafter_file(directory: Path, values: dict[str, Any]) -> dict[str, Any]:
    config = parse_config(values, directory / CONFIG)
    with open_tensors(directory) as files:
        tensors = len(files.names())
    return {
        "source": str(directory),
        "format": "speculators" if is_speculators(values) else "z-lab",
        **config.model_dump(mode="json"),
        "num_layers": len(config.layer_types),
        "tensors": tensors,
        "fit": "not checked: name the target too, drafttree inspect TARGET --drafter D",
    }


def _shape(config: Any, dtype: torch.dtype) -> dict[str, Any]:
    """What a target's text configuration alone tells."""
    attention = len(attention_layers(config))
    linear = config.num_hidden_layers - attention
    row = 2 * attention * config.num_key_value_heads * head_size(config) * dtype.itemsize
    return {
        "num_layers": config.num_hidden_layers,
        **({"gated_delta_layers": linear, "attention_layers": attention} if linear else {}),
        "hidden_size": config.hidden_size,
        "num_attention_heads": config.num_attention_heads,
        "num_key_value_heads": config.num_key_value_heads,
        "vocab_size": config.vocab_size,
        "max_position_embeddings": config.max_position_embeddings,
        "kv_bytes_per_token": row,
    }


def _target(path: str, model: Any, tokenizer: Any) -> dict[str, Any]:
    weights = list(model.parameters())
    stops = model.generation_config.eos_token_id
    return {
        "source": path,
        "architecture": type(model).__name__,
        **_shape(model.config.get_text_config(), model.dtype),
        "parameters": sum(weight.numel() for weight in weights),
        "dtype": str(weights[0].dtype).removeprefix("torch."),
        "weight_bytes": sum(weight.numel() * weight.element_size() for weight in weights),
        "stop_token_ids": stops if isinstance(stops, list) else [stops],
        "chat_template": tokenizer.chat_template is not None,
    }


def _step(config: Any, dtype: torch.dtype, budget: int, **drafter: int) -> dict[str, Any]:
    """What a tree step of ``budget`` nodes needs beside the weights and the model's own cache."""
    memory = memory_of_tree_step(config, budget, dtype, context=config.max_position_embeddings, **drafter)
    sizes = {f"{name}_bytes": size for name, size in memory.items()}
    return {"budget": budget, "rows_verified": budget + 1, "context": config.max_position_embeddings, **sizes}
