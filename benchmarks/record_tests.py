"""Keep the results of make test-full: python benchmarks/record_tests.py RESULTS.xml RECORD.json"""

from __future__ import annotations

import json
import subprocess
import sys
import xml.etree.ElementTree as tree
from pathlib import Path
from typing import Any

from drafttree.bench.machine import machine_facts
from drafttree.files import write_atomically

SLOWEST = 20


def summarise(path: Path) -> dict[str, Any]:
    cases = list(tree.parse(path).getroot().iter("testcase"))
    states: dict[str, list[str]] = {"failure": [], "error": [], "skipped": []}
    seconds = {}
    for case in cases:
        name = f"{case.get('classname')}.{case.get('name')}"
        seconds[name] = float(case.get("time", 0))
        for state, names in states.items():
            if case.find(state) is not None:
                names.append(name)
    slowest = sorted(seconds, key=lambda name: -seconds[name])[:SLOWEST]
    return {
        "tests": len(cases),
        "passed": len(cases) - sum(map(len, states.values())),
        "failed": states["failure"] + states["error"],
        "skipped": len(states["skipped"]),
        "seconds": round(sum(seconds.values()), 1),
        "slowest": {name: round(seconds[name], 1) for name in slowest},
    }


def main() -> None:
    results, record = map(Path, sys.argv[1:3])
    commit = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=False).stdout.strip()
    found = {"commit": commit, "machine": machine_facts(), **summarise(results)}
    write_atomically(record, json.dumps(found, indent=1) + "\n")
    print(f"{record}: {found['passed']} of {found['tests']} passed, {found['skipped']} skipped")


if __name__ == "__main__":
    main()
