"""Safetensors files of a drafter: found, checked by name, shape and dtype, and only then read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from drafttree.drafter.fields import one_line, read_json
from drafttree.errors import UserError

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.pkl")
FLOATS = ("F64", "F32", "F16", "BF16")
INTEGERS = ("I64", "I32")
BOOLEANS = ("BOOL", "U8")


class TensorFiles:
    """The open safetensors files of one directory."""

    def __init__(self, directory: Path, places: Mapping[str, tuple[Path, Any]]) -> None:
        self.directory = directory
        self._places = dict(places)

    def names(self) -> set[str]:
        """Names of all tensors."""
        return set(self._places)

    def check(self, name: str, shape: tuple[int, ...], dtypes: tuple[str, ...]) -> None:
        """UserError unless tensor ``name`` is there, with this shape and one of these dtypes; no data is read."""
        if name not in self._places:
            raise UserError(f"{self.directory}: tensor {name}: found nothing, expected shape {list(shape)}")
        path, handle = self._places[name]
        view = handle.get_slice(name)
        if tuple(view.get_shape()) != shape:
            raise UserError.field(path, f"tensor {name}", view.get_shape(), f"shape {list(shape)}")
        if view.get_dtype() not in dtypes:
            raise UserError.field(path, f"tensor {name}", view.get_dtype(), f"dtype {' or '.join(dtypes)}")

    def refuse_others(self, expected: Iterable[str]) -> None:
        """UserError naming the first tensor that is not ``expected``."""
        for name in sorted(self.names().difference(expected)):
            path, handle = self._places[name]
            found = f"{handle.get_slice(name).get_dtype()} {handle.get_slice(name).get_shape()}"
            raise UserError.field(path, f"tensor {name}", found, "no such tensor in this drafter")

    def read(self, name: str, device: torch.device, dtype: torch.dtype | None = None) -> Tensor:
        """Tensor ``name`` on ``device``, in ``dtype`` if given; UserError if it holds NaN or infinity."""
        path, handle = self._places[name]
        try:
            tensor: Tensor = handle.get_tensor(name)
        except (SafetensorError, OSError) as error:
            raise UserError(one_line(f"{path}: tensor {name}: cannot be read: {error}")) from None
        if tensor.is_floating_point() and not torch.isfinite(tensor).all():
            raise UserError(f"{path}: tensor {name}: found NaN or infinity, expected finite numbers")
        return tensor.to(device, dtype or tensor.dtype)


@contextmanager
def open_tensors(directory: Path) -> Iterator[TensorFiles]:
    """Open ``model.safetensors`` of ``directory``, or the files of its index; UserError names what is wrong."""
    with ExitStack() as stack:
        if (directory / SINGLE).is_file():
            path = directory / SINGLE
            handle = stack.enter_context(_open(path))
            yield TensorFiles(directory, {name: (path, handle) for name in handle.keys()})  # noqa: SIM118
            return
        if not (directory / INDEX).is_file():
            pickles = sorted(p.name for pattern in PICKLES for p in directory.glob(pattern))
            found = f"only {pickles[0]}, a pickle file, which is never loaded" if pickles else "no weights"
            raise UserError(f"{directory}: found {found}, expected {SINGLE} or {INDEX}")
        places = _index(directory / INDEX)
        handles = {file: stack.enter_context(_open(directory / file)) for file in sorted(set(places.values()))}
        for name, file in places.items():
            if name not in handles[file].keys():  # noqa: SIM118
                raise UserError(f"{directory / file}: tensor {name}: found nothing, expected it because of {INDEX}")
        yield TensorFiles(directory, {name: (directory / file, handles[file]) for name, file in places.items()})


def _open(path: Path) -> Any:
    try:
        return safe_open(str(path), framework="pt", device="cpu")
    except (SafetensorError, OSError) as error:
        raise UserError(one_line(f"{path}: not a complete safetensors file: {error}")) from None


def _index(path: Path) -> dict[str, str]:
    """Tensor name to file name, from the index of sharded weights."""
    places = read_json(path).get("weight_map")
    if not isinstance(places, dict) or not places:
        raise UserError(f"{path}: weight_map: found {type(places).__name__}, expected an object that names files")
    for name, file in places.items():
        if not isinstance(file, str) or Path(file).name != file or not file.endswith(".safetensors"):
            raise UserError.field(path, f"weight_map.{name}", file, "a safetensors file in the same directory")
        if not (path.parent / file).is_file():
            raise UserError.field(path, f"weight_map.{name}", file, "a file that exists")
    return places
