"""All responses of a run as flat tensors on the training device; a batch is cut out of them by index."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from drafttree.training.shards import Response
from drafttree.transformers.taps import HiddenTaps

SINK_TOKENS = 4  # the first tokens of a text carry states of another size and say nothing about the rest
FILL_TOKENS = 65_536  # tokens of a forward that fills the tapped states


class Batch(NamedTuple):
    """Right-padded sequences: ``tokens`` [S, T], ``lengths`` [S], ``prompt_lengths`` [S], ``taps`` [S, T, W]."""

    tokens: Tensor
    lengths: Tensor
    prompt_lengths: Tensor
    taps: Tensor


class ResponseStore:
    """Responses with the target's tapped states.

    With ``keep_taps`` the states of every token are computed once and kept, W x 2 bytes a token in bf16; otherwise
    the target runs again for every batch. Batches hold the states multiplied by ``scale`` [W], ones at first.
    """

    def __init__(self, target: Any, layer_ids: tuple[int, ...], responses: list[Response], *, keep_taps: bool) -> None:
        self.target, self.layer_ids = target, layer_ids
        parameter = next(target.parameters())
        self.device: torch.device = parameter.device
        self.sizes = [len(r.tokens) for r in responses]
        tokens = torch.tensor([t for r in responses for t in r.tokens], dtype=torch.long)
        lengths = torch.tensor(self.sizes)
        self.tokens = tokens.to(self.device)  # [N]
        self.lengths = lengths.to(self.device)  # [R]
        self.starts = (lengths.cumsum(0) - lengths).to(self.device)  # [R]
        self.prompt_lengths = torch.tensor([r.prompt_length for r in responses]).to(self.device)  # [R]
        self.scale = torch.ones(len(layer_ids) * target.config.get_text_config().hidden_size, device=self.device)
        self.taps: Tensor | None = None
        if keep_taps:
            self.taps = torch.empty(len(tokens), len(self.scale), dtype=parameter.dtype, device=self.device)  # [N, W]

    def __len__(self) -> int:
        """Number of responses."""
        return len(self.sizes)

    def fill(self) -> Iterator[int]:
        """Compute the kept taps; yields the number of responses done after each forward."""
        if self.taps is None:
            return
        order = sorted(range(len(self)), key=self.sizes.__getitem__)
        start = 0
        while start < len(order):
            rows = max(1, FILL_TOKENS // (self.sizes[order[start]] + 64))
            chosen = order[start : start + rows]
            tokens, index, inside = self._cut(chosen)
            self.taps[index[inside]] = self._run(tokens)[inside]
            start += rows
            yield min(start, len(order))

    def batch(self, rows: list[int]) -> Batch:
        """The responses ``rows``, padded on the right to a multiple of 64 tokens."""
        tokens, index, _ = self._cut(rows)
        where = torch.tensor(rows, device=self.device)
        taps = self._run(tokens) if self.taps is None else self.taps[index]
        return Batch(tokens, self.lengths[where], self.prompt_lengths[where], (taps * self.scale).to(taps.dtype))

    def even_out(self, responses: int = 256) -> None:
        """Choose ``scale`` so that every channel has a mean square of one over the first ``responses`` responses."""
        squares = torch.zeros(len(self.scale), dtype=torch.float64, device=self.device)
        count = 0
        for row in range(min(responses, len(self))):
            tokens, _, inside = self._cut([row])
            states = self._run(tokens)[inside][SINK_TOKENS:].double()  # [T, W]
            squares += states.square().sum(0)
            count += len(states)
        if count:
            self.scale = (squares / count).clamp(min=1e-12).rsqrt().float()

    def _cut(self, rows: list[int]) -> tuple[Tensor, Tensor, Tensor]:
        """Tokens [S, T], their places in the flat tensors and which of them are no padding."""
        width = -(-max(self.sizes[row] for row in rows) // 64) * 64
        where = torch.tensor(rows, device=self.device)
        column = torch.arange(width, device=self.device)
        inside = column < self.lengths[where][:, None]
        index = (self.starts[where][:, None] + column).clamp(max=len(self.tokens) - 1)
        return self.tokens[index].masked_fill(~inside, 0), index, inside

    @torch.no_grad()
    def _run(self, tokens: Tensor) -> Tensor:
        # padding stands right of the text, so causal layers never see it
        with HiddenTaps(self.target.model.layers, self.layer_ids) as taps:
            self.target.model(input_ids=tokens, use_cache=False)
            return taps.take()
