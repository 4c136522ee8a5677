"""The commands on a tiny pair: what they print, for people and for programs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from saved_models import CONTEXT, LAYERS, WORDS, save_tiny_drafter, save_tiny_target
from transformers import Qwen3_5TextConfig

from drafttree.bench.memory import QWEN_27B
from drafttree.cli import run


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    folder = tmp_path_factory.mktemp("pair")
    return str(save_tiny_target(folder / "target")), str(save_tiny_drafter(folder / "drafter"))


def answer(capfd: pytest.CaptureFixture[str], *arguments: str) -> Any:
    capfd.readouterr()
    assert run([*arguments, "--json"]) == 0
    out, err = capfd.readouterr()
    assert err == ""
    return json.loads(out)


@pytest.mark.parametrize("options", [(), ("--temperature", "1", "--top-k", "20", "--top-p", "0.9", "--seed", "5")])
def test_the_three_methods_answer_the_same(
    pair: tuple[str, str], options: tuple[str, ...], capfd: pytest.CaptureFixture[str]
) -> None:
    base = ("generate", pair[0], "--prompt", "w1 w2 w3", "--max-new-tokens", "24", "--dtype", "float64", *options)
    plain = answer(capfd, *base, "--method", "plain")
    chain = answer(capfd, *base, "--method", "chain", "--drafter", pair[1])
    tree = answer(capfd, *base, "--method", "tree", "--drafter", pair[1], "--budget", "9")
    assert len(plain["tokens"]) == 24
    assert plain["tokens"] == chain["tokens"] == tree["tokens"]
    assert plain["text"] == tree["text"] and set(plain["text"].split()) <= set(WORDS)
    assert sum(tree["acceptance_lengths"]) == 23 and plain["acceptance_lengths"] == [1] * 23
    assert tree["tau"] == pytest.approx(23 / len(tree["acceptance_lengths"]), abs=1e-3)
    assert (plain["method"], chain["method"], tree["method"], tree["budget"]) == ("plain", "chain", "tree", 9)


def test_chat_template_unless_told_otherwise(pair: tuple[str, str], capfd: pytest.CaptureFixture[str]) -> None:
    base = ("generate", pair[0], "--method", "plain", "--max-new-tokens", "12", "--dtype", "float64")
    chat = answer(capfd, *base, "--prompt", "w1 w2")
    bare = answer(capfd, *base, "--prompt", "<user> w1 w2 <bot>", "--no-chat")
    other = answer(capfd, *base, "--prompt", "w1 w2", "--no-chat")
    assert chat["tokens"] == bare["tokens"] != other["tokens"]


def test_prompt_from_a_file(pair: tuple[str, str], tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "p.txt").write_text("w1 w2", encoding="utf-8")
    base = ("generate", pair[0], "--method", "plain", "--max-new-tokens", "5")
    from_file = answer(capfd, *base, "--prompt-file", str(tmp_path / "p.txt"))
    assert from_file["tokens"] == answer(capfd, *base, "--prompt", "w1 w2")["tokens"]


def test_text_goes_to_stdout_and_its_cost_to_stderr(pair: tuple[str, str], capfd: pytest.CaptureFixture[str]) -> None:
    base = ["generate", pair[0], "--drafter", pair[1], "--prompt", "w1", "--max-new-tokens", "6"]
    text = answer(capfd, *base)["text"]
    assert run(base) == 0
    out, err = capfd.readouterr()
    assert out == text + "\n"
    assert err.startswith("tree: 6 tokens, ") and err.count("\n") == 1


def test_inspect_a_pair(pair: tuple[str, str], capfd: pytest.CaptureFixture[str]) -> None:
    found = answer(capfd, "inspect", pair[0], "--drafter", pair[1], "--budget", "7")
    target, drafter, step = found["target"], found["drafter"], found["step"]
    assert target["num_layers"] == LAYERS and target["max_position_embeddings"] == CONTEXT
    assert target["kv_bytes_per_token"] == 2 * LAYERS * 2 * 8 * 4  # keys and values, 2 heads of 8, float32
    assert target["stop_token_ids"] == [0] and target["chat_template"] is True
    assert drafter["block_size"] == 4 and drafter["target_layer_ids"] == [0, 2]
    assert step["rows_verified"] == 8
    assert step["held_node_keys_and_values_bytes"] == 8 * target["kv_bytes_per_token"]
    assert step["step_logits_bytes"] == 8 * len(WORDS) * 4
    assert step["total_bytes"] == sum(v for k, v in step.items() if k.startswith(("held_", "step_")))


def test_inspect_a_configuration_alone(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A tree step of Qwen3.6-27B stays under 200 MB at 63 nodes; nobody needs its weights to see that."""
    config = Qwen3_5TextConfig(**QWEN_27B)
    (tmp_path / "config.json").write_text(json.dumps(config.to_dict() | {"architectures": ["Qwen3_5ForCausalLM"]}))
    found = answer(capfd, "inspect", str(tmp_path), "--config-only", "--budget", "63", "--dtype", "bfloat16")
    target, step = found["target"], found["step"]
    assert (target["gated_delta_layers"], target["attention_layers"]) == (48, 16)
    assert target["kv_bytes_per_token"] == 2 * 16 * 4 * 256 * 2  # attention layers alone keep keys and values
    assert step["rows_verified"] == 64 and 0 < step["total_bytes"] <= 200e6
    assert run(["inspect", str(tmp_path), "--config-only", "--drafter", "x"]) == 2
    assert run(["inspect", str(tmp_path / "none"), "--config-only"]) == 2


def test_inspect_a_drafter_alone(pair: tuple[str, str], capfd: pytest.CaptureFixture[str]) -> None:
    found = answer(capfd, "inspect", pair[1])
    assert list(found) == ["drafter"]
    assert found["drafter"]["format"] == "z-lab" and "not checked" in found["drafter"]["fit"]


def test_inspect_for_people(pair: tuple[str, str], capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["inspect", pair[0], "--drafter", pair[1]]) == 0
    out = capfd.readouterr().out
    assert "LlamaForCausalLM" in out and "rows verified" in out and "kB" in out


@pytest.mark.parametrize("command", ["generate", "inspect", "demo", "train"])
def test_every_command_has_help(command: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert run([command, "--help"]) == 0
    assert "Usage" in capfd.readouterr().out


def test_help_names_the_commands_without_loading_models(capfd: pytest.CaptureFixture[str]) -> None:
    import subprocess
    import sys

    program = "import sys; from drafttree.cli import run; run(['--help']); print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "False"
    assert all(name in done.stdout for name in ("generate", "inspect", "demo", "train"))
