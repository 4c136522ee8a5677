"""The target model as the decoding loop sees it: prefill, verify a tree, commit a path."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from drafttree.errors import UserError
from drafttree.transformers.architectures import HYBRID, attention_layers, check_architecture, head_size
from drafttree.transformers.cache import KeyValueCache
from drafttree.transformers.compat import cache_keyword
from drafttree.transformers.taps import HiddenTaps
from drafttree.transformers.tree_mask import TreeMask

PREFILL_TOKENS = 512  # a longer prompt goes through the model in pieces, which bounds the mask


class Target(Protocol):
    """One sequence in a target model. ``length`` tokens are committed; the root of a tree stands at that position.

    ``taps`` below are the tapped states [1, T, taps x H], or None where no layer is tapped.
    """

    max_length: int

    @property
    def length(self) -> int:
        """Number of committed tokens."""

    def prefill(self, ids: Tensor) -> tuple[Tensor, Tensor | None]:
        """Commit the prompt ``ids`` [T]; the logits [V] after its last token, and the taps of all of it."""

    def verify(self, tokens: Tensor, depths: Tensor, mask: Tensor) -> tuple[Tensor, Tensor | None]:
        """Logits [n + 1, V] and taps at every node, the root first; nothing is committed.

        ``tokens`` [n + 1], ``depths`` [n + 1] (the root's 0 first), ``mask`` [n + 1, n + 1] bool, ancestors or self.
        """

    def commit(self, path: Sequence[int]) -> None:
        """Keep the rows of ``path`` (node numbers of the last verify, the root first): ``length`` grows by its size."""

    def close(self) -> None:
        """Take all hooks off the model."""


class DenseTarget:
    """A model whose layers are all full attention: Llama, Qwen2, Qwen3."""

    prefill_tokens = PREFILL_TOKENS

    def __init__(self, model: Any, layer_ids: Sequence[int], max_length: int, max_nodes: int) -> None:
        """``max_length``: tokens that may be committed; ``max_nodes``: most nodes of a tree, without the root."""
        config = model.config.get_text_config()
        parameter = next(model.parameters())
        self.device: torch.device = parameter.device
        self.max_length = max_length
        self.model = model
        self._decoder = model.get_decoder()
        self._head = model.get_output_embeddings()
        self._taps = HiddenTaps(self._decoder.layers, layer_ids) if layer_ids else None
        self._cache_word = cache_keyword(model)
        capacity = max_length + max_nodes + 1
        self.cache = KeyValueCache(
            attention_layers(config),
            config.num_key_value_heads,
            head_size(config),
            capacity,
            parameter.dtype,
            self.device,
        )
        rows = max(max_nodes + 1, min(self.prefill_tokens, max_length))
        self._mask = TreeMask(rows, capacity, attention_of(model), parameter.dtype, self.device)

    @property
    def length(self) -> int:
        """Number of committed tokens."""
        return self.cache.length

    @torch.inference_mode()
    def prefill(self, ids: Tensor) -> tuple[Tensor, Tensor | None]:
        """As :meth:`Target.prefill`."""
        taps: list[Tensor] = []
        hidden = torch.empty(0)
        for piece in torch.split(ids, self.prefill_tokens):
            count = len(piece)
            depths = torch.arange(count, device=self.device)
            hidden, tapped = self._forward(piece, depths, depths[:, None] >= depths)
            self.commit(range(count))
            if tapped is not None:
                taps.append(tapped)
        return self._head(hidden[0, -1:])[0], torch.cat(taps, dim=1) if taps else None

    @torch.inference_mode()
    def verify(self, tokens: Tensor, depths: Tensor, mask: Tensor) -> tuple[Tensor, Tensor | None]:
        """As :meth:`Target.verify`."""
        hidden, taps = self._forward(tokens, depths, mask)
        return self._head(hidden[0]), taps

    def commit(self, path: Sequence[int]) -> None:
        """As :meth:`Target.commit`."""
        self.cache.commit(path)

    def close(self) -> None:
        """As :meth:`Target.close`."""
        if self._taps is not None:
            self._taps.close()

    def _forward(self, tokens: Tensor, depths: Tensor, mask: Tensor) -> tuple[Tensor, Tensor | None]:
        """Final hidden states [1, T, H] and taps of ``tokens`` [T] behind the committed text."""
        # rows are written at consecutive slots, but keys are rotated at their depth
        positions = (self.length + depths)[None]  # [1, T]
        view = self._mask.view(self.length, mask)
        out = self._decoder(
            input_ids=tokens[None],
            position_ids=positions,
            attention_mask={"full_attention": view, "linear_attention": None} if self._by_type else view,
            use_cache=True,
            **{self._cache_word: self.cache},
        )
        return out.last_hidden_state, None if self._taps is None else self._taps.take()

    @property
    def _by_type(self) -> bool:
        return getattr(self.model.config.get_text_config(), "layer_types", None) is not None


def attention_of(model: Any) -> str:
    """The model's attention implementation; UserError for one that takes no tree mask."""
    found = str(model.config._attn_implementation)
    if found not in ("sdpa", "eager"):
        raise UserError.field("target", "attn_implementation", found, "sdpa or eager, which take a tree mask")
    return found


def target_for(model: Any, layer_ids: Sequence[int], max_length: int, max_nodes: int) -> Target:
    """The adapter for ``model``; UserError, naming the supported ones, where there is none."""
    config = model.config.get_text_config()
    check_architecture(config.to_dict(), "target")
    if config.model_type in HYBRID:
        from drafttree.transformers.hybrid import HybridTarget

        return HybridTarget(model, layer_ids, max_length, max_nodes)
    return DenseTarget(model, layer_ids, max_length, max_nodes)
