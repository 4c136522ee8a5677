"""The target's choice after every row: greedy, or coupled to Gumbel noise where nothing is filtered."""

from drafttree.ops.target_choice.choose import choose_tokens

__all__ = ["choose_tokens"]
