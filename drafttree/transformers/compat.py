"""Differences between the supported Transformers releases, in one place."""

from __future__ import annotations

import inspect
from typing import Any


def cache_keyword(model: Any) -> str:
    """Name under which ``model.forward`` takes the cache: ``cache`` from 5.24 on, ``past_key_values`` before."""
    return "cache" if "cache" in inspect.signature(model.forward).parameters else "past_key_values"
