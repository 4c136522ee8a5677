import random

import pytest
import torch
from delta_cases import (
    GATES,
    HEADS,
    KEY_DIM,
    KEY_HEADS,
    KEYS,
    VALUE_DIM,
    Rows,
    mask_of,
    path_of,
    random_parents,
    random_rows,
    random_state,
)
from torch.nn import functional as F

from drafttree.ops.conv_tree import commit_window, conv_tree, tap_rows
from drafttree.ops.gated_delta_tree import (
    delta_step,
    gated_delta_paths,
    gated_delta_replay,
    gated_delta_tree,
    gates,
)


def error(found, expected):
    return float((found - expected).abs().max() / expected.abs().max())


SHAPES = [(17, 6, "mixed"), (33, 15, "deep"), (20, 19, "chain"), (9, 1, "star"), (1, 0, "star")]


@pytest.mark.parametrize("keys", KEYS)
@pytest.mark.parametrize("gate", GATES)
@pytest.mark.parametrize(("nodes", "deepest", "style"), SHAPES)
def test_closed_form_is_the_recurrence(keys, gate, nodes, deepest, style):
    rng, generator = random.Random(nodes), torch.Generator().manual_seed(nodes)
    trees = [random_parents(nodes, deepest, style, rng) for _ in range(2)]
    mask, rows, state = mask_of(trees, nodes), random_rows(2, nodes, gate, keys, generator), random_state(2, generator)
    if keys == "alike" and nodes > 1:
        unit = F.normalize(rows.k[0, :, 0], dim=-1)
        assert 0.98 < float((unit @ unit.T).mean()) < 1
    expected, states = gated_delta_paths(*rows.all(), state, mask)
    before = state.clone()
    found = gated_delta_tree(*rows.all(), state, mask)
    assert torch.equal(state, before)
    assert error(found, expected) < 1e-10
    for node in {nodes - 1, nodes // 2, 0}:
        paths = [path_of(parents, node) for parents in trees]
        for b, path in enumerate(paths):
            after = state[b : b + 1].clone()
            gated_delta_replay(*(r[b, None, path] for r in rows.all()[1:]), after)
            assert error(after[0], states[b, node]) < 1e-10


def test_step_is_the_definition():
    """One head of one sequence, with plain matrices."""
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(1, d, generator=generator, dtype=torch.float64) for d in (KEY_DIM, KEY_DIM, VALUE_DIM))
    state = torch.randn(1, KEY_DIM, VALUE_DIM, generator=generator, dtype=torch.float64)
    g, beta = torch.tensor([-0.3], dtype=torch.float64), torch.tensor([0.7], dtype=torch.float64)
    out, after = delta_step(q, k, v, g, beta, state)
    key, query = (x[0] / (x[0].square().sum() + 1e-6).sqrt() for x in (k, q))
    identity = torch.eye(KEY_DIM, dtype=torch.float64)
    expected = (identity - 0.7 * torch.outer(key, key)) @ (state[0] * torch.tensor(-0.3).exp().double())
    expected = expected + 0.7 * torch.outer(key, v[0])
    assert error(after[0], expected) < 1e-7  # exp(-0.3) above is float32
    assert error(out[0], query @ after[0] / KEY_DIM**0.5) < 1e-14


def test_value_heads_share_key_heads_in_blocks():
    """Value head h reads key head h // (Hv // Hk)."""
    generator = torch.Generator().manual_seed(1)
    rows, state = random_rows(1, 5, "slow", "free", generator), random_state(1, generator)
    mask = mask_of([[-1, 0, 1, 1, 0]], 5)
    out = gated_delta_tree(*rows.all(), state, mask)
    changed = rows.k.clone()
    changed[:, :, 0] += 1
    moved = (gated_delta_tree(rows.q, changed, *rows.all()[2:], state, mask) != out).any(-1).any(1)[0]
    assert moved.tolist() == [True] * (HEADS // KEY_HEADS) + [False] * (HEADS // KEY_HEADS)


def test_padding_may_hold_anything():
    rng, generator = random.Random(4), torch.Generator().manual_seed(4)
    trees = [random_parents(n, 6, "mixed", rng) for n in (7, 19, 12)]
    width = 23
    rows, state = random_rows(3, width, "slow", "positive", generator), random_state(3, generator)
    mask = mask_of(trees, width)
    expected, _ = gated_delta_paths(*rows.all(), state, mask)
    for poison in (float("nan"), float("inf"), -1e300):
        poisoned = Rows(*(r.clone() for r in rows.all()))
        for r in poisoned.all():
            for b, tree in enumerate(trees):
                r[b, len(tree) :] = poison
        found = gated_delta_tree(*poisoned.all(), state, mask)
        assert error(found, expected) < 1e-10
        assert all(bool((found[b, len(tree) :] == 0).all()) for b, tree in enumerate(trees))


def test_a_node_feels_its_ancestors_alone():
    rng, generator = random.Random(5), torch.Generator().manual_seed(5)
    parents = random_parents(30, 8, "mixed", rng)
    rows, state, mask = (
        random_rows(1, 30, "slow", "free", generator),
        random_state(1, generator),
        mask_of([parents], 30),
    )
    out = gated_delta_tree(*rows.all(), state, mask)
    for node in (0, 5, 17):
        changed = Rows(*(r.clone() for r in rows.all()))
        for r in changed.all():
            r[:, node] *= 0.5
        moved = (gated_delta_tree(*changed.all(), state, mask) != out).flatten(2).any(-1)[0]
        assert torch.equal(moved, mask[0, :, node])


def test_strong_gates_on_a_long_path_do_not_overflow():
    """exp(G_t - G_s) of a node and no ancestor of it exceeds the largest number; it must be masked before exp."""
    generator = torch.Generator().manual_seed(9)
    parents = [-1, 0, *range(1, 29), 0]
    rows, state = random_rows(1, len(parents), "strong", "positive", generator), random_state(1, generator)
    rows.g.fill_(-30.0)
    mask = mask_of([parents], len(parents))
    expected, _ = gated_delta_paths(*rows.all(), state, mask)
    assert error(gated_delta_tree(*rows.all(), state, mask), expected) < 1e-10


def test_a_leaked_sibling_is_far_above_the_tolerance():
    generator = torch.Generator().manual_seed(6)
    rows, state = random_rows(1, 5, "slow", "positive", generator), random_state(1, generator)
    mask = mask_of([[-1, 0, 0, 1, 2]], 5)
    expected, _ = gated_delta_paths(*rows.all(), state, mask)
    mask[0, 2, 1] = True
    assert error(gated_delta_tree(*rows.all(), state, mask), expected) > 1e-3


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_gates_are_those_of_the_model(dtype):
    generator = torch.Generator().manual_seed(7)
    a, b = (torch.randn(4, HEADS, generator=generator, dtype=dtype) for _ in "ab")
    a_log, dt_bias = torch.randn(HEADS, generator=generator, dtype=dtype), torch.ones(HEADS, dtype=dtype)
    g, beta = gates(a, b, a_log, dt_bias, dtype)
    assert torch.allclose(g, -a_log.exp() * F.softplus(a + dt_bias), rtol=1e-12 if dtype == torch.float64 else 1e-6)
    assert bool((g < 0).all()) and torch.equal(beta, b.sigmoid())


def split(rows):
    """Channels [.., C] into q, k, v."""
    q, k, v = rows.split([KEY_HEADS * KEY_DIM, KEY_HEADS * KEY_DIM, HEADS * VALUE_DIM], dim=-1)
    heads = [(q, KEY_HEADS), (k, KEY_HEADS), (v, HEADS)]
    return [part.unflatten(-1, (count, -1)) for part, count in heads]


@pytest.mark.parametrize("gate", ["slow", "none"])
def test_three_hundred_steps_stay_with_their_twin(gate):
    """Convolution, verify and commit over and over; the twin takes the committed tokens one by one."""
    rng, generator = random.Random(8), torch.Generator().manual_seed(8)
    channels, taps = 2 * KEY_HEADS * KEY_DIM + HEADS * VALUE_DIM, 4
    weight = 0.5 * torch.randn(channels, taps, generator=generator, dtype=torch.float64)
    state = random_state(1, generator)
    window = torch.randn(1, taps - 1, channels, generator=generator, dtype=torch.float64)
    text, twin = window[0].clone(), state[0].clone()
    jumps = 0
    for _ in range(300):
        nodes = rng.randint(1, 20)
        parents = random_parents(nodes, 7, "mixed", rng)
        mask = mask_of([parents], nodes)
        raw = torch.randn(1, nodes, channels, generator=generator, dtype=torch.float64)
        other = random_rows(1, nodes, gate, "free", generator)
        mixed = conv_tree(raw, window, weight, tap_rows(mask, mask.sum(-1) - 1, taps))
        out = gated_delta_tree(*split(mixed), other.g, other.beta, state, mask)
        path = path_of(parents, rng.randrange(nodes))
        jumps += path != list(range(len(path)))
        _, k, v = split(mixed[:, path])
        gated_delta_replay(k, v, other.g[:, path], other.beta[:, path], state)
        commit_window(raw[:, path], window)
        for node in path:
            text = torch.cat([text, raw[0, node : node + 1]])
            q, k, v = split(F.silu((text[-taps:] * weight.T).sum(0)))
            expected, twin = delta_step(q, k, v, other.g[0, node], other.beta[0, node], twin)
        assert error(out[0, path[-1]], expected) < 1e-10
        assert error(state[0], twin) < 1e-10
        assert torch.equal(window[0], text[-(taps - 1) :])
    assert jumps > 100, "hardly any accepted path left the front"
