"""Load a target from a directory or the hub: safetensors only, no remote code, every fault one line."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import snapshot_download

from drafttree.drafter.fields import Fields, one_line, read_json
from drafttree.drafter.loading import CONFIG, HUB_ID
from drafttree.drafter.tensors import INDEX, open_tensors
from drafttree.errors import UserError
from drafttree.ops.packed_linear import pack_linears
from drafttree.transformers.architectures import check_architecture

FILES = ["*.json", "*.jinja", "*.safetensors", INDEX, "tokenizer.model", "*.txt"]
TOKENIZER_FILES = ("tokenizer.json", "tokenizer.model", "vocab.json")


def load_target(
    path_or_hub_id: str | os.PathLike[str],
    dtype: torch.dtype = torch.float32,
    device: torch.device | str | None = None,
    revision: str | None = None,
    *,
    pack: bool = True,
) -> tuple[Any, Any]:
    """The target and its tokenizer, from a local Hugging Face directory or a hub repository.

    Args:
        path_or_hub_id: a directory with config.json, safetensors and a tokenizer, or a hub id such as owner/name.
        dtype: of the weights; float32 is the fast one on a CPU.
        device: None keeps the model on the CPU.
        revision: branch, tag or commit on the hub.
        pack: lay out the linear layers of a float32 model on the CPU for its matrix kernels: faster, but the model
            can then neither be saved nor moved (``drafttree.ops.packed_linear``).

    Returns:
        (model, tokenizer), the model in evaluation mode and without gradients.

    Raises:
        UserError: one line, for anything that cannot be used: no such place, weights that are missing, truncated,
            pickled or not finite, a configuration with NaN, an architecture or layer type that is not supported.
    """
    directory = _directory(path_or_hub_id, revision, FILES)
    _check_config(directory)
    with open_tensors(directory) as files:
        stored = files.names()
    if not stored:
        raise UserError(f"{directory}: found safetensors without a tensor, expected the target's weights")
    tokenizer = _tokenizer(directory)
    model = _model(directory, dtype)
    _check_weights(model, directory)
    _check_vocabulary(model, tokenizer, directory)
    model = model.to(device or "cpu").eval().requires_grad_(False)
    if pack:
        pack_linears(model)
    return model, tokenizer


def load_config(path_or_hub_id: str | os.PathLike[str], revision: str | None = None) -> Any:
    """A target's Transformers configuration, its weights neither needed nor fetched. Errors as of ``load_target``."""
    from transformers import AutoConfig

    directory = _directory(path_or_hub_id, revision, [CONFIG])
    _check_config(directory)
    try:
        with _quiet():
            return AutoConfig.from_pretrained(directory, trust_remote_code=False, local_files_only=True)
    except Exception as error:  # validation of the configuration raises many kinds
        raise UserError(f"{directory / CONFIG}: not loadable: {one_line(str(error))[:400]}") from None


def _check_config(directory: Path) -> None:
    path = directory / CONFIG
    if not path.is_file():
        raise UserError(f"{directory}: found no {CONFIG}, expected the directory of a Hugging Face model")
    values = read_json(path)
    Fields(path, values)  # refuses NaN and infinity anywhere
    check_architecture(values, path)


def _directory(path_or_hub_id: str | os.PathLike[str], revision: str | None, files: list[str]) -> Path:
    name = os.fspath(path_or_hub_id) or "(empty path)"
    directory = Path(name)
    if directory.is_dir():
        return directory
    if directory.exists():
        raise UserError(f"{name}: found a file, expected a target's directory")
    if not HUB_ID.fullmatch(name):
        raise UserError(f"{name}: no such directory, and not a hub id such as owner/name")
    try:
        return Path(snapshot_download(name, revision=revision, allow_patterns=files))
    except Exception as error:  # the hub client raises many kinds, those of its HTTP library among them
        reason = one_line(str(error)) or type(error).__name__
        raise UserError(f"{name}: no such directory, and not loadable from the hub: {reason[:300]}") from None


def _model(directory: Path, dtype: torch.dtype) -> Any:
    from transformers import AutoModelForCausalLM

    try:
        with _quiet():
            model, report = AutoModelForCausalLM.from_pretrained(
                directory, dtype=dtype, trust_remote_code=False, use_safetensors=True, output_loading_info=True,
                local_files_only=True, ignore_mismatched_sizes=True,
            )  # fmt: skip
    except Exception as error:  # validation of the configuration and reading of the weights raise many kinds
        raise UserError(f"{directory}: not loadable: {one_line(str(error))[:400]}") from None
    for name, stored, expected in sorted(report["mismatched_keys"]):
        raise UserError.field(directory, f"tensor {name}", list(stored), f"shape {list(expected)}")
    missing = sorted(report["missing_keys"])
    if missing:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise UserError(f"{directory}: tensor {missing[0]}{more}: found nothing, expected the weights of the target")
    return model


@contextmanager
def _quiet() -> Iterator[None]:
    """Transformers' report of a load is a table of many lines; what matters in it becomes one line of ours."""
    from transformers.utils import logging as transformers_logging

    level, bars = transformers_logging.get_verbosity(), transformers_logging.is_progress_bar_enabled()
    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()
    try:
        yield
    finally:
        transformers_logging.set_verbosity(level)
        if bars:
            transformers_logging.enable_progress_bar()


def _check_weights(model: Any, directory: Path) -> None:
    for name, weight in model.named_parameters():
        if not bool(torch.isfinite(weight).all()):
            raise UserError(f"{directory}: tensor {name}: found NaN or infinity, expected finite numbers")


def _tokenizer(directory: Path) -> Any:
    from transformers import AutoTokenizer

    if not any((directory / name).is_file() for name in TOKENIZER_FILES):
        raise UserError(f"{directory}: found no tokenizer, expected {' or '.join(TOKENIZER_FILES)}")
    try:
        with _quiet():
            return AutoTokenizer.from_pretrained(directory, trust_remote_code=False, local_files_only=True)
    except Exception as error:  # tokenizer files are read by several libraries
        raise UserError(f"{directory}: tokenizer not loadable: {one_line(str(error))[:300]}") from None


def _check_vocabulary(model: Any, tokenizer: Any, directory: Path) -> None:
    largest = max(tokenizer.get_vocab().values(), default=-1)
    rows = model.get_input_embeddings().weight.shape[0]
    if largest >= rows:
        raise UserError.field(directory, "tokenizer", f"token id {largest}", f"ids below vocab_size, {rows}")
