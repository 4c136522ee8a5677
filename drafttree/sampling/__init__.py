"""The target's own choice at a node: greedy, or Gumbel-coupled after temperature, top-k and top-p."""

from drafttree.sampling.choice import choose, filtered_log_probs
from drafttree.sampling.coupled import coupled_scores
from drafttree.sampling.noise import gumbel
from drafttree.sampling.params import SamplingParams

__all__ = ["SamplingParams", "choose", "coupled_scores", "filtered_log_probs", "gumbel"]
