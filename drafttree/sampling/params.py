"""SamplingParams: how a request wants its tokens chosen."""

from __future__ import annotations

import secrets
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ModelWrapValidatorHandler, ValidationError, model_validator

from drafttree.errors import UserError

SEED_LIMIT = 2**63
LEAST_TEMPERATURE = 1e-5

_EXPECTED = {
    "temperature": f"0 (greedy) or a finite number >= {LEAST_TEMPERATURE}",
    "top_k": "an integer >= 1, or nothing",
    "top_p": "a number above 0 and at most 1, or nothing",
    "seed": "an integer from 0 to 2**63 - 1, or nothing",
}


class SamplingParams(BaseModel):
    """Sampling options of a request, checked on construction: a bad one raises UserError naming the field.

    Attributes:
        temperature: 0 is greedy; else the logits are divided by it. Below 1e-5 the division can overflow, so such a
            temperature is refused and not taken for greedy.
        top_k: keep the k largest logits (and those equal to the last of them); None keeps all.
        top_p: then keep the likeliest tokens until their probability exceeds it; None (and 1) keeps all.
        seed: key of the Gumbel noise; None asks for a random one (``with_seed``).
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    temperature: float = Field(default=0.0, ge=0.0, allow_inf_nan=False)
    top_k: int | None = Field(default=None, ge=1)
    top_p: float | None = Field(default=None, gt=0.0, le=1.0)
    seed: int | None = Field(default=None, ge=0, lt=SEED_LIMIT)

    @model_validator(mode="wrap")
    @classmethod
    def _one_line(cls, data: Any, handler: ModelWrapValidatorHandler[SamplingParams]) -> SamplingParams:
        try:
            params = handler(data)
        except ValidationError as error:
            first = error.errors()[0]
            name = str(first["loc"][0]) if first["loc"] else "options"
            expected = _EXPECTED.get(name, f"one of {', '.join(_EXPECTED)}")
            raise UserError.field("sampling", name, first["input"], expected) from None
        if 0.0 < params.temperature < LEAST_TEMPERATURE:
            raise UserError.field("sampling", "temperature", params.temperature, _EXPECTED["temperature"])
        return params

    @property
    def greedy(self) -> bool:
        """Whether every choice is the argmax."""
        return self.temperature == 0.0

    def with_seed(self) -> SamplingParams:
        """These options, with a random seed where there was none. A request does this once, at its start."""
        return self if self.seed is not None else self.model_copy(update={"seed": secrets.randbits(63)})
