"""Prompts of a training run: read from files, or written by the target itself."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from drafttree.errors import UserError

_MARK = "\u2402user text\u2403"  # stands for the user's text while the template is rendered; no template contains it


def read_prompts(files: list[Path]) -> list[str]:
    """Prompts of JSON-lines files; every line is an object with the text under ``prompt``."""
    prompts = []
    for file in files:
        try:
            lines = file.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise UserError(f"{file}: cannot be read as text: {error}") from None
        for number, line in enumerate(lines, 1):
            try:
                row = json.loads(line)
            except (json.JSONDecodeError, RecursionError) as error:
                raise UserError(f"{file}: line {number}: not JSON: {error}") from None
            text = row.get("prompt") if isinstance(row, dict) else None
            if not isinstance(text, str) or not text:
                raise UserError(f"{file}: line {number}: expected an object with a non-empty text under 'prompt'")
            prompts.append(text)
    if not prompts:
        raise UserError(f"{', '.join(map(str, files))}: no prompts found, expected at least one")
    return prompts


def _render(tokenizer: Any, text: str) -> str:
    message = [{"role": "user", "content": text}]
    return str(tokenizer.apply_chat_template(message, tokenize=False, add_generation_prompt=True))


def chat_ids(tokenizer: Any, prompt: str) -> list[int]:
    """Token ids of ``prompt`` in the chat template, or as plain text where the tokenizer has none."""
    if tokenizer.chat_template is None:
        return [int(t) for t in tokenizer(prompt)["input_ids"]]
    return [int(t) for t in tokenizer(_render(tokenizer, prompt), add_special_tokens=False)["input_ids"]]


def user_prefix(tokenizer: Any) -> list[int]:
    """Token ids that stand before a user's text; a chat model continues them with a prompt of its own making.

    Source: Magpie (Xu et al. 2024). Raises UserError where the tokenizer has no chat template.
    """
    if tokenizer.chat_template is None:
        raise UserError("target tokenizer: chat_template: found none, expected one, to let the target write prompts")
    text = _render(tokenizer, _MARK).split(_MARK)[0]
    return [int(t) for t in tokenizer(text, add_special_tokens=False)["input_ids"]]


def own_prompts(tokenizer: Any, responses: list[list[int]], stop_token_ids: set[int]) -> list[str]:
    """The distinct, finished prompts among ``responses``, continuations of :func:`user_prefix`, in their order."""
    texts = (tokenizer.decode(r[:-1]).strip() for r in responses if len(r) > 3 and r[-1] in stop_token_ids)
    return list(dict.fromkeys(text for text in texts if text))
