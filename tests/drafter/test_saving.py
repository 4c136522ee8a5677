"""Saved drafters load again, whole or not at all."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from drafter_samples import LAYERS, VOCAB, Z_LAB, edited, make_target, weights
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file

from drafttree.drafter.config import DrafterConfig
from drafttree.drafter.loading import load_drafter
from drafttree.drafter.network import DFlashDrafter
from drafttree.drafter.readers import parse_config
from drafttree.drafter.saving import save_drafter, z_lab_values
from drafttree.errors import UserError


def make_network(**changes: Any) -> DFlashDrafter:
    config = parse_config(edited(Z_LAB, **changes), "sample")
    network = DFlashDrafter(config)
    network.load_state_dict(weights(config))
    return network


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"is_causal": False, "attention_bias": True},
        {"is_causal": True, "layer_types": ["full_attention"] * 3},
        {"input_embedding_scale": 2.0, "output_multiplier": 0.5, "final_logit_softcapping": 4.0},
    ],
)
def test_a_saved_drafter_loads_the_same(changes: dict[str, Any], dtype: torch.dtype, tmp_path: Path) -> None:
    network = make_network(**changes)
    save_drafter(network, tmp_path / "new" / "folder", dtype=dtype)
    loaded = load_drafter(tmp_path / "new" / "folder", make_target(torch.float32)).network
    assert loaded.config == network.config
    for name, weight in network.state_dict().items():
        assert torch.equal(loaded.state_dict()[name], weight.to(dtype).float()), name
    assert sorted(p.name for p in (tmp_path / "new" / "folder").iterdir()) == ["config.json", "model.safetensors"]
    stored = load_file(tmp_path / "new" / "folder" / "model.safetensors")
    assert {w.dtype for w in stored.values()} == {dtype}


def test_a_network_in_training_is_saved_as_it_is(tmp_path: Path) -> None:
    network = make_network().requires_grad_(True)
    save_drafter(network, tmp_path)
    assert all(p.requires_grad and p.dtype == torch.float32 for p in network.parameters())


def test_an_interrupted_save_keeps_the_old_drafter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_drafter(make_network(), tmp_path)
    before = {name: (tmp_path / name).read_bytes() for name in ("config.json", "model.safetensors")}

    write = Path.write_bytes

    def fail(path: Path, content: bytes) -> None:
        write(path, content[: len(content) // 2])
        raise OSError(28, "disk full")

    monkeypatch.setattr(Path, "write_bytes", fail)
    with pytest.raises(UserError, match=r"model\.safetensors: cannot be written: disk full"):
        save_drafter(make_network(is_causal=True), tmp_path)
    assert sorted(before) == sorted(path.name for path in tmp_path.iterdir())
    assert before == {name: (tmp_path / name).read_bytes() for name in before}
    load_drafter(tmp_path, make_target())


def test_others_may_read_the_weights_as_they_may_the_configuration(tmp_path: Path) -> None:
    save_drafter(make_network(), tmp_path)
    modes = {path.stat().st_mode for path in tmp_path.iterdir()}
    assert len(modes) == 1


def test_what_the_format_cannot_say_is_refused(tmp_path: Path) -> None:
    base = make_network().config
    for changes, words in (
        ({"draft_vocab_size": 5}, "reduced vocabulary"),
        ({"num_target_layers": None}, "num_target_layers"),
        ({"sliding_is_causal": False, "full_is_causal": True}, "full layers are causal"),
    ):
        network = DFlashDrafter(base.model_copy(update=changes))
        with pytest.raises(ValueError, match=words):
            save_drafter(network, tmp_path / "out")
    with pytest.raises(ValueError, match="stored dtype"):
        save_drafter(make_network(), tmp_path / "out", dtype=torch.int8)
    assert not (tmp_path / "out").exists()


positive = st.floats(1e-6, 1e9)


@st.composite
def configs(draw: st.DrawFn) -> DrafterConfig:
    kinds = draw(st.lists(st.sampled_from(["full_attention", "sliding_attention"]), min_size=1, max_size=6))
    sliding = "sliding_attention" in kinds
    causal = draw(st.sampled_from([(True, False), (True, True), (False, False)]))
    kv = draw(st.integers(1, 4))
    return DrafterConfig(
        hidden_size=draw(st.integers(1, 99)),
        intermediate_size=draw(st.integers(1, 99)),
        num_attention_heads=kv * draw(st.integers(1, 4)),
        num_key_value_heads=kv,
        head_dim=2 * draw(st.integers(1, 64)),
        vocab_size=VOCAB,
        block_size=draw(st.integers(2, 64)),
        mask_token_id=draw(st.integers(0, VOCAB - 1)),
        target_layer_ids=tuple(draw(st.lists(st.integers(0, LAYERS - 1), min_size=1, max_size=5, unique=True))),
        num_target_layers=LAYERS,
        target_hidden_size=draw(st.integers(1, 99)),
        layer_types=tuple(kinds),
        sliding_window=draw(st.integers(1, 4096)) if sliding else None,
        sliding_is_causal=causal[0],
        full_is_causal=causal[1],
        rope_theta=draw(positive),
        rms_norm_eps=draw(positive),
        attention_bias=draw(st.booleans()),
        max_position_embeddings=draw(st.integers(1, 10**6)),
        input_embedding_scale=draw(positive),
        output_multiplier=draw(positive),
        final_logit_softcapping=draw(st.none() | positive),
    )


def meaning(config: DrafterConfig) -> dict[str, Any]:
    """The configuration without the flags of layer types that it lacks."""
    values = config.model_dump()
    if "sliding_attention" not in config.layer_types:
        del values["sliding_is_causal"]
    if "full_attention" not in config.layer_types:
        del values["full_is_causal"]
    return values


@settings(max_examples=150, deadline=None)
@given(configs())
def test_every_configuration_survives_the_format(config: DrafterConfig) -> None:
    text = json.dumps(z_lab_values(config, torch.bfloat16))
    assert meaning(parse_config(json.loads(text), "saved")) == meaning(config)
