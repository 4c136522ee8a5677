"""Loading from directories and the hub: what works, and one line for everything that does not."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from drafter_samples import (
    HIDDEN,
    SPECULATORS,
    VOCAB,
    Z_LAB,
    edited,
    embedding,
    head,
    make_target,
    taps,
    weights,
    write_drafter,
)
from safetensors.torch import load_file, save_file

import drafttree.drafter.loading as loading
from drafttree.drafter.drafter import Drafter
from drafttree.drafter.loading import load_drafter
from drafttree.drafter.readers import parse_config
from drafttree.errors import UserError

TARGET = make_target()
FC = "fc.weight"


def refused(path: Any, words: str, target: Any = TARGET, **options: Any) -> str:
    with pytest.raises(UserError) as caught:
        load_drafter(path, target, **options)
    message = str(caught.value)
    assert "\n" not in message
    assert words in message
    return message


def drafted(drafter: Drafter, anchor: int = 5) -> torch.Tensor:
    context = drafter.new_context(13)
    drafter.extend(context, taps(3, 13), 0)
    return drafter.draft(context, anchor)


def tensors() -> dict[str, torch.Tensor]:
    return weights(parse_config(Z_LAB, "sample"))


def rewrite(directory: Path, changed: dict[str, torch.Tensor]) -> None:
    save_file(changed, directory / "model.safetensors")


def shard(directory: Path) -> dict[str, str]:
    """Split model.safetensors in two files with an index; its map is returned."""
    everything = load_file(directory / "model.safetensors")
    (directory / "model.safetensors").unlink()
    names = sorted(everything)
    parts = {"model-00001-of-00002.safetensors": names[::2], "model-00002-of-00002.safetensors": names[1::2]}
    for file, part in parts.items():
        save_file({name: everything[name] for name in part}, directory / file)
    places = {name: file for file, part in parts.items() for name in part}
    (directory / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": places}))
    return places


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("stored", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_a_drafter_takes_its_targets_dtype(dtype: torch.dtype, stored: torch.dtype, tmp_path: Path) -> None:
    drafter = load_drafter(write_drafter(tmp_path, Z_LAB, dtype=stored), make_target(dtype))
    assert {p.dtype for p in drafter.network.parameters()} == {dtype}
    assert not any(p.requires_grad or p.is_meta for p in drafter.network.parameters())
    assert drafted(drafter).dtype == dtype
    assert torch.equal(drafter.network.fc.weight, tensors()[FC].to(stored).to(dtype))
    assert drafter.summary()["source"] == str(tmp_path)


def test_a_path_may_be_a_string(tmp_path: Path) -> None:
    write_drafter(tmp_path, Z_LAB)
    assert torch.equal(drafted(load_drafter(str(tmp_path), TARGET)), drafted(load_drafter(tmp_path, TARGET)))


def test_sharded_weights_are_the_same(tmp_path: Path) -> None:
    write_drafter(tmp_path, Z_LAB)
    whole = drafted(load_drafter(tmp_path, TARGET))
    shard(tmp_path)
    assert torch.equal(drafted(load_drafter(tmp_path, TARGET)), whole)


def test_both_formats_draft_the_same(tmp_path: Path) -> None:
    z_lab = load_drafter(write_drafter(tmp_path / "a", Z_LAB), TARGET)
    speculators = load_drafter(write_drafter(tmp_path / "b", SPECULATORS), TARGET)
    assert torch.equal(drafted(z_lab), drafted(speculators))


def test_remote_code_is_never_run(tmp_path: Path) -> None:
    write_drafter(tmp_path, Z_LAB)
    (tmp_path / "dflash.py").write_text("raise SystemExit('executed')\n")
    load_drafter(tmp_path, TARGET)
    assert "dflash" not in sys.modules


# --- vocabulary of the speculators format -----------------------------------------------------------------------------


def test_stored_copies_of_the_targets_ends_are_dropped(tmp_path: Path) -> None:
    extra = {
        "embed_tokens.weight": embedding(),
        "lm_head.weight": head(),
        "verifier_lm_head.weight": head().clone(),
        "verifier_norm.weight": torch.ones(HIDDEN),
    }
    drafter = load_drafter(write_drafter(tmp_path, SPECULATORS, extra=extra), TARGET)
    assert drafter.vocabulary.embedding.data_ptr() == TARGET.model.embed_tokens.weight.data_ptr()
    assert drafter.vocabulary.head.data_ptr() == TARGET.lm_head.weight.data_ptr()
    assert drafter.summary()["shares_head"] and drafter.summary()["shares_embedding"]


def test_ends_of_its_own_are_used(tmp_path: Path) -> None:
    plain = load_drafter(write_drafter(tmp_path / "a", SPECULATORS), TARGET)
    extra = {"lm_head.weight": 2 * head()}
    own = load_drafter(write_drafter(tmp_path / "b", SPECULATORS, extra=extra), TARGET)
    torch.testing.assert_close(drafted(own), 2 * drafted(plain), rtol=0, atol=1e-12)
    assert not own.summary()["shares_head"]
    swapped = embedding()
    swapped[[5, 6]] = embedding()[[6, 5]]
    own = load_drafter(write_drafter(tmp_path / "c", SPECULATORS, extra={"embed_tokens.weight": swapped}), TARGET)
    torch.testing.assert_close(drafted(own, 5), drafted(plain, 6), rtol=0, atol=1e-12)
    assert not own.summary()["shares_embedding"]


TOKENS = torch.tensor([3, 0, 17, 60, 41, 2])
D2T = TOKENS - torch.arange(6)
REDUCED = edited(SPECULATORS, draft_vocab_size=6)


@pytest.mark.parametrize("with_head", [True, False])
@pytest.mark.parametrize("dtype", [torch.int64, torch.int32])
def test_a_reduced_vocabulary_leaves_the_other_tokens_out(with_head: bool, dtype: torch.dtype, tmp_path: Path) -> None:
    whole = drafted(load_drafter(write_drafter(tmp_path / "a", SPECULATORS), TARGET))
    extra = {"d2t": D2T.to(dtype), "t2d": torch.isin(torch.arange(VOCAB), TOKENS)}
    if with_head:
        extra["lm_head.weight"] = head()[TOKENS]
    reduced = load_drafter(write_drafter(tmp_path / "b", REDUCED, extra=extra), TARGET)
    found = drafted(reduced)
    assert found.shape == (5, VOCAB)
    torch.testing.assert_close(found[:, TOKENS], whole[:, TOKENS], rtol=0, atol=1e-12)
    others = torch.ones(VOCAB, dtype=torch.bool)
    others[TOKENS] = False
    assert torch.isneginf(found[:, others]).all()


def test_a_reduced_drafter_needs_its_vocabulary(tmp_path: Path) -> None:
    extra = {"d2t": D2T}
    drafter = load_drafter(write_drafter(tmp_path, REDUCED, extra=extra), TARGET)
    with pytest.raises(UserError, match="draft_vocab_size: found 6"):
        Drafter.for_target(drafter.network, TARGET)


@pytest.mark.parametrize(
    ("extra", "words"),
    [
        ({}, "tensor d2t: found nothing, expected shape [6]"),
        ({"d2t": D2T[:5].clone()}, "tensor d2t: found [5], expected shape [6]"),
        ({"d2t": D2T.double()}, "tensor d2t: found 'F64', expected dtype I64 or I32"),
        ({"d2t": D2T + 1}, "tensor d2t: found token 61, expected 0 to 60"),
        ({"d2t": D2T - 1}, "tensor d2t: found token -1, expected 0 to 60"),
        ({"d2t": -torch.arange(6)}, "tensor d2t: found one token in several rows"),
        ({"d2t": D2T, "t2d": torch.zeros(VOCAB, dtype=torch.bool)}, "tensor t2d: found other tokens than in d2t"),
        ({"d2t": D2T, "t2d": torch.zeros(6, dtype=torch.bool)}, "tensor t2d: found [6], expected shape [61]"),
        ({"d2t": D2T, "lm_head.weight": head()}, "tensor lm_head.weight: found [61, 32], expected shape [6, 32]"),
        ({"d2t": D2T, "embed_tokens.weight": torch.ones(6, HIDDEN)}, "tensor embed_tokens.weight: found [6, 32]"),
        ({"d2t": D2T, "mask_embedding": torch.ones(HIDDEN)}, "tensor mask_embedding: found 'F32 [32]'"),
    ],
)
def test_a_faulty_vocabulary_is_named(extra: dict[str, torch.Tensor], words: str, tmp_path: Path) -> None:
    refused(write_drafter(tmp_path, REDUCED, extra=extra), words)


# --- another target ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "target", "words"),
    [
        ({}, {"hidden_size": 64}, "config.json: hidden_size: found 32, expected the target's 64"),
        ({}, {"vocab_size": 70}, "config.json: vocab_size: found 61, expected the target's 70"),
        ({}, {"num_hidden_layers": 11}, "config.json: num_target_layers: found 12, expected the target's 11"),
        ({"target_hidden_size": 48}, {}, "config.json: target_hidden_size: found 48, expected the target's 32"),
        ({"dflash_config__mask_token_id": 61}, {}, "mask_token_id: found 61"),
        ({"dflash_config__target_layer_ids": [1, 12]}, {}, "target_layer_ids: found 12"),
    ],
)
def test_another_target_is_refused_before_weights_are_read(
    changes: dict[str, Any], target: dict[str, Any], words: str, tmp_path: Path
) -> None:
    (tmp_path / "config.json").write_text(json.dumps(edited(Z_LAB, **changes)))
    (tmp_path / "model.safetensors").write_bytes(b"not even a header")
    refused(tmp_path, words, make_target(**target))


def test_taps_beyond_the_target_are_refused_in_the_format_without_a_layer_count(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(edited(SPECULATORS, aux_hidden_state_layer_ids=[2, 13])))
    refused(tmp_path, "target_layer_ids: found 12, expected layers of the target, 0 to 11")


def test_a_quantised_head_is_refused_before_anything_is_read() -> None:
    target = make_target()
    target.lm_head.weight = torch.nn.Parameter(target.lm_head.weight.to(torch.int8), requires_grad=False)
    refused("no/where", "output head: found 'Linear of torch.int8', expected an unquantised float matrix", target)


# --- files ------------------------------------------------------------------------------------------------------------


def test_missing_things_are_named(tmp_path: Path) -> None:
    refused(tmp_path, "found no config.json")
    refused(tmp_path / "none", "no such directory, and not a hub id such as owner/name")
    refused("", "not a hub id")
    refused("../no/such", "not a hub id")
    refused("one_word", "not a hub id")
    (tmp_path / "config.json").write_text(json.dumps(Z_LAB))
    refused(tmp_path, "found no weights, expected model.safetensors or model.safetensors.index.json")
    refused(tmp_path / "config.json", "found a file, expected a drafter's directory")


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pt", "model.pth", "weights.pkl"])
def test_a_pickle_file_is_refused_and_not_opened(name: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(Z_LAB))

    class Bomb:
        def __reduce__(self) -> tuple[Any, ...]:
            return (Path(tmp_path / "exploded").touch, ())

    (tmp_path / name).write_bytes(pickle.dumps(Bomb()))
    refused(tmp_path, f"found only {name}, a pickle file, which is never loaded")
    assert not (tmp_path / "exploded").exists()


@pytest.mark.parametrize("keep", [0, 4, 8, 100, 2000, -1, -500])
def test_a_truncated_file_is_named(keep: int, tmp_path: Path) -> None:
    write_drafter(tmp_path, Z_LAB)
    path = tmp_path / "model.safetensors"
    path.write_bytes(path.read_bytes()[:keep])
    message = refused(tmp_path, "not a complete safetensors file")
    assert message.startswith(str(path))


def test_a_pickle_named_safetensors_is_refused(tmp_path: Path) -> None:
    write_drafter(tmp_path, Z_LAB)
    torch.save(tensors(), tmp_path / "model.safetensors")
    refused(tmp_path, "not a complete safetensors file")


@pytest.mark.parametrize("name", sorted(tensors()))
def test_a_missing_or_misshapen_tensor_is_named(name: str, tmp_path: Path) -> None:
    write_drafter(tmp_path, Z_LAB)
    good = tensors()
    rewrite(tmp_path, {other: w for other, w in good.items() if other != name})
    shape = list(good[name].shape)
    refused(tmp_path, f"tensor {name}: found nothing, expected shape {shape}")
    longer = [shape[0] + 1, *shape[1:]]
    rewrite(tmp_path, good | {name: torch.ones(longer)})
    refused(tmp_path, f"model.safetensors: tensor {name}: found {longer}, expected shape {shape}")
    rewrite(tmp_path, good | {name: good[name].to(torch.int8)})
    refused(tmp_path, f"model.safetensors: tensor {name}: found 'I8', expected dtype F64 or F32 or F16 or BF16")


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_weights_that_are_not_finite_are_named(bad: float, tmp_path: Path) -> None:
    write_drafter(tmp_path, Z_LAB)
    good = tensors()
    good["norm.weight"][3] = bad
    rewrite(tmp_path, good)
    refused(tmp_path, "tensor norm.weight: found NaN or infinity, expected finite numbers")


@pytest.mark.parametrize("dtype", [torch.int64, torch.uint8, torch.bool, torch.float8_e4m3fn])
def test_a_wrong_dtype_is_named(dtype: torch.dtype, tmp_path: Path) -> None:
    write_drafter(tmp_path, Z_LAB)
    rewrite(tmp_path, tensors() | {FC: tensors()[FC].to(dtype)})
    refused(tmp_path, f"tensor {FC}: found ")


@pytest.mark.parametrize(
    "name", ["candidate_selector.predecessor_codebook", "markov_head.markov_w1.weight", "lm_head.weight", "layers.9.x"]
)
def test_an_unexpected_tensor_is_named(name: str, tmp_path: Path) -> None:
    write_drafter(tmp_path, Z_LAB, extra={name: torch.ones(2)})
    refused(tmp_path, f"tensor {name}: found 'F32 [2]', expected no such tensor in this drafter")


def test_a_bias_without_attention_bias_is_named(tmp_path: Path) -> None:
    write_drafter(tmp_path, Z_LAB, extra={"layers.0.self_attn.q_proj.bias": torch.ones(64)})
    refused(tmp_path, "tensor layers.0.self_attn.q_proj.bias: found 'F32 [64]'")
    write_drafter(tmp_path, Z_LAB)
    (tmp_path / "config.json").write_text(json.dumps(edited(Z_LAB, attention_bias=True)))
    refused(tmp_path, "bias: found nothing, expected shape [")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            lambda places: places.update({FC: "../elsewhere.safetensors"}),
            "expected a safetensors file in the same directory",
        ),
        (lambda places: places.update({FC: "/etc/passwd"}), "weight_map.fc.weight: found '/etc/passwd'"),
        (lambda places: places.update({FC: "model.bin"}), "weight_map.fc.weight: found 'model.bin'"),
        (lambda places: places.update({FC: 3}), "weight_map.fc.weight: found 3"),
        (
            lambda places: places.update({FC: "gone.safetensors"}),
            "found 'gone.safetensors', expected a file that exists",
        ),
        (lambda places: places.pop(FC), "tensor fc.weight: found nothing, expected shape [32, 96]"),
        (
            lambda places: places.update(more=places[FC]),
            "tensor more: found nothing, expected it because of model.safe",
        ),
        (lambda places: places.clear(), "weight_map: found dict, expected an object that names files"),
    ],
)
def test_a_faulty_index_is_named(change: Any, words: str, tmp_path: Path) -> None:
    places = shard(write_drafter(tmp_path / "drafter", Z_LAB))
    save_file(tensors(), tmp_path / "elsewhere.safetensors")
    change(places)
    (tmp_path / "drafter" / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}))
    refused(tmp_path / "drafter", words)


def test_an_index_that_is_no_index_is_named(tmp_path: Path) -> None:
    shard(write_drafter(tmp_path, Z_LAB))
    index = tmp_path / "model.safetensors.index.json"
    for text, words in (("{", "not valid JSON"), ("[]", "expected a JSON object"), ('{"weight_map": 3}', "found int")):
        index.write_text(text)
        refused(tmp_path, words)


def test_a_truncated_shard_is_named(tmp_path: Path) -> None:
    places = shard(write_drafter(tmp_path, Z_LAB))
    path = tmp_path / places[FC]
    path.write_bytes(path.read_bytes()[:-8])
    assert refused(tmp_path, "not a complete safetensors file").startswith(str(path))


# --- hub --------------------------------------------------------------------------------------------------------------


def test_a_hub_drafter_is_fetched_config_first_and_without_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = write_drafter(tmp_path / "0123abc", Z_LAB)
    calls: list[tuple[str, str | None, list[str]]] = []

    def fetch(name: str, *, revision: str | None, allow_patterns: list[str]) -> str:
        calls.append((name, revision, allow_patterns))
        return str(commit)

    monkeypatch.setattr(loading, "snapshot_download", fetch)
    drafter = load_drafter("some/drafter", TARGET, revision="v1")
    assert drafter.source == "some/drafter"
    assert calls == [
        ("some/drafter", "v1", ["config.json"]),
        ("some/drafter", "0123abc", ["*.safetensors", "model.safetensors.index.json"]),
    ]
    calls.clear()
    refused("some/drafter", "found 61, expected the target's 70", make_target(vocab_size=70))
    assert len(calls) == 1  # no weights for another target


def test_the_hub_out_of_reach_is_one_line(tmp_path: Path) -> None:
    """The real client, told to stay offline, with an empty cache."""
    code = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from drafter_samples import make_target\n"
        "from drafttree.drafter.loading import load_drafter\n"
        "from drafttree.errors import UserError\n"
        "try:\n    load_drafter('some/drafter', make_target())\n"
        "except UserError as error:\n    print(error)\n"
    )
    root = Path(__file__).parents[2]
    environment = {"HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path), "PYTHONPATH": str(root), "PATH": "/usr/bin:/bin"}
    command = [sys.executable, "-c", code, str(Path(__file__).parent)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.startswith("some/drafter: no such directory, and not loadable from the hub: ")
    assert done.stdout.count("\n") == 1
