"""Outputs of chosen target layers, caught by forward hooks: the drafter's view of the target."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn


class HiddenTaps:
    """Keeps the last forward's outputs of the decoder layers ``layer_ids``.

    Tap l is the output of layer l, that is ``hidden_states[l + 1]`` in Transformers. Hooks cost no copy of the
    other layers' states. Use as a context manager, or call :meth:`close`.
    """

    def __init__(self, layers: nn.ModuleList, layer_ids: Sequence[int]) -> None:
        self._outputs: dict[int, Tensor] = {}
        self._ids = tuple(layer_ids)
        self._handles = [layers[i].register_forward_hook(self._keeper(i)) for i in set(self._ids)]

    def _keeper(self, layer_id: int) -> Any:
        def keep(_module: nn.Module, _args: object, output: Any) -> None:
            self._outputs[layer_id] = output[0] if isinstance(output, tuple) else output

        return keep

    def take(self) -> Tensor:
        """Concatenated taps [B, T, taps x hidden] of the last forward; forgets them."""
        taps = torch.cat([self._outputs[i] for i in self._ids], dim=-1)
        self._outputs.clear()
        return taps

    def close(self) -> None:
        """Remove the hooks."""
        for handle in self._handles:
            handle.remove()

    def __enter__(self) -> HiddenTaps:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()
