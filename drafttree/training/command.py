"""The command ``drafttree train``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from pydantic import ValidationError
from rich.console import Console
from rich.table import Table

from drafttree.errors import UserError
from drafttree.progress import progress_bar
from drafttree.training.config import TrainingConfig
from drafttree.training.evaluate import Acceptance
from drafttree.training.prompts import read_prompts
from drafttree.training.run import TrainingRun


def read_settings(file: Path | None, options: dict[str, Any]) -> dict[str, Any]:
    """Settings of a JSON file with the given options over them; None leaves a setting alone."""
    settings: dict[str, Any] = {}
    if file is not None:
        try:
            settings = json.loads(file.read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError) as error:
            raise UserError(f"{file}: cannot be read as JSON: {error}") from None
        if not isinstance(settings, dict):
            raise UserError(f"{file}: found {type(settings).__name__}, expected an object of settings")
    return settings | {name: value for name, value in options.items() if value is not None}


def make_config(settings: dict[str, Any], source: str) -> TrainingConfig:
    """Validated settings; the first fault is one line that names ``source`` and the field."""
    try:
        return TrainingConfig.model_validate(settings)
    except ValidationError as error:
        fault = error.errors()[0]
        field = ".".join(map(str, fault["loc"])) or "settings"
        if fault["type"] == "missing":
            raise UserError(f"{source}: {field}: not found, expected a value") from None
        raise UserError(f"{source}: {field}: found {fault['input']!r}: {fault['msg']}") from None


def mask_token_id(tokenizer: Any, token: str | None) -> int | None:
    """Id of the spare token named by the user; without a name the tokenizer's mask token, or None."""
    if token is None:
        return None if tokenizer.mask_token_id is None else int(tokenizer.mask_token_id)
    found = tokenizer.get_vocab().get(token)
    if found is None:
        raise UserError.field("--mask-token", "token", token, "a token of the target's vocabulary")
    return int(found)


def acceptance_table(acceptance: dict[str, Acceptance], budget: int) -> Table:
    """Tokens a step on every held-out set."""
    table = Table(title="acceptance length on held-out prompts")
    for column in ("set", "chain", f"tree, budget {budget}", "tree / chain"):
        table.add_column(column)
    for name, a in acceptance.items():
        table.add_row(name, f"{a.chain:.2f}", f"{a.tree:.2f}", f"{a.tree / max(a.chain, 1e-9):.2f}")
    return table


def train(
    target: Annotated[Path, typer.Option(help="Folder of the target, Hugging Face layout.")],
    prompts: Annotated[list[Path], typer.Option(help="JSON lines with a text under 'prompt'; may be repeated.")],
    out: Annotated[Path, typer.Option(help="Folder of the run: responses, log, checkpoint, drafter.")],
    settings: Annotated[Path | None, typer.Option(help="JSON file of settings, see docs/training.md.")] = None,
    evaluate: Annotated[list[Path] | None, typer.Option(help="More held-out prompts, reported a file.")] = None,
    mask_token: Annotated[str | None, typer.Option(help="Spare token of the target that marks draft slots.")] = None,
    layers: Annotated[int | None, typer.Option(help="Layers of the drafter.")] = None,
    block_size: Annotated[int | None, typer.Option(help="Tokens of a block, the anchor counted.")] = None,
    epochs: Annotated[float | None, typer.Option(help="Passes over the responses.")] = None,
    slots: Annotated[int, typer.Option(help="Responses generated at the same time.", min=1)] = 64,
    device: Annotated[str | None, typer.Option(help="cpu or cuda; cuda where there is one.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Train a DFlash drafter for TARGET on the target's own responses; goes on where an earlier run stopped."""
    from drafttree.transformers.loading import load_target  # late: importing Transformers takes seconds

    options = {"layers": layers, "block_size": block_size, "epochs": epochs}
    chosen = read_settings(settings, options)
    texts = read_prompts(prompts)
    evaluation = {file.stem: read_prompts([file]) for file in evaluate or []}
    where = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    model, tokenizer = load_target(
        target, dtype=torch.bfloat16 if where.type == "cuda" else torch.float32, device=where
    )
    mask = mask_token_id(tokenizer, mask_token)
    if mask is not None:
        chosen["mask_token_id"] = mask
    if "mask_token_id" not in chosen:
        raise UserError("--mask-token: not given, expected a spare token, because the target has no mask token")
    config = make_config(chosen, str(settings or "options"))
    out.mkdir(parents=True, exist_ok=True)
    console = Console(stderr=True)
    with progress_bar(console) as progress:
        run = TrainingRun(model, tokenizer, config, out, slots=slots, progress=progress)
        acceptance = run.train(*run.responses(texts, evaluation))
    if as_json:
        print(json.dumps({name: vars(a) for name, a in acceptance.items()}))
    else:
        Console().print(acceptance_table(acceptance, config.budget))
        Console().print(f"drafter: {out / 'drafter'}")
