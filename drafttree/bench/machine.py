"""On what a measurement was made."""

from __future__ import annotations

import hashlib
import os
import platform
import sys
from pathlib import Path
from typing import Any

import torch
import transformers

import drafttree


def machine_facts() -> dict[str, Any]:
    """The command that measured, versions, processor, cores and threads."""
    return {
        "command": command_line(),
        "drafttree": drafttree.__version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "processor": _processor(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
    }


def command_line() -> str:
    """How this process was started, a path of the machine by its last name alone."""
    program, *arguments = map(_without_place, sys.argv)
    script = f"python benchmarks/{Path(program).name}" if program.endswith(".py") else program
    return " ".join([script, *arguments])


def _without_place(part: str) -> str:
    option, mark, value = part.rpartition("=")
    return option + mark + (Path(value).name if Path(value).is_absolute() else value)


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.is_file():
        for line in cpuinfo.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def weights_digest(directory: str) -> str | None:
    """Start of the sha256 of a model's weights file, None without one: drafters of a size are told apart."""
    path = Path(directory) / "model.safetensors"
    if not path.is_file():
        return None
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:16]
