"""Loading a target: what works, and one line for everything that does not."""

from __future__ import annotations

import pickle
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from saved_models import edit_json, save_tiny_target, tiny_model
from transformers import GPTNeoXConfig, GPTNeoXForCausalLM

from drafttree.errors import UserError
from drafttree.ops.packed_linear import PackedLinear, can_pack
from drafttree.transformers.architectures import SUPPORTED, check_architecture
from drafttree.transformers.loading import load_target

WEIGHTS, CONFIG = "model.safetensors", "config.json"


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_target(tmp_path_factory.mktemp("target"))


@pytest.fixture
def directory(saved: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(saved, tmp_path / "target"))


def test_model_and_tokenizer_are_those_saved(directory: Path) -> None:
    model, tokenizer = load_target(directory, pack=False)
    expected = tiny_model().state_dict()
    assert model.state_dict().keys() == expected.keys()
    assert all(torch.equal(model.state_dict()[name], weight) for name, weight in expected.items())
    assert not model.training and not any(p.requires_grad for p in model.parameters())
    assert tokenizer("w1 w2")["input_ids"] == [6, 7]


def test_a_float32_model_is_packed_for_the_cpu(directory: Path) -> None:
    packed, _ = load_target(directory)
    assert isinstance(packed.lm_head, PackedLinear) == can_pack(torch.nn.Linear(1, 1))
    wide, _ = load_target(directory, dtype=torch.float64)
    assert type(wide.lm_head) is torch.nn.Linear
    ids = torch.tensor([[3, 4, 5]])
    torch.testing.assert_close(packed(ids).logits.double(), wide(ids).logits, rtol=1e-4, atol=1e-4)


def test_dtype_is_the_one_asked_for(directory: Path) -> None:
    model, _ = load_target(str(directory), dtype=torch.float64)
    assert {p.dtype for p in model.parameters()} == {torch.float64}


def test_weights_in_several_files(directory: Path) -> None:
    shutil.rmtree(directory)
    tiny_model().save_pretrained(directory, max_shard_size="20KB")
    assert len(list(directory.glob("*.safetensors"))) > 1
    with pytest.raises(UserError, match="tokenizer"):
        load_target(directory)


def damage_nothing_there(directory: Path) -> None:
    shutil.rmtree(directory)


def damage_is_a_file(directory: Path) -> None:
    shutil.rmtree(directory)
    directory.write_text("weights")


def damage_no_config(directory: Path) -> None:
    (directory / CONFIG).unlink()


def damage_config_not_json(directory: Path) -> None:
    (directory / CONFIG).write_text("{hidden_size: 3")


def damage_config_is_a_list(directory: Path) -> None:
    (directory / CONFIG).write_text("[]")


def damage_nan_in_config(directory: Path) -> None:
    edit_json(directory / CONFIG, rms_norm_eps=float("nan"))


def damage_infinity_deep_in_config(directory: Path) -> None:
    edit_json(directory / CONFIG, rope_parameters={"rope_type": "default", "rope_theta": float("inf")})


def damage_wrong_type_in_config(directory: Path) -> None:
    edit_json(directory / CONFIG, hidden_size="many")


def damage_heads_do_not_divide(directory: Path) -> None:
    edit_json(directory / CONFIG, num_key_value_heads=3)


def damage_unknown_architecture(directory: Path) -> None:
    edit_json(directory / CONFIG, model_type="mamba3", architectures=["Mamba3ForCausalLM"])


def damage_no_architecture(directory: Path) -> None:
    edit_json(directory / CONFIG, model_type=None)


def damage_architecture_is_a_list(directory: Path) -> None:
    edit_json(directory / CONFIG, model_type=["llama"])


def damage_known_but_unsupported_architecture(directory: Path) -> None:
    shutil.rmtree(directory)
    config = GPTNeoXConfig(
        vocab_size=64, hidden_size=32, num_hidden_layers=1, num_attention_heads=4, intermediate_size=32
    )
    GPTNeoXForCausalLM(config).save_pretrained(directory)


def damage_unknown_layer_type(directory: Path) -> None:
    edit_json(directory / CONFIG, layer_types=["full_attention", "spiral_attention"] * 2)


def damage_sliding_layers(directory: Path) -> None:
    edit_json(directory / CONFIG, model_type="qwen2", use_sliding_window=True, sliding_window=8)


def damage_quantised(directory: Path) -> None:
    edit_json(directory / CONFIG, quantization_config={"quant_method": "awq", "bits": 4})


def damage_no_weights(directory: Path) -> None:
    (directory / WEIGHTS).unlink()


def damage_only_pickled_weights(directory: Path) -> None:
    (directory / WEIGHTS).unlink()
    torch.save(tiny_model().state_dict(), directory / "pytorch_model.bin")


def damage_truncated_weights(directory: Path) -> None:
    content = (directory / WEIGHTS).read_bytes()
    (directory / WEIGHTS).write_bytes(content[: len(content) // 2])


def damage_empty_weights(directory: Path) -> None:
    (directory / WEIGHTS).write_bytes(b"")


def damage_pickle_named_safetensors(directory: Path) -> None:
    (directory / WEIGHTS).write_bytes(pickle.dumps({"weights": [1.0]}))


def damage_missing_tensor(directory: Path) -> None:
    weights = load_file(directory / WEIGHTS)
    del weights["model.layers.1.mlp.up_proj.weight"]
    save_file(weights, directory / WEIGHTS, metadata={"format": "pt"})


def damage_no_tensor_at_all(directory: Path) -> None:
    save_file({}, directory / WEIGHTS, metadata={"format": "pt"})


def damage_shape(directory: Path) -> None:
    weights = load_file(directory / WEIGHTS)
    weights["model.norm.weight"] = torch.ones(7)
    save_file(weights, directory / WEIGHTS, metadata={"format": "pt"})


def damage_nan_in_weights(directory: Path) -> None:
    weights = load_file(directory / WEIGHTS)
    weights["model.norm.weight"][3] = float("nan")
    save_file(weights, directory / WEIGHTS, metadata={"format": "pt"})


def damage_index_names_a_missing_file(directory: Path) -> None:
    (directory / WEIGHTS).unlink()
    (directory / "model.safetensors.index.json").write_text('{"weight_map": {"a": "b.safetensors"}}')


def damage_no_tokenizer(directory: Path) -> None:
    (directory / "tokenizer.json").unlink()


def damage_broken_tokenizer(directory: Path) -> None:
    (directory / "tokenizer.json").write_text("{}")


def damage_vocabulary_too_small(directory: Path) -> None:
    edit_json(directory / CONFIG, vocab_size=60)
    weights = load_file(directory / WEIGHTS)
    for name in ("model.embed_tokens.weight", "lm_head.weight"):
        weights[name] = weights[name][:60].clone()
    save_file(weights, directory / WEIGHTS, metadata={"format": "pt"})


FAULTS = {
    damage_nothing_there: "no such directory",
    damage_is_a_file: "found a file",
    damage_no_config: "found no config.json",
    damage_config_not_json: "not valid JSON",
    damage_config_is_a_list: "expected a JSON object",
    damage_nan_in_config: "rms_norm_eps: found nan",
    damage_infinity_deep_in_config: "rope_parameters.rope_theta: found inf",
    damage_wrong_type_in_config: "hidden_size",
    damage_heads_do_not_divide: "self_attn.k_proj.weight: found [16, 32]",
    damage_unknown_architecture: "model_type: found 'mamba3', expected a supported architecture",
    damage_no_architecture: "model_type: found None",
    damage_architecture_is_a_list: "model_type: found ['llama']",
    damage_known_but_unsupported_architecture: "model_type: found 'gpt_neox'",
    damage_unknown_layer_type: "layer_types: found 'spiral_attention'",
    damage_sliding_layers: "use_sliding_window",
    damage_quantised: "quantization_config",
    damage_no_weights: "found no weights",
    damage_only_pickled_weights: "pytorch_model.bin, a pickle file, which is never loaded",
    damage_truncated_weights: "not a complete safetensors file",
    damage_empty_weights: "not a complete safetensors file",
    damage_pickle_named_safetensors: "not a complete safetensors file",
    damage_missing_tensor: "model.layers.1.mlp.up_proj.weight: found nothing",
    damage_no_tensor_at_all: "without a tensor",
    damage_shape: "tensor model.norm.weight: found [7], expected shape [32]",
    damage_nan_in_weights: "model.norm.weight: found NaN",
    damage_index_names_a_missing_file: "expected a file that exists",
    damage_no_tokenizer: "found no tokenizer",
    damage_broken_tokenizer: "tokenizer not loadable",
    damage_vocabulary_too_small: "token id 63",
}


@pytest.mark.parametrize("damage", FAULTS, ids=lambda damage: damage.__name__.removeprefix("damage_"))
def test_every_fault_is_one_line_that_names_it(
    damage: Callable[[Path], None],
    directory: Path,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    damage(directory)
    capfd.readouterr()
    caplog.clear()
    with pytest.raises(UserError) as caught:
        load_target(directory)
    message = str(caught.value)
    assert FAULTS[damage] in message
    assert str(directory) in message and "\n" not in message
    # nothing beside that line, such as a report of the loader's
    assert capfd.readouterr() == ("", "") and not caplog.records


def test_supported_architectures_are_listed() -> None:
    with pytest.raises(UserError) as caught:
        check_architecture({"model_type": "mamba3"}, "config.json")
    assert all(name in str(caught.value) for name in SUPPORTED.values())


@pytest.mark.parametrize("name", ["", "no/such/place", "owner name/model", "../up"])
def test_a_name_that_is_neither_directory_nor_hub_id(name: str) -> None:
    with pytest.raises(UserError, match="no such directory"):
        load_target(name)


def test_remote_code_is_not_run(directory: Path) -> None:
    (directory / "evil.py").write_text("raise SystemExit('remote code was run')")
    edit_json(directory / CONFIG, auto_map={"AutoModelForCausalLM": "evil.Model", "AutoConfig": "evil.Config"})
    model, _ = load_target(directory)
    assert type(model).__name__ == "LlamaForCausalLM"


def test_a_pickle_beside_safetensors_is_not_read(directory: Path) -> None:
    class Bomb:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return eval, ("1/0",)

    (directory / "pytorch_model.bin").write_bytes(pickle.dumps(Bomb()))
    load_target(directory)
