"""``drafttree inspect``: facts about a target, a drafter, or the two together."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from rich.table import Table

from drafttree.commands.placement import DTYPES
from drafttree.drafter.drafter import Drafter
from drafttree.drafter.fields import read_json
from drafttree.drafter.loading import CONFIG, load_drafter
from drafttree.drafter.readers import is_speculators, parse_config
from drafttree.drafter.tensors import open_tensors
from drafttree.errors import UserError
from drafttree.transformers.architectures import head_size
from drafttree.transformers.loading import load_target

Facts = dict[str, dict[str, Any]]


def facts(path: str, drafter: str | None, *, budget: int, dtype: str | None) -> Facts:
    """Sections of facts: ``target``, ``drafter``, and with both ``step``, the memory of one tree step.

    ``path``: a target, or the directory of a drafter, whose fit then is not checked. UserError for anything that
    does not load.
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
    model, tokenizer = load_target(path, dtype=DTYPES[dtype or "float32"])
    found: Facts = {"target": _target(path, model, tokenizer)}
    if drafter is not None:
        network = load_drafter(drafter, model)
        found["drafter"] = network.summary()
        found["step"] = _step(model, network, budget)
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


def _target(path: str, model: Any, tokenizer: Any) -> dict[str, Any]:
    config = model.config.get_text_config()
    weights = list(model.parameters())
    row = 2 * config.num_hidden_layers * config.num_key_value_heads * head_size(config) * weights[0].element_size()
    stops = model.generation_config.eos_token_id
    return {
        "source": path,
        "architecture": type(model).__name__,
        "num_layers": config.num_hidden_layers,
        "hidden_size": config.hidden_size,
        "num_attention_heads": config.num_attention_heads,
        "num_key_value_heads": config.num_key_value_heads,
        "vocab_size": config.vocab_size,
        "max_position_embeddings": config.max_position_embeddings,
        "parameters": sum(weight.numel() for weight in weights),
        "dtype": str(weights[0].dtype).removeprefix("torch."),
        "weight_bytes": sum(weight.numel() * weight.element_size() for weight in weights),
        "kv_bytes_per_token": row,
        "stop_token_ids": stops if isinstance(stops, list) else [stops],
        "chat_template": tokenizer.chat_template is not None,
    }


def _step(model: Any, drafter: Drafter, budget: int) -> dict[str, Any]:
    """What a tree step of ``budget`` nodes needs beside the weights and the committed context."""
    config = model.config.get_text_config()
    size = torch.finfo(model.dtype).bits // 8
    rows = budget + 1
    return {
        "budget": budget,
        "rows_verified": rows,
        "target_kv_bytes": 2 * config.num_hidden_layers * config.num_key_value_heads * head_size(config) * size * rows,
        "target_logits_bytes": rows * config.vocab_size * size,
        "tapped_states_bytes": rows * len(drafter.config.target_layer_ids) * config.hidden_size * size,
        "drafter_logits_bytes": (drafter.config.block_size - 1) * config.vocab_size * size,
    }
