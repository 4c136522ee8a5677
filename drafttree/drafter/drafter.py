"""A drafter ready to draft: the network with its target's embedding and output head."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from drafttree.drafter.config import DrafterConfig
from drafttree.drafter.context import DrafterContext
from drafttree.drafter.network import DFlashDrafter, block_mask
from drafttree.drafter.target import TargetFacts, check_fit
from drafttree.drafter.vocabulary import DraftVocabulary
from drafttree.errors import UserError


class Drafter:
    """DFlash network with its vocabulary: embedding and output head are the target's, shared and never copied."""

    def __init__(self, network: DFlashDrafter, vocabulary: DraftVocabulary, source: str = "network") -> None:
        self.network = network
        self.vocabulary = vocabulary
        self.source = source
        mask = [network.config.mask_token_id] * (network.config.block_size - 1)
        self._mask_ids = torch.tensor(mask, dtype=torch.long, device=vocabulary.embedding.device)

    @classmethod
    def for_target(cls, network: DFlashDrafter, target: nn.Module, source: str = "network") -> Drafter:
        """Drafter of ``network`` for the Hugging Face model ``target``, on its device and in its dtype.

        A network of another dtype or device is copied, not changed, so that training may go on with it. Raises
        UserError when the two do not fit.
        """
        facts = TargetFacts.of(target)
        check_fit(network.config, facts, source)
        if network.config.draft_vocab_size is not None:
            raise UserError.field(source, "draft_vocab_size", network.config.draft_vocab_size, "the whole vocabulary")
        weight = network.fc.weight
        if weight.dtype != facts.head.dtype or weight.device != facts.head.device:
            network = copy.deepcopy(network).to(facts.head.device, facts.head.dtype)
        return cls(network, DraftVocabulary.of_target(facts), source)

    @property
    def config(self) -> DrafterConfig:
        """The network's configuration."""
        return self.network.config

    def new_context(
        self, capacity: int, dtype: torch.dtype | None = None, device: torch.device | None = None
    ) -> DrafterContext:
        """Empty context for one sequence of at most ``capacity`` committed tokens; dtype and device as the network."""
        weight = self.network.fc.weight
        return DrafterContext(self.config, capacity, dtype or weight.dtype, device or weight.device)

    @torch.no_grad()
    def extend(self, context: DrafterContext, taps: Tensor, start_position: int) -> None:
        """Add committed tokens to the context.

        ``taps`` [1, T, taps x H]: the target's tapped states of the tokens at positions ``start_position`` to
        ``start_position + T - 1``, which must follow the context's rows or replace its last ones.
        """
        weight = self.network.fc.weight
        taps = taps.to(weight.device, weight.dtype)
        positions = torch.arange(start_position, start_position + taps.shape[1], device=weight.device)[None]
        context.append(self.network.encode_context(taps, positions), start_position)

    @torch.no_grad()
    def draft(self, context: DrafterContext, anchor_token: int | Tensor, block_size: int | None = None) -> Tensor:
        """Draft logits [block_size - 1, V] of the tokens after the anchor, in the head's dtype.

        The anchor stands at position ``context.length``; row k - 1 predicts the token k positions after it.
        ``block_size`` shortens the block (near the end of the text) and may not exceed the trained one.
        """
        hidden = self.hidden_states(context, anchor_token, block_size)
        return self.vocabulary.spread(self.network.scaled(self.vocabulary.logits(hidden[0, 1:])))

    @torch.no_grad()
    def hidden_states(
        self, context: DrafterContext, anchor_token: int | Tensor, block_size: int | None = None
    ) -> Tensor:
        """Final hidden states [1, block_size, H] of the block: slot 0 the anchor, then the masks."""
        size = self.config.block_size if block_size is None else block_size
        if not 2 <= size <= self.config.block_size:
            raise ValueError(f"block size must lie in 2..{self.config.block_size}, found {size}")
        embedding = self.vocabulary.embedding
        anchor = torch.as_tensor(anchor_token, dtype=torch.long, device=embedding.device).view(1)
        ids = torch.cat([anchor, self._mask_ids[: size - 1]])[None]  # [1, Q]
        block = F.embedding(ids, embedding).to(self.network.fc.weight.device)  # [1, Q, H]
        positions = torch.arange(context.length, context.length + size, device=block.device)[None]
        masks = {
            kind: block_mask(self.config, kind, positions, context.positions(context.first_visible(kind)))
            for kind in set(self.config.layer_types)
        }
        kinds = self.config.layer_types
        joins = [context.join(layer) for layer in range(len(kinds))]
        return self.network.run(block, positions, joins, [masks[kind] for kind in kinds])

    def summary(self) -> dict[str, Any]:
        """Facts for ``drafttree inspect``: source, configuration, parameters and memory."""
        weights = list(self.network.parameters())
        context = 2 * len(self.config.layer_types) * self.config.num_key_value_heads * self.config.head_dim
        return {
            "source": self.source,
            **self.config.model_dump(mode="json"),
            "num_layers": len(self.config.layer_types),
            **self.vocabulary.summary(),
            "parameters": sum(w.numel() for w in weights),
            "dtype": str(weights[0].dtype).removeprefix("torch."),
            "device": str(weights[0].device),
            "weight_bytes": sum(w.numel() * w.element_size() for w in weights),
            "context_bytes_per_token": context * weights[0].element_size(),
        }
