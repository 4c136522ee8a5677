"""Bad input on the command line: one line on stderr, exit code 2, nothing on stdout."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from saved_models import CONTEXT, edit_json, save_tiny_drafter, save_tiny_target, tiny_model

from drafttree.cli import run

WEIGHTS, CONFIG = "model.safetensors", "config.json"


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("pair")
    return save_tiny_target(folder / "target"), save_tiny_drafter(folder / "drafter")


@pytest.fixture
def copies(pair: tuple[Path, Path], tmp_path: Path) -> tuple[Path, Path]:
    target, drafter = pair
    return Path(shutil.copytree(target, tmp_path / "t")), Path(shutil.copytree(drafter, tmp_path / "d"))


def generate(target: object, drafter: object, *more: str) -> list[str]:
    return ["generate", str(target), "--drafter", str(drafter), "--max-new-tokens", "4", "--prompt", "w1 w2", *more]


def refused(arguments: list[str], capfd: pytest.CaptureFixture[str]) -> str:
    capfd.readouterr()
    code = run(arguments)
    out, err = capfd.readouterr()
    assert code == 2
    assert out == ""
    assert err.startswith("drafttree: ") and err.count("\n") == 1, err
    return err


def truncate(directory: Path) -> None:
    content = (directory / WEIGHTS).read_bytes()
    (directory / WEIGHTS).write_bytes(content[: len(content) - 10])


def pickled(directory: Path) -> None:
    torch.save(load_file(directory / WEIGHTS), directory / "pytorch_model.bin")
    (directory / WEIGHTS).unlink()


def missing_tensor(directory: Path) -> None:
    weights = load_file(directory / WEIGHTS)
    weights.popitem()
    save_file(weights, directory / WEIGHTS, metadata={"format": "pt"})


DAMAGE: dict[str, Callable[[Path], None]] = {
    "missing directory": shutil.rmtree,
    "missing weights": lambda d: (d / WEIGHTS).unlink(),
    "missing config": lambda d: (d / CONFIG).unlink(),
    "truncated weights": truncate,
    "pickled weights": pickled,
    "missing tensor": missing_tensor,
    "config not JSON": lambda d: (d / CONFIG).write_text("nonsense") and None,
    "config NaN": lambda d: edit_json(d / CONFIG, rms_norm_eps=float("nan")),
    "unknown layer type": lambda d: edit_json(d / CONFIG, layer_types=["spiral_attention"]),
}


@pytest.mark.parametrize("which", ["target", "drafter"])
@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_directory(
    which: str, damage: str, copies: tuple[Path, Path], capfd: pytest.CaptureFixture[str]
) -> None:
    target, drafter = copies
    broken = target if which == "target" else drafter
    DAMAGE[damage](broken)
    error = refused(generate(target, drafter), capfd)
    assert str(broken) in error or broken.name in error


def test_an_unsupported_architecture_lists_the_supported_ones(
    copies: tuple[Path, Path], capfd: pytest.CaptureFixture[str]
) -> None:
    target, drafter = copies
    edit_json(target / CONFIG, model_type="mamba2", architectures=["Mamba2ForCausalLM"])
    error = refused(generate(target, drafter), capfd)
    assert "mamba2" in error and all(name in error for name in ("Llama", "Qwen2", "Qwen3"))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"vocab_size": 63}, "vocab_size: found 63, expected the target's 64"),
        ({"hidden_size": 48, "target_hidden_size": 48}, "hidden_size: found 48, expected the target's 32"),
        ({"num_target_layers": 5}, "num_target_layers: found 5, expected the target's 4"),
        ({"num_target_layers": 9, "target_layer_ids": (0, 8)}, "num_target_layers: found 9"),
    ],
)
def test_a_drafter_of_another_target(
    changes: dict[str, object],
    words: str,
    pair: tuple[Path, Path],
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    other = save_tiny_drafter(tmp_path / "other", **changes)
    assert words in refused(generate(pair[0], other), capfd)


def test_layer_ids_outside_the_target(copies: tuple[Path, Path], capfd: pytest.CaptureFixture[str]) -> None:
    target, drafter = copies
    edit_json(drafter / CONFIG, dflash_config={"block_size": 4, "mask_token_id": 3, "target_layer_ids": [0, 4]})
    assert "target_layer_ids: found 4" in refused(generate(target, drafter), capfd)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--budget", "-1"], "budget: found -1"),
        (["--budget", "many"], "--budget"),
        (["--max-new-tokens", "0"], "max_new_tokens: found 0"),
        (["--max-new-tokens", "-3"], "max_new_tokens: found -3"),
        (["--method", "magic"], "method: found 'magic'"),
        (["--temperature", "-1"], "temperature: found -1.0"),
        (["--temperature", "nan"], "temperature: found nan"),
        (["--temperature", "1", "--top-k", "0"], "top_k: found 0"),
        (["--temperature", "1", "--top-p", "0"], "top_p: found 0.0"),
        (["--temperature", "1", "--top-p", "1.5"], "top_p: found 1.5"),
        (["--temperature", "1", "--seed", "-1"], "seed: found -1"),
        (["--prompt", ""], "prompt"),
        (["--prompt-file", "x"], "one of --prompt and --prompt-file"),
        (["--device", "tpu"], "device: found 'tpu'"),
        (["--device", "cuda:99"], "device: found 'cuda:99'"),
        (["--dtype", "int4"], "dtype: found 'int4'"),
        (["--no-such-option"], "--no-such-option"),
        (["--prompt", "w1 " * (CONTEXT + 5)], f"{CONTEXT}"),
    ],
)
def test_a_bad_option(
    options: list[str], words: str, pair: tuple[Path, Path], capfd: pytest.CaptureFixture[str]
) -> None:
    assert words in refused(generate(*pair, *options, *(["--no-chat"] if options == ["--prompt", ""] else [])), capfd)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nothing"], "No such command 'nothing'"),
        (["generate"], "target"),
        (["generate", "/no/such/place", "--prompt", "x"], "--drafter: not given"),
        (["generate", "/no/such/place", "--prompt", "x", "--method", "plain"], "no such directory"),
        (["generate", "t"], "one of --prompt and --prompt-file"),
        (["generate", "t", "--prompt-file", "/no/such/file"], "/no/such/file: cannot be read"),
        (["inspect", "/no/such/place"], "no such directory"),
        (["inspect", "x", "--budget", "-1"], "budget: found -1"),
        (["demo", "--budget", "-1"], "budget: found -1"),
        (["demo", "--budget", "0"], "budget: found 0"),
        (["demo", "--max-new-tokens", "1"], "max_new_tokens: found 1"),
        (["demo", "--drafter", "/no/such/place"], "/no/such/place"),
        (["demo", "--json", "/proc/no/such.json"], "/proc/no/such.json"),
        (["train"], "--target"),
        (["train", "--target", "t", "--prompts", "/no/such/file", "--out", "o"], "/no/such/file"),
    ],
)
def test_a_bad_command(arguments: list[str], words: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert words in refused(arguments, capfd)


def test_the_program_itself_has_no_traceback(tmp_path: Path) -> None:
    """The same through a process of its own: what a shell sees."""
    command = [
        sys.executable,
        "-m",
        "drafttree.cli",
        "generate",
        str(tmp_path / "no"),
        "--prompt",
        "x",
        "--method",
        "plain",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.count("\n") == 1 and "Traceback" not in done.stderr


def test_a_fault_of_the_programs_is_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("drafttree.commands.inspect.facts", lambda *_, **__: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        run(["inspect", "x"])


def test_an_interruption_is_130(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("drafttree.commands.inspect.facts", interrupted)
    assert run(["inspect", "x"]) == 130
    assert "Traceback" not in capfd.readouterr().err


def test_the_tiny_model_is_what_the_faults_start_from(pair: tuple[Path, Path]) -> None:
    assert tiny_model().config.max_position_embeddings == CONTEXT
    assert run(["inspect", str(pair[0]), "--drafter", str(pair[1]), "--json"]) == 0
