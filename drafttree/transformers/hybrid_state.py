"""What the Gated DeltaNet layers of a hybrid target remember: one state of the committed text, none a node."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from drafttree.ops.conv_tree import commit_window, conv_tree
from drafttree.ops.gated_delta_tree import gated_delta_replay

REPLAYED_LAYERS = 8  # layers that a commit takes at once: few enough that their rows stay small


class GatedDeltaState:
    """Convolution windows and recurrent states of all Gated DeltaNet layers, and the raw rows of the last verify.

    A verify reads the state and leaves the raw rows of its nodes in :attr:`rows`, :attr:`g` and :attr:`beta`;
    :meth:`commit` replays those of the accepted path, with the recurrence, and nothing else ever changes the state.

    Shapes, for L layers, C channels, Hv value heads and W taps: windows [L, W - 1, C] in the model's dtype, states
    [L, Hv, dk, dv] in float32, or float64 for a float64 model; rows [L, nodes, C], g and beta [L, nodes, Hv].
    """

    def __init__(self, mixers: Sequence[Any], nodes: int, dtype: torch.dtype, device: torch.device) -> None:
        """``mixers``: the layers' token mixers in order; ``nodes``: most nodes of a verify, the root counted."""
        first = mixers[0]
        self.key_width: int = first.key_dim
        self.key_heads: int = first.num_k_heads
        heads, channels, taps = first.num_v_heads, first.conv_dim, first.conv_kernel_size
        wide = torch.float64 if dtype == torch.float64 else torch.float32
        layers = len(mixers)
        self.weights = torch.stack([mixer.conv1d.weight[:, 0] for mixer in mixers]).detach()  # [L, C, W]
        self.windows = torch.zeros(layers, taps - 1, channels, dtype=dtype, device=device)
        self.states = torch.zeros(layers, heads, first.head_k_dim, first.head_v_dim, dtype=wide, device=device)
        self.rows = torch.empty(layers, nodes, channels, dtype=dtype, device=device)
        self.g = torch.empty(layers, nodes, heads, dtype=wide, device=device)
        self.beta = torch.empty(layers, nodes, heads, dtype=wide, device=device)

    def load(self, layer: int, conv_state: Tensor, recurrent_state: Tensor) -> None:
        """Take over a layer's state from the model's own cache: [1, C, W] or shorter, and [1, Hv, dk, dv]."""
        self.windows[layer] = conv_state[0, :, -self.windows.shape[1] :].T
        self.states[layer] = recurrent_state[0]

    def stash(self, layer: int, rows: Tensor, g: Tensor, beta: Tensor) -> None:
        """Keep a layer's raw rows [n + 1, C] and gates [n + 1, Hv] for the commit."""
        count = rows.shape[0]
        self.rows[layer, :count] = rows
        self.g[layer, :count] = g
        self.beta[layer, :count] = beta

    def commit(self, path: Sequence[int]) -> None:
        """Advance every layer's state over the accepted ``path``, node numbers with the root first."""
        nodes = torch.tensor(path, device=self.states.device)
        places = torch.arange(len(path), device=nodes.device)
        taps = places[:, None] + torch.arange(self.weights.shape[2], device=nodes.device)  # [T, W], a chain's
        for start in range(0, self.states.shape[0], REPLAYED_LAYERS):
            part = slice(start, start + REPLAYED_LAYERS)
            rows, windows = self.rows[part, nodes], self.windows[part]  # [P, T, C], [P, W - 1, C]
            skip = self.key_width  # the queries change no state
            mixed = conv_tree(
                rows[..., skip:],
                windows[..., skip:],
                self.weights[part, skip:],
                taps.expand(rows.shape[0], *taps.shape),
            )
            k, v = torch.split(mixed, [self.key_width, mixed.shape[-1] - self.key_width], dim=-1)
            gated_delta_replay(
                torch.unflatten(k, -1, (self.key_heads, -1)),
                torch.unflatten(v, -1, (self.states.shape[1], -1)),
                self.g[part, nodes],
                self.beta[part, nodes],
                self.states[part],
            )
            commit_window(rows, windows)

    def tensors(self) -> dict[str, Tensor]:
        """All buffers by name, for the account of memory."""
        names = ("weights", "windows", "states", "rows", "g", "beta")
        return {name: getattr(self, name) for name in names}
