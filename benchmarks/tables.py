"""Markdown tables of recorded results: python benchmarks/tables.py benchmarks/results/{demo,hybrid}-pair [--into FILE]

With --into, each table replaces what stands in FILE between the lines <!-- table NAME --> and <!-- end -->.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from drafttree.bench.pair_summary import live_markdown, markdown, stage_markdown, tau_markdown
from drafttree.files import write_atomically

SAMPLED_TREES = (("8", "none"), ("16", "full"), ("16", "none"))  # budget and spine rule of the table of sampling


def tables(summaries: Sequence[dict[str, Any]]) -> dict[str, str]:
    found, identity, sampled, costs = {}, [], [], []
    for summary in summaries:
        for name, part in summary["greedy"].items():
            found[f"{name}-live"] = live_markdown(part["all"])
            found[f"{name}-stages"] = stage_markdown(part["all"])
            found[f"{name}-tau"] = tau_markdown(part["all"]["offline"])
            if part["without_loops"]:
                found[f"{name}-tau-without-loops"] = tau_markdown(part["without_loops"]["offline"])
            identity.append([f"{name}, greedy", *_same(part["identical"])])
        for name, parts in summary["sampled"].items():
            for temperature, part in parts.items():
                identity.append([f"{name}, T = {temperature}", *_same(part["identical"])])
                sampled += [
                    [f"{name}, T = {temperature}, {way}", *_taus(offline)] for way, offline in part["drafting"].items()
                ]
        verify = summary["costs_ms"]["verify"]
        costs.append([summary["settings"]["target"], *[f"{ms:.0f}" for ms in verify.values()]])
        found["costs"] = markdown(("verify, ms, by nodes", *verify), costs)
    found["identity"] = markdown(("prompts", "chain = plain", "tree = plain"), identity)
    if sampled:
        head = ("tokens a step", "chain", *[f"tree {budget}, spine {rule}" for budget, rule in SAMPLED_TREES])
        found["sampled"] = markdown(head, sampled)
    return found


def _taus(offline: dict[str, Any]) -> list[str]:
    return [f"{tau:.2f}" for tau in (offline["chain"], *[offline["trees"][rule][b] for b, rule in SAMPLED_TREES])]


def _same(identical: dict[str, Any]) -> list[str]:
    return [f"{identical[name]['same']} of {identical[name]['of']}" for name in ("chain", "tree")]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path, nargs="+")
    parser.add_argument("--into", type=Path, default=None)
    options = parser.parse_args()
    found = tables([json.loads((place / "summary.json").read_text(encoding="utf-8")) for place in options.results])
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
