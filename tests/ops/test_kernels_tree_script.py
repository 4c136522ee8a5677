"""The benchmark script of the tree kernels runs, with every launch shape it tries."""

import json
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "kernels_tree.py"


def test_it_runs_at_tiny_sizes(tmp_path):
    output = tmp_path / "tree.json"
    command = [sys.executable, str(SCRIPT), "--smoke", "--tune", "--output", str(output)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(output.read_text())
    assert found["smoke"] and found["machine"]["triton"]
    names = {record["name"] for record in found["results"]}
    assert {"logits to trees, B=1", "greedy choice, 3 rows", "commit"} <= names
    assert len(done.stdout.splitlines()) == len(found["results"]) + 1
