"""A hybrid target: Gated DeltaNet layers between attention layers, as in Qwen3-Next and Qwen3.5."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache

from drafttree.transformers.hybrid_layer import TreeStep, tree_forwards
from drafttree.transformers.hybrid_state import GatedDeltaState
from drafttree.transformers.target import DenseTarget


class HybridTarget(DenseTarget):
    """``Qwen3NextForCausalLM``, ``Qwen3_5ForCausalLM`` or the text part of ``Qwen3_5ForConditionalGeneration``.

    The prompt goes through the model's own code; a tree through ours, from the state after the committed text, which
    this object owns. Transformers casts the delta rule to float32 whatever the model's dtype, so for a float64 model
    the prompt takes our layers too, and every method is exact in float64.
    """

    prefill_tokens = 32  # a float64 prompt goes through the tree's layers in chains of so many tokens

    def __init__(self, model: Any, layer_ids: Sequence[int], max_length: int, max_nodes: int) -> None:
        """As for :class:`DenseTarget`."""
        super().__init__(model, layer_ids, max_length, max_nodes)
        mixers = {i: layer.linear_attn for i, layer in enumerate(self._decoder.layers) if hasattr(layer, "linear_attn")}
        self._linear = list(mixers)
        self._mixers = list(mixers.values())
        dtype = self.cache.buffers.dtype
        self._exact = dtype == torch.float64
        nodes = max(max_nodes + 1, self.prefill_tokens if self._exact else 1)
        self.state = GatedDeltaState(self._mixers, nodes, dtype, self.device)

    @torch.inference_mode()
    def prefill(self, ids: Tensor) -> tuple[Tensor, Tensor | None]:
        """As :meth:`Target.prefill`."""
        return super().prefill(ids) if self._exact else self._prefill_by_model(ids)

    @torch.inference_mode()
    def commit(self, path: Sequence[int]) -> None:
        """As :meth:`Target.commit`."""
        super().commit(path)
        self.state.commit(path)

    def _prefill_by_model(self, ids: Tensor) -> tuple[Tensor, Tensor | None]:
        """The model's own forward with its own cache, whose content is then ours."""
        cache = DynamicCache(config=self._decoder.config)
        out = self._decoder(input_ids=ids[None], use_cache=True, **{self._cache_word: cache})
        for place, layer in enumerate(self._linear):
            entry = cache.layers[layer]
            self.state.load(place, entry.conv_states[0], entry.recurrent_states[0])
        for layer, entry in enumerate(cache.layers):
            if layer not in self._linear:
                self.cache.update(entry.keys, entry.values, layer)
        self.cache.length = len(ids)
        return self._head(out.last_hidden_state[0, -1:])[0], None if self._taps is None else self._taps.take()

    def _forward(self, tokens: Tensor, depths: Tensor, mask: Tensor) -> tuple[Tensor, Tensor | None]:
        step = TreeStep.of(mask, depths, self.state.weights.shape[2])
        with tree_forwards(self._mixers, self.state, step):
            return super()._forward(tokens, depths, mask)
