"""Load a drafter from a directory or the hub, checked against its target before any weight is read."""

from __future__ import annotations

import os
import re
from pathlib import Path

import torch
from huggingface_hub import snapshot_download
from torch import nn

from drafttree.drafter.config import DrafterConfig
from drafttree.drafter.drafter import Drafter
from drafttree.drafter.fields import one_line, read_json
from drafttree.drafter.network import DFlashDrafter
from drafttree.drafter.readers import is_speculators, parse_config
from drafttree.drafter.target import TargetFacts, check_fit
from drafttree.drafter.tensors import FLOATS, INDEX, TensorFiles, open_tensors
from drafttree.drafter.vocabulary import VOCABULARY_TENSORS, DraftVocabulary, read_vocabulary
from drafttree.errors import UserError

CONFIG = "config.json"
HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")


def load_drafter(path_or_hub_id: str | os.PathLike[str], target: nn.Module, *, revision: str | None = None) -> Drafter:
    """The drafter in a local directory or a hub repository, for the Hugging Face model ``target``.

    It takes the target's dtype and device. ``revision``: branch, tag or commit on the hub. Raises UserError, one line
    that names file and field or tensor, for anything unusable; a drafter made for another target is refused before
    its weights are read (or downloaded). Remote code is never executed, pickle files are never opened.
    """
    facts = TargetFacts.of(target)
    directory = Path(path_or_hub_id)
    remote = not os.fspath(path_or_hub_id) or not directory.is_dir()
    if remote:
        directory = _download(path_or_hub_id, [CONFIG], revision)
    path = directory / CONFIG
    if not path.is_file():
        raise UserError(f"{directory}: found no {CONFIG}, expected a drafter's directory")
    values = read_json(path)
    config = parse_config(values, path)
    check_fit(config, facts, path)
    own = is_speculators(values)  # the other format has no embedding, head or vocabulary of its own
    if remote:
        directory = _download(path_or_hub_id, ["*.safetensors", INDEX], directory.name)
    with open_tensors(directory) as files:
        network = read_network(config, files, facts, VOCABULARY_TENSORS if own else ())
        vocabulary = read_vocabulary(config, files, facts) if own else DraftVocabulary.of_target(facts)
    return Drafter(network, vocabulary, str(path_or_hub_id))


def _download(path_or_hub_id: str | os.PathLike[str], patterns: list[str], revision: str | None) -> Path:
    """Folder of the files of a hub repository that match ``patterns``."""
    name = os.fspath(path_or_hub_id) or "(empty path)"
    if Path(name).exists():
        raise UserError(f"{name}: found a file, expected a drafter's directory")
    if not HUB_ID.fullmatch(name):
        raise UserError(f"{name}: no such directory, and not a hub id such as owner/name")
    try:
        return Path(snapshot_download(name, revision=revision, allow_patterns=patterns))
    except Exception as error:  # the hub client raises many kinds, those of its HTTP library among them
        reason = one_line(str(error)) or type(error).__name__
        raise UserError(f"{name}: no such directory, and not loadable from the hub: {reason[:300]}") from None


def read_network(
    config: DrafterConfig, files: TensorFiles, facts: TargetFacts, others: tuple[str, ...] = ()
) -> DFlashDrafter:
    """The network with its weights, on the target's device in the target's dtype.

    UserError for any tensor that is missing, has another shape or dtype, or is neither the network's nor in ``others``.
    """
    with torch.device("meta"):
        network = DFlashDrafter(config)
    shapes = {name: tuple(tensor.shape) for name, tensor in network.state_dict().items()}
    for name, shape in shapes.items():
        files.check(name, shape, FLOATS)
    files.refuse_others([*shapes, *others])
    weights = {name: files.read(name, facts.head.device, facts.head.dtype) for name in shapes}
    network.load_state_dict(weights, assign=True)
    return network.eval().requires_grad_(False)
