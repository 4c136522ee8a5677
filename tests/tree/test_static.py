import pytest
import torch
from tree_cases import ABSENT, lists_of, ranked_by_python, token_paths

from drafttree.errors import UserError
from drafttree.tree import build_static_tree, build_tree

LOGITS = 3 * torch.randn(4, 60, generator=torch.Generator().manual_seed(5))


def test_paths_are_ranks_by_depth():
    paths = [(0,), (0, 0), (1,), (0, 2), (1, 1), (0, 2, 3), (5,)]
    tree = build_static_tree(LOGITS, paths)
    tree.validate()
    ranked = [ranked_by_python(row.tolist(), 10) for row in LOGITS]
    assert token_paths(tree) == [tuple(ranked[d][rank] for d, rank in enumerate(path)) for path in paths]
    log_probs = LOGITS.log_softmax(-1)
    for names, score in zip(token_paths(tree), tree.scores.tolist(), strict=True):
        assert score == pytest.approx(sum(log_probs[d, token].item() for d, token in enumerate(names)), abs=1e-5)


def test_every_path_of_rank_zero_is_the_chain():
    tree = build_static_tree(LOGITS, [(0,) * depth for depth in range(1, 5)])
    assert lists_of(tree)[:3] == lists_of(build_tree(LOGITS, 4))[:3]


def test_equal_logits_go_by_token_id():
    assert build_static_tree(torch.zeros(1, 100), [(0,), (1,), (2,)]).tokens.tolist() == [0, 1, 2]


def test_what_lies_below_an_absent_token_is_left_out():
    logits = LOGITS.clone()
    logits[1, logits[1] < logits[1].max()] = ABSENT
    tree = build_static_tree(logits, [(0,), (0, 0), (0, 1), (0, 1, 0), (0, 0, 0)])
    assert tree.parents.tolist() == [0, 1, 2]


def test_no_path_is_the_bare_root():
    assert len(build_static_tree(LOGITS, [])) == 0


@pytest.mark.parametrize(
    "paths",
    [[()], [(0,), (0,)], [(0, 0)], [(0, 0), (0,)], [(60,)], [(-1,)], [(0,), (0, 0), (0, 0, 0), (0, 0, 0, 0), (0,) * 5]],
)
def test_bad_paths_are_one_line(paths):
    with pytest.raises(UserError, match="static tree: path: found") as error:
        build_static_tree(LOGITS, paths)
    assert "\n" not in str(error.value)


def test_bad_logits_are_one_line():
    with pytest.raises(UserError, match="logits"):
        build_static_tree(LOGITS[0], [(0,)])
    broken = LOGITS.clone()
    broken[2, 2] = float("nan")
    with pytest.raises(UserError, match="row 2"):
        build_static_tree(broken, [(0,)])
