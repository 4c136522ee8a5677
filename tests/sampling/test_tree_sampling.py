"""Sampling through a tree: the target here is a Markov chain whose probabilities are known exactly."""

import itertools

import pytest
import torch
from scipy import stats

from drafttree.sampling import SamplingParams, choose, coupled_scores, filtered_log_probs
from drafttree.tree import build_static_tree, build_tree, walk
from drafttree.tree.walk import walk_lazily

VOCABULARY = 5
LENGTH = 3
START = 2  # the last committed token, at position 10
POSITION = 10
SEEDS = 2000
TARGET = 1.2 * torch.randn(VOCABULARY, VOCABULARY, generator=torch.Generator().manual_seed(6), dtype=torch.float64)
DRAFTER = 1.0 * torch.randn(LENGTH, VOCABULARY, generator=torch.Generator().manual_seed(7), dtype=torch.float64)

OPTIONS = [
    {"temperature": 1.0},
    {"temperature": 0.8, "top_k": 4},
    {"temperature": 1.2, "top_p": 0.9},
]


def marginal_tree(params):
    return build_tree(DRAFTER, 8, spine=1)


def coupled_tree(params):
    positions = torch.arange(POSITION + 1, POSITION + 1 + LENGTH)
    return build_tree(coupled_scores(DRAFTER, positions, params.seed, params.temperature), 8)


def static_tree(params):
    return build_static_tree(DRAFTER, [(0,), (1,), (2,), (0, 0), (0, 1), (1, 0), (1, 1), (1, 0, 0)])


def plain(params):
    """LENGTH tokens after START, one choice at a time."""
    tokens = [START]
    for position in range(POSITION + 1, POSITION + 1 + LENGTH):
        tokens.append(int(choose(TARGET[tokens[-1]][None], torch.tensor([position]), params)))
    return tuple(tokens[1:])


def through_trees(params, maker, lazy):
    """The same through trees, and how many accepted nodes were not their parent's first child."""
    tokens, off_spine = [START], 0
    while len(tokens) <= LENGTH:
        root = POSITION + len(tokens) - 1
        tree = maker(params)
        carried = torch.cat([torch.tensor(tokens[-1:]), tree.tokens])  # [n + 1]
        positions = root + tree.node_depths() + 1
        if lazy:
            step = walk_lazily(
                tree,
                lambda node, carried=carried, positions=positions: int(
                    choose(TARGET[carried[node]][None], positions[node : node + 1], params)
                ),
            )
        else:
            step = walk(tree, choose(TARGET[carried], positions, params))
        for parent, node in itertools.pairwise(step.path):
            off_spine += node != tree.children(parent)[0]
            tokens.append(int(carried[node]))
        tokens.append(step.bonus)
    return tuple(tokens[1 : LENGTH + 1]), off_spine


def joint_probabilities(options):
    step = filtered_log_probs(TARGET, SamplingParams(**options)).exp()
    return {
        triple: (step[START, triple[0]] * step[triple[0], triple[1]] * step[triple[1], triple[2]]).item()
        for triple in itertools.product(range(VOCABULARY), repeat=LENGTH)
    }


@pytest.mark.parametrize(
    ("options", "maker"),
    [
        (OPTIONS[0], marginal_tree),
        (OPTIONS[0], coupled_tree),
        (OPTIONS[0], static_tree),
        (OPTIONS[1], marginal_tree),
        (OPTIONS[2], marginal_tree),
    ],
)
def test_three_tokens_through_trees_have_the_joint_distribution_of_the_target(options, maker):
    counts = dict.fromkeys(itertools.product(range(VOCABULARY), repeat=LENGTH), 0)
    accepted_siblings = 0
    for seed in range(SEEDS):
        params = SamplingParams(seed=seed, **options)
        triple, off_spine = through_trees(params, maker, lazy=False)
        counts[triple] += 1
        accepted_siblings += off_spine
        if seed < 300:
            assert triple == plain(params)  # not only alike: the same tokens
            assert triple == through_trees(params, maker, lazy=True)[0]
    assert accepted_siblings > SEEDS / 10
    assert _joint_p_value(counts, joint_probabilities(options)) > 1e-3


def _joint_p_value(counts, probabilities):
    """Chi-square, cells expected fewer than 5 times taken together."""
    assert all(counts[triple] == 0 for triple, p in probabilities.items() if p == 0.0)
    cells, rare = [], [0.0, 0.0]
    for triple, p in probabilities.items():
        if p * SEEDS >= 5:
            cells.append((counts[triple], p * SEEDS))
        else:
            rare = [rare[0] + counts[triple], rare[1] + p * SEEDS]
    if rare[1] > 0:
        cells.append(tuple(rare))
    return stats.chisquare([count for count, _ in cells], [expected for _, expected in cells]).pvalue
