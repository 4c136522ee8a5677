"""Markdown tables of recorded results: python benchmarks/tables.py benchmarks/results/demo-pair [--into FILE]

With --into, each table replaces what stands in FILE between the lines <!-- table NAME --> and <!-- end -->.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path
from typing import Any

from drafttree.bench.pair_summary import live_markdown, markdown, stage_markdown, tau_markdown
from drafttree.files import write_atomically


def tables(summary: dict[str, Any]) -> dict[str, str]:
    found = {}
    for name, part in summary["greedy"].items():
        found[f"{name}-live"] = live_markdown(part["all"])
        found[f"{name}-stages"] = stage_markdown(part["all"])
        found[f"{name}-tau"] = tau_markdown(part["all"]["offline"])
        if part["without_loops"]:
            found[f"{name}-tau-without-loops"] = tau_markdown(part["without_loops"]["offline"])
    found["identity"] = markdown(
        ("prompts", "chain = plain", "tree = plain"),
        [
            *[[f"{name}, greedy", *_same(part["identical"])] for name, part in summary["greedy"].items()],
            *[
                [f"{name}, T = {temperature}", *_same(part["identical"])]
                for name, parts in summary["sampled"].items()
                for temperature, part in parts.items()
            ],
        ],
    )
    budget = str(16)
    rows = []
    for name, parts in summary["sampled"].items():
        for temperature, part in parts.items():
            for way, offline in part["drafting"].items():
                taus = (offline["chain"], offline["trees"]["full"][budget], offline["trees"]["none"][budget])
                rows.append([f"{name}, T = {temperature}, {way}", *[f"{tau:.2f}" for tau in taus]])
    if rows:
        found["sampled"] = markdown(
            ("tokens a step", "chain", f"tree {budget}, full spine", f"tree {budget}, no spine"), rows
        )
    costs = summary["costs_ms"]
    found["costs"] = markdown(
        ("nodes", *costs["verify"]), [["verify, ms", *[f"{v:.0f}" for v in costs["verify"].values()]]]
    )
    return found


def _same(identical: dict[str, Any]) -> list[str]:
    return [f"{identical[name]['same']} of {identical[name]['of']}" for name in ("chain", "tree")]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path)
    parser.add_argument("--into", type=Path, default=None)
    options = parser.parse_args()
    found = tables(json.loads((options.results / "summary.json").read_text(encoding="utf-8")))
    if options.into is None:
        for name, table in found.items():
            print(f"{name}\n\n{table}\n")
        return
    text = options.into.read_text(encoding="utf-8")
    for name, table in found.items():
        place = re.compile(rf"(<!-- table {re.escape(name)} -->\n).*?(<!-- end -->)", re.DOTALL)
        text, count = place.subn(lambda m, table=table: f"{m[1]}\n{table}\n\n{m[2]}", text)
        if count == 0:
            print(f"{options.into}: has no place for table {name}", file=sys.stderr)
    write_atomically(options.into, text)


if __name__ == "__main__":
    main()
