import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tree_cases import ABSENT, difference, drafter_logits, lists_of, ranked_by_python, token_paths

import drafttree.tree.candidates as candidates
from drafttree.errors import UserError
from drafttree.tree import DraftTree, build_tree, tree_of_candidates
from drafttree.tree.candidates import largest_by_key, ranked_candidates
from drafttree.tree.marginal import _on_device

spines = st.one_of(st.booleans(), st.integers(0, 17))


@settings(max_examples=100, deadline=None)
@given(drafter_logits(), st.integers(1, 64))
def test_candidates_are_ranked_by_logit_then_token(logits, count):
    count = min(count, logits.shape[1])
    tokens, scores = ranked_candidates(logits, count)
    expected = logits.log_softmax(-1)
    for row in range(len(logits)):
        present = [t for t in ranked_by_python(logits[row].tolist(), count) if logits[row, t] > ABSENT]
        assert tokens[row].tolist() == present + [0] * (count - len(present))
        assert scores[row, : len(present)].tolist() == expected[row, present].tolist()
        assert bool((scores[row, len(present) :] == ABSENT).all())
    assert bool((scores[:, 1:] <= scores[:, :-1]).all()) and bool((scores <= 0).all())
    by_key, values = largest_by_key(logits, count)
    present = values > ABSENT
    assert torch.equal(torch.where(present, by_key, 0), tokens)


def test_candidates_by_key_handle_signs_and_zeros():
    logits = torch.tensor([[-0.0, 0.0, -1.0, 1e-45, -1e-45, 3e38, -3e38, ABSENT]])
    tokens, values = largest_by_key(logits, 8)
    assert tokens.tolist() == [[5, 3, 0, 1, 4, 2, 6, 7]]
    assert values.tolist() == logits[:, tokens[0]].tolist()


def test_rank_follows_the_logit_where_log_probabilities_round_to_one_value():
    logits = torch.zeros(1, 4)
    logits[0, 3] = torch.finfo(torch.float32).tiny
    tokens, scores = ranked_candidates(logits, 4)
    assert scores[0, 0] == scores[0, 1]
    assert tokens.tolist() == [[3, 0, 1, 2]]


@settings(max_examples=60, deadline=None)
@given(drafter_logits(max_levels=3, max_vocabulary=6), st.integers(0, 40))
def test_without_a_spine_it_is_the_best_prefixes_of_all(logits, budget):
    """Every prefix scored by a plain sum: nothing left out is better than anything kept."""
    tree = build_tree(logits, budget, spine=False)
    log_probs = logits.double().log_softmax(-1)
    total = {}
    for depth in range(1, len(logits) + 1):
        for path in itertools.product(range(logits.shape[1]), repeat=depth):
            score = sum(log_probs[d, token].item() for d, token in enumerate(path))
            if score > ABSENT:  # NaN where a row is absent whole
                total[path] = score
    paths = token_paths(tree)
    assert len(paths) == len(set(paths)) == min(budget, len(total))
    assert set(paths) <= set(total)
    for path, score in zip(paths, tree.scores.tolist(), strict=True):
        assert score == pytest.approx(total[path], abs=1e-5)
    left_out = [score for path, score in total.items() if path not in set(paths)]
    if paths and left_out:
        assert max(left_out) <= min(total[path] for path in paths) + 1e-5


@settings(max_examples=150, deadline=None)
@given(drafter_logits(), st.integers(0, 200), spines)
def test_heap_and_levelwise_give_the_same_tree(logits, budget, spine):
    tree = build_tree(logits, budget, spine=spine)
    tree.validate()
    assert len(tree) <= budget
    if budget:
        tokens, scores = ranked_candidates(logits, min(budget, logits.shape[1]))
        forced = (len(logits) if spine else 0) if isinstance(spine, bool) else min(spine, len(logits))
        assert difference(lists_of(_on_device(tokens, scores, budget, forced)), lists_of(tree)) is None


@pytest.mark.parametrize("spine", [True, False, 5])
@pytest.mark.parametrize("vocabulary", [2, 37, 2000])
@pytest.mark.parametrize("step", [0.0, 1.0])
def test_heap_and_levelwise_at_budget_1024(spine, vocabulary, step):
    logits = 4 * torch.randn(16, vocabulary, generator=torch.Generator().manual_seed(vocabulary))
    if step:
        logits = torch.round(logits / step) * step
    tree = build_tree(logits, 1024, spine=spine)
    tree.validate()
    assert len(tree) == 1024
    tokens, scores = ranked_candidates(logits, min(1024, vocabulary))
    assert (
        difference(lists_of(_on_device(tokens, scores, 1024, {True: 16, False: 0}.get(spine, spine))), lists_of(tree))
        is None
    )


@settings(max_examples=80, deadline=None)
@given(drafter_logits(), st.integers(0, 120), st.integers(0, 120), spines)
def test_a_cut_is_the_tree_of_the_smaller_budget(logits, budget, width, spine):
    tree = build_tree(logits, budget, spine=spine)
    cut = tree.cut(width)
    cut.validate()  # parents inside: closed under parents at every width
    assert difference(lists_of(cut), lists_of(build_tree(logits, min(width, budget), spine=spine))) is None


@settings(max_examples=80, deadline=None)
@given(drafter_logits(), st.integers(0, 120), st.integers(0, 17))
def test_spine_rules(logits, budget, wanted):
    absent_rows = (logits == ABSENT).all(-1).nonzero()[:, 0].tolist()
    reach = min([len(logits), *absent_rows])  # an absent row ends the chain
    argmax = logits.argmax(-1).tolist()
    for spine, forced in ((True, min(budget, reach)), (wanted, min(budget, reach, wanted)), (False, 0)):
        tree = build_tree(logits, budget, spine=spine)
        assert tree.tokens[:forced].tolist() == argmax[:forced]
        assert tree.parents[:forced].tolist() == list(range(forced))
        chain = [tree.tokens[node - 1].item() for node in tree.spine()]
        assert len(chain) >= forced and chain == argmax[: len(chain)]
        # The rest is the best of what is left: exactly the unforced order without the chain's nodes.
        best = token_paths(build_tree(logits, budget + forced, spine=False))
        ahead = {tuple(argmax[:depth]) for depth in range(1, forced + 1)}
        rest = [path for path in best if path not in ahead][: budget - forced]
        if not _ties(build_tree(logits, budget + forced + 1, spine=False)):
            same = token_paths(tree)[forced:] == rest
            assert same
        assert sorted(tree.scores[forced:].tolist(), reverse=True) == tree.scores[forced:].tolist()


def _ties(tree):
    """Whether two scores are equal: a forced chain is ahead of its equals, so their order may change."""
    return tree.scores.unique().numel() < len(tree)


def test_spine_true_is_the_length_and_false_is_zero():
    logits = torch.randn(6, 50, generator=torch.Generator().manual_seed(1))
    assert lists_of(build_tree(logits, 20, spine=True)) == lists_of(build_tree(logits, 20, spine=6))
    assert lists_of(build_tree(logits, 20, spine=6)) == lists_of(build_tree(logits, 20, spine=99))
    assert lists_of(build_tree(logits, 20, spine=False)) == lists_of(build_tree(logits, 20, spine=0))
    assert lists_of(build_tree(logits, 20, spine=1)) != lists_of(build_tree(logits, 20, spine=True))


def test_a_spine_of_the_whole_budget_is_the_chain():
    logits = torch.randn(6, 50, generator=torch.Generator().manual_seed(1))
    for budget in range(7):
        tree = build_tree(logits, budget)
        chain = DraftTree.chain(logits.argmax(-1)[:budget])
        assert lists_of(tree)[:3] == lists_of(chain)[:3]


def test_equal_logits_go_by_token_id():
    tree = build_tree(torch.zeros(2, 1000), 5, spine=False)
    assert tree.tokens.tolist() == [0, 1, 2, 3, 4]
    assert tree.parents.tolist() == [0] * 5
    logits = torch.zeros(1, 3000, dtype=torch.bfloat16)
    logits[0, 2999] = 1.0
    assert build_tree(logits, 4).tokens.tolist() == [2999, 0, 1, 2]


@settings(max_examples=60, deadline=None)
@given(drafter_logits(), st.integers(1, 60), st.integers(1, 70))
def test_top_k_looks_at_so_many_tokens(logits, budget, top_k):
    tree = build_tree(logits, budget, spine=False, top_k=top_k)
    for token, depth in zip(tree.tokens.tolist(), tree.depths.tolist(), strict=True):
        assert token in ranked_by_python(logits[depth - 1].tolist(), top_k)
    if top_k >= min(budget, logits.shape[1]):
        assert difference(lists_of(tree), lists_of(build_tree(logits, budget, spine=False))) is None
    if top_k == 1:
        assert tree.parents.tolist() == list(range(len(tree)))


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_every_precision_is_taken_in_float32(dtype):
    logits = (3 * torch.randn(5, 300, generator=torch.Generator().manual_seed(2))).to(dtype)
    tree = build_tree(logits, 40)
    assert lists_of(tree) == lists_of(build_tree(logits.float(), 40))
    assert tree.scores.dtype == torch.float32 and tree.tokens.dtype == torch.int64


def test_gradients_and_inference_mode_change_nothing():
    logits = torch.randn(3, 23, generator=torch.Generator().manual_seed(2))
    expected = build_tree(logits, 10)
    with torch.inference_mode():
        assert lists_of(build_tree(logits, 10)) == lists_of(expected)
        tokens, scores = ranked_candidates(logits, 10)
        _on_device(tokens, scores, 10, 3)
    logits.requires_grad_()
    tree = build_tree(logits, 10)
    assert lists_of(tree) == lists_of(expected) and not tree.scores.requires_grad
    tokens, scores = ranked_candidates(logits, 10)
    assert lists_of(_on_device(tokens, scores, 10, 3)) == lists_of(expected)


def test_a_default_dtype_changes_nothing():
    logits = torch.randn(3, 20, generator=torch.Generator().manual_seed(2))
    expected = build_tree(logits, 10)
    torch.set_default_dtype(torch.float64)
    try:
        tree = build_tree(logits, 10)
    finally:
        torch.set_default_dtype(torch.float32)
    tree.validate()
    assert lists_of(tree) == lists_of(expected)


def test_an_absent_row_ends_the_tree():
    logits = torch.randn(4, 9, generator=torch.Generator().manual_seed(2))
    logits[2] = ABSENT
    assert build_tree(logits, 500).depths.max() == 2
    assert len(build_tree(logits, 500)) == 9 + 81
    assert len(build_tree(torch.full((3, 5), ABSENT), 8)) == 0


@pytest.mark.parametrize("value", [math.nan, math.inf])
@pytest.mark.parametrize("row", [0, 2])
def test_nan_and_infinity_are_refused_on_a_cpu(value, row):
    logits = torch.randn(4, 500, generator=torch.Generator().manual_seed(2))
    logits[row, 321] = value
    with pytest.raises(UserError, match=f"row {row}: found {value}"):
        build_tree(logits, 8)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.nan])
@pytest.mark.parametrize("row", [0, 2])
@pytest.mark.parametrize(("vocabulary", "budget"), [(500, 8), (3, 100)])
def test_nan_and_infinity_give_the_bare_root_in_the_device_form(value, row, vocabulary, budget, monkeypatch):
    """The device's arithmetic, run on the CPU: selection by key, no look at the values, the level-wise builder."""
    logits = torch.randn(4, vocabulary, generator=torch.Generator().manual_seed(2))
    logits[row, vocabulary // 2] = value
    monkeypatch.setattr(candidates, "_largest_on_cpu", largest_by_key)
    tokens, scores = ranked_candidates(logits, min(budget, vocabulary))
    assert bool((scores == ABSENT).all())
    assert len(_on_device(tokens, scores, budget, 4)) == 0
    logits[row, vocabulary // 2] = 0.5
    assert len(_on_device(*ranked_candidates(logits, min(budget, vocabulary)), budget, 4)) == budget


@pytest.mark.parametrize("budget", [-1, 2.5, True, None, "8"])
def test_a_bad_budget_is_one_line(budget):
    with pytest.raises(UserError, match="tree: budget: found") as error:
        build_tree(torch.zeros(2, 5), budget)
    assert "\n" not in str(error.value)


def test_bad_arguments_are_named():
    logits = torch.zeros(2, 5)
    with pytest.raises(UserError, match="spine"):
        build_tree(logits, 4, spine=-1)
    with pytest.raises(UserError, match="spine"):
        build_tree(logits, 0, spine=-1)
    with pytest.raises(UserError, match="top_k"):
        build_tree(logits, 4, top_k=0)
    with pytest.raises(UserError, match="logits"):
        build_tree(torch.zeros(5), 4)
    with pytest.raises(UserError, match="logits"):
        build_tree(torch.zeros(2, 5, dtype=torch.int64), 4)
    with pytest.raises(UserError, match="shapes"):
        tree_of_candidates(torch.zeros(2, 3, dtype=torch.int64), torch.zeros(2, 4), 4)


def test_nothing_to_build_is_the_bare_root():
    for tree in (build_tree(torch.zeros(3, 5), 0), build_tree(torch.zeros(0, 5), 7)):
        tree.validate()
        assert len(tree) == 0 and tree.node_depths().tolist() == [0] and tree.spine() == []


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_device_gives_the_tree_of_the_cpu():
    generator = torch.Generator().manual_seed(4)
    for step, spine in itertools.product([0.25, 2.0], [True, False, 4]):
        logits = torch.round(4 * torch.randn(15, 5000, generator=generator) / step) * step
        expected, tree = build_tree(logits, 63, spine=spine), build_tree(logits.cuda(), 63, spine=spine)
        # The two log_softmax may differ in a last bit, so equal trees are asked of equal scores.
        torch.testing.assert_close(tree.scores.cpu(), expected.scores, rtol=1e-5, atol=1e-5)
        tokens, scores = ranked_candidates(logits, 63)
        assert torch.equal(tokens, ranked_candidates(logits.cuda(), 63)[0].cpu())
        on_device = tree_of_candidates(tokens.cuda(), scores.cuda(), 63, spine=spine)
        on_cpu = tree_of_candidates(tokens, scores, 63, spine=spine)
        assert difference(lists_of(on_device), lists_of(on_cpu)) is None
        assert torch.equal(on_device.ancestor_mask().cpu(), on_cpu.ancestor_mask())
    logits[3, 3] = math.nan
    assert len(build_tree(logits.cuda(), 63)) == 0
