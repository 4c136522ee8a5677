"""The DFlash block-diffusion network: one pass over a block of mask tokens gives a distribution for each position.

Source: DFlash (z-lab), the public checkpoints' tensor names and configuration fields. The network owns neither the
embedding nor the output head; both are the target's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from drafttree.drafter.config import DrafterConfig


class LayerContext(NamedTuple):
    """Keys (rotated) and values of the committed context for one layer, each [B, kv heads, T, head dim]."""

    keys: Tensor
    values: Tensor

    def followed_by(self, rows: LayerContext) -> LayerContext:
        """A new context with ``rows`` after these."""
        return LayerContext(torch.cat([self.keys, rows.keys], dim=2), torch.cat([self.values, rows.values], dim=2))


Join = Callable[[LayerContext], LayerContext]
"""Takes the block's own keys and values, returns them behind those of the context."""


class RMSNorm(nn.Module):
    """Root-mean-square norm; statistics in float32 (float64 for float64 input), as in the Qwen3 family."""

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """Normalise the last dimension; shape and dtype are kept."""
        wide = x if x.dtype == torch.float64 else x.float()
        wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + self.eps)
        return self.weight * wide.to(x.dtype)


def rotary_tables(positions: Tensor, head_dim: int, theta: float, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Cosine and sine tables [B, 1, P, head dim] for absolute ``positions`` [B, P]; angles in float32 or wider."""
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    exponent = torch.arange(0, head_dim, 2, device=positions.device, dtype=wide) / head_dim
    angles = positions[:, None, :, None].to(wide) * (1.0 / theta**exponent)  # [B, 1, P, D/2]
    angles = torch.cat([angles, angles], dim=-1)
    return angles.cos().to(dtype), angles.sin().to(dtype)


def rotate(x: Tensor, tables: tuple[Tensor, Tensor]) -> Tensor:
    """Rotary embedding of ``x`` [B, heads, P, D] with half-split pairs."""
    cos, sin = tables
    low, high = x.chunk(2, dim=-1)
    return x * cos + torch.cat([-high, low], dim=-1) * sin


class BlockAttention(nn.Module):
    """Queries from the block; keys and values from the context features and the block."""

    def __init__(self, config: DrafterConfig) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.head_dim = (
            config.num_attention_heads,
            config.num_key_value_heads,
            config.head_dim,
        )
        bias = config.attention_bias
        self.q_proj = nn.Linear(config.hidden_size, self.heads * self.head_dim, bias=bias)
        self.k_proj = nn.Linear(config.hidden_size, self.kv_heads * self.head_dim, bias=bias)
        self.v_proj = nn.Linear(config.hidden_size, self.kv_heads * self.head_dim, bias=bias)
        self.o_proj = nn.Linear(self.heads * self.head_dim, config.hidden_size, bias=bias)
        self.q_norm = RMSNorm(self.head_dim, config.rms_norm_eps)
        self.k_norm = RMSNorm(self.head_dim, config.rms_norm_eps)

    def _split(self, x: Tensor, heads: int) -> Tensor:
        return x.view(*x.shape[:-1], heads, self.head_dim)

    def keys_values(self, x: Tensor, tables: tuple[Tensor, Tensor]) -> LayerContext:
        """Rotated keys and values of rows ``x`` [B, T, H]."""
        keys = self.k_norm(self._split(self.k_proj(x), self.kv_heads)).transpose(1, 2)
        values = self._split(self.v_proj(x), self.kv_heads).transpose(1, 2)
        return LayerContext(rotate(keys, tables), values)

    def forward(self, x: Tensor, tables: tuple[Tensor, Tensor], join: Join, allowed: Tensor | None) -> Tensor:
        """Attend from block rows ``x`` [B, Q, H] to context and block; ``allowed`` is bool [B, 1, Q, T + Q]."""
        queries = rotate(self.q_norm(self._split(self.q_proj(x), self.heads)).transpose(1, 2), tables)
        keys, values = join(self.keys_values(x, tables))
        mixed = F.scaled_dot_product_attention(
            queries, keys, values, attn_mask=allowed, enable_gqa=self.heads != self.kv_heads
        )
        out: Tensor = self.o_proj(mixed.transpose(1, 2).flatten(2))
        return out


class GatedMLP(nn.Module):
    """SiLU-gated feed-forward layer."""

    def __init__(self, config: DrafterConfig) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.up_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.down_proj = nn.Linear(config.intermediate_size, config.hidden_size, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Map [..., H] to [..., H]."""
        out: Tensor = self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))
        return out


class DrafterLayer(nn.Module):
    """Pre-norm attention and feed-forward; the context bypasses ``input_layernorm``."""

    def __init__(self, config: DrafterConfig, layer_type: str) -> None:
        super().__init__()
        self.layer_type = layer_type
        self.self_attn = BlockAttention(config)
        self.mlp = GatedMLP(config)
        self.input_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.post_attention_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)

    def forward(self, x: Tensor, tables: tuple[Tensor, Tensor], join: Join, allowed: Tensor | None) -> Tensor:
        """One layer over block rows ``x`` [B, Q, H]."""
        x = x + self.self_attn(self.input_layernorm(x), tables, join, allowed)
        out: Tensor = x + self.mlp(self.post_attention_layernorm(x))
        return out


class DFlashDrafter(nn.Module):
    """DFlash network. Tensor names are those of the z-lab checkpoints."""

    def __init__(self, config: DrafterConfig) -> None:
        super().__init__()
        self.config = config
        self.layers = nn.ModuleList(DrafterLayer(config, kind) for kind in config.layer_types)
        self.norm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.fc = nn.Linear(len(config.target_layer_ids) * config.target_hidden_size, config.hidden_size, bias=False)
        self.hidden_norm = RMSNorm(config.hidden_size, config.rms_norm_eps)

    def encode_context(self, taps: Tensor, positions: Tensor) -> list[LayerContext]:
        """Keys and values of committed tokens for every layer.

        ``taps`` [B, T, taps x target hidden]: outputs of the tapped target layers, concatenated in the order of
        ``target_layer_ids``; ``positions`` [B, T]: absolute positions.
        """
        features = self.hidden_norm(self.fc(taps))  # [B, T, H]
        tables = rotary_tables(positions, self.config.head_dim, self.config.rope_theta, features.dtype)
        return [layer.self_attn.keys_values(features, tables) for layer in self._layers()]

    def forward(
        self,
        block: Tensor,
        positions: Tensor,
        context: list[LayerContext],
        context_positions: Tensor,
        allowed: Tensor | None = None,
    ) -> Tensor:
        """Hidden states of the block, after the final norm; multiply by the target's output head for logits.

        ``block`` [B, Q, H]: target embeddings of [anchor, mask, ...]; ``positions`` [B, Q]; ``context_positions``
        [B, T]. ``allowed`` bool [B, 1, Q, T + Q] restricts attention further (several blocks in one row in training,
        unused context rows); None allows all.
        """
        by_type = {
            kind: block_mask(self.config, kind, positions, context_positions, allowed)
            for kind in set(self.config.layer_types)
        }
        masks = [by_type[kind] for kind in self.config.layer_types]
        return self.run(block, positions, [rows.followed_by for rows in context], masks)

    def run(self, block: Tensor, positions: Tensor, joins: Sequence[Join], masks: Sequence[Tensor | None]) -> Tensor:
        """The pass itself, one join and one mask a layer; see :meth:`forward` for shapes."""
        x = block * self.config.input_embedding_scale if self.config.input_embedding_scale != 1.0 else block
        tables = rotary_tables(positions, self.config.head_dim, self.config.rope_theta, block.dtype)
        for layer, join, mask in zip(self._layers(), joins, masks, strict=True):
            x = layer(x, tables, join, mask)
        out: Tensor = self.norm(x)
        return out

    def logits(self, hidden: Tensor, head_weight: Tensor) -> Tensor:
        """Draft logits [..., V] from hidden states [..., H] and the target's output head [V, H]."""
        return self.scaled(F.linear(hidden, head_weight))

    def scaled(self, out: Tensor) -> Tensor:
        """Draft logits from the product of hidden states and output head, both [..., V]."""
        if self.config.output_multiplier != 1.0:
            out = out * self.config.output_multiplier
        cap = self.config.final_logit_softcapping
        return out if cap is None else cap * torch.tanh(out / cap)

    def _layers(self) -> Iterator[DrafterLayer]:
        return (layer for layer in self.layers if isinstance(layer, DrafterLayer))


def block_mask(
    config: DrafterConfig, layer_type: str, positions: Tensor, context_positions: Tensor, allowed: Tensor | None = None
) -> Tensor | None:
    """Which keys the block's rows see in a layer of ``layer_type``: bool [B, 1, Q, T + Q], None for all.

    The sliding window is measured in positions: a row sees the keys less than ``sliding_window`` before it and, when
    the layer is not causal, less than that after it.
    """
    sliding = layer_type == "sliding_attention"
    causal = config.sliding_is_causal if sliding else config.full_is_causal
    if not sliding and not causal:
        return allowed
    key_positions = torch.cat([context_positions, positions], dim=1)
    distance = positions[:, None, :, None] - key_positions[:, None, None, :]  # [B, 1, Q, T + Q]
    if sliding:
        window = config.sliding_window
        assert window is not None  # checked by DrafterConfig
        near = distance < window
        near &= (distance >= 0) if causal else (distance > -window)
    else:
        near = distance >= 0
    return near if allowed is None else near & allowed
