"""drafttree: faster decoding with draft trees, token for token the same output."""

from __future__ import annotations

import importlib
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from drafttree.drafter.loading import load_drafter as load_drafter
    from drafttree.errors import UserError as UserError
    from drafttree.transformers.generation import generate as generate
    from drafttree.transformers.generation import stream as stream
    from drafttree.transformers.result import Generation as Generation
    from drafttree.tree import DraftTree as DraftTree
    from drafttree.tree import build_tree as build_tree

# name -> module; imported at first use, because Transformers takes seconds to import
_EXPORTS = {
    "DraftTree": "drafttree.tree",
    "Generation": "drafttree.transformers.result",
    "UserError": "drafttree.errors",
    "build_tree": "drafttree.tree",
    "generate": "drafttree.transformers.generation",
    "load_drafter": "drafttree.drafter.loading",
    "stream": "drafttree.transformers.generation",
}

__all__ = ["DraftTree", "Generation", "UserError", "__version__", "build_tree", "generate", "load_drafter", "stream"]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        try:
            return version("drafttree")
        except PackageNotFoundError:  # run from a checkout that is not installed
            return "0.0.0"
    if name not in _EXPORTS:
        raise AttributeError(f"module 'drafttree' has no attribute {name!r}")
    return getattr(importlib.import_module(_EXPORTS[name]), name)
