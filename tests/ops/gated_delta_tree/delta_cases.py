"""Random trees and inputs for a Gated DeltaNet layer: gate laws from none to very strong, keys from free to alike."""

from __future__ import annotations

import random
from dataclasses import dataclass

import torch
from torch import Tensor

KEY_HEADS, HEADS, KEY_DIM, VALUE_DIM = 2, 6, 16, 12
GATES = ("none", "slow", "strong", "initial")
KEYS = ("free", "positive", "alike")


def random_parents(nodes: int, deepest: int, style: str, rng: random.Random) -> list[int]:
    """Parents of nodes 0 .. nodes - 1; the root's is -1; no node deeper than ``deepest``."""
    parents, depths = [-1], [0]
    for node in range(1, nodes):
        open_nodes = [i for i in range(node) if depths[i] < deepest]
        if style == "chain":
            parent = open_nodes[-1]
        elif style == "star":
            parent = 0
        elif style == "deep" and rng.random() < 0.7:
            parent = max(open_nodes, key=lambda i: depths[i])
        else:
            parent = rng.choice(open_nodes)
        parents.append(parent)
        depths.append(depths[parent] + 1)
    return parents


def path_of(parents: list[int], node: int) -> list[int]:
    path = []
    while node >= 0:
        path.append(node)
        node = parents[node]
    return path[::-1]


def mask_of(trees: list[list[int]], width: int) -> Tensor:
    """[B, width, width]; rows behind a tree's own nodes are padding."""
    mask = torch.zeros(len(trees), width, width, dtype=torch.bool)
    for b, parents in enumerate(trees):
        for node in range(len(parents)):
            mask[b, node, path_of(parents, node)] = True
    return mask


@dataclass
class Rows:
    """q, k, v, g, beta of B sequences of N nodes."""

    q: Tensor
    k: Tensor
    v: Tensor
    g: Tensor
    beta: Tensor

    def all(self) -> tuple[Tensor, ...]:
        return self.q, self.k, self.v, self.g, self.beta


def random_rows(
    batch: int, nodes: int, gate: str, keys: str, generator: torch.Generator, dtype: torch.dtype = torch.float64
) -> Rows:
    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    def uniform(*shape: int) -> Tensor:
        return torch.rand(*shape, generator=generator, dtype=torch.float64)

    q, k = normal(batch, nodes, KEY_HEADS, KEY_DIM), normal(batch, nodes, KEY_HEADS, KEY_DIM)
    v, beta = normal(batch, nodes, HEADS, VALUE_DIM), uniform(batch, nodes, HEADS)
    if keys == "positive":  # what a SiLU leaves
        q, k = torch.nn.functional.silu(q), torch.nn.functional.silu(k)
    elif keys == "alike":  # cosine of about 0.99
        k = normal(batch, 1, KEY_HEADS, KEY_DIM) + 0.07 * k
        beta = 0.9 + 0.1 * beta
    draw = uniform(batch, nodes, HEADS)
    g = {
        "none": torch.zeros_like(draw),
        "slow": -0.02 * draw,
        "strong": -1 - 29 * draw,
        "initial": -16 * uniform(HEADS) * torch.nn.functional.softplus(normal(batch, nodes, HEADS) + 1),
    }[gate]
    return Rows(*(rows.to(dtype) for rows in (q, k, v, g, beta)))


def random_state(batch: int, generator: torch.Generator) -> Tensor:
    return torch.randn(batch, HEADS, KEY_DIM, VALUE_DIM, generator=generator, dtype=torch.float64)
