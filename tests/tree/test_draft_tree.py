import pytest
import torch
from hypothesis import given, settings
from tree_cases import drafter_logits, lists_of

from drafttree.tree import DraftTree, build_tree
from drafttree.tree.mask import ancestor_mask_by_doubling


def mask_by_following_parents(tree):
    parent = [0, *tree.parents.tolist()]
    mask = [[False] * len(parent) for _ in parent]
    for node in range(len(parent)):
        here = node
        mask[node][here] = True
        while here:
            here = parent[here]
            mask[node][here] = True
    return mask


@settings(max_examples=60, deadline=None)
@given(drafter_logits(max_vocabulary=50))
def test_the_mask_is_ancestors_and_self(logits):
    tree = build_tree(logits, 40, spine=3)
    expected = mask_by_following_parents(tree)
    assert tree.ancestor_mask().tolist() == expected
    assert tree.ancestor_mask().dtype == torch.bool
    assert ancestor_mask_by_doubling(tree.parents).tolist() == expected


@pytest.mark.parametrize("length", [0, 1, 2, 3, 4, 5, 8, 9, 100])
def test_the_mask_of_a_chain_is_the_triangle(length):
    tree = DraftTree.chain(range(length))
    triangle = torch.ones(length + 1, length + 1, dtype=torch.bool).tril()
    assert torch.equal(tree.ancestor_mask(), triangle)
    assert torch.equal(ancestor_mask_by_doubling(tree.parents), triangle)


def test_a_small_tree_by_hand():
    #        0
    #      /   \
    #   1:7     2:8
    #   |  \      \
    #  3:7  5:9    4:7
    tree = DraftTree.from_lists([7, 8, 7, 7, 9], [0, 0, 1, 2, 1])
    assert tree.depths.tolist() == [1, 1, 2, 2, 2]
    assert tree.node_depths().tolist() == [0, 1, 1, 2, 2, 2]
    assert tree.children(0) == [1, 2] and tree.children(1) == [3, 5] and tree.children(2) == [4]
    assert tree.children(5) == []
    assert tree.spine() == [1, 3]
    assert tree.ancestor_mask().int().tolist() == [
        [1, 0, 0, 0, 0, 0],
        [1, 1, 0, 0, 0, 0],
        [1, 0, 1, 0, 0, 0],
        [1, 1, 0, 1, 0, 0],
        [1, 0, 1, 0, 1, 0],
        [1, 1, 0, 0, 0, 1],
    ]
    assert lists_of(tree.cut(2)) == lists_of(DraftTree.from_lists([7, 8], [0, 0]))
    assert len(tree.cut(0)) == 0 and len(tree.cut(99)) == len(tree) == 5
    with pytest.raises(ValueError, match="negative"):
        tree.cut(-1)


def test_the_chain_and_the_bare_root():
    chain = DraftTree.chain([5, 6, 7])
    chain.validate()
    assert lists_of(chain) == ([5, 6, 7], [0, 1, 2], [1, 2, 3], [0.0, 0.0, 0.0])
    assert chain.spine() == [1, 2, 3]
    assert lists_of(DraftTree.chain(torch.tensor([5, 6, 7]))) == lists_of(chain)
    root = DraftTree.root_only()
    root.validate()
    assert len(root) == 0 and root.ancestor_mask().tolist() == [[True]]
    assert lists_of(DraftTree.from_lists([], [])) == lists_of(root) == lists_of(DraftTree.chain([]))


@pytest.mark.parametrize(
    ("tokens", "parents", "scores", "message"),
    [
        ([1], [1], None, "does not precede"),
        ([1, 2], [2, 0], None, "does not precede"),
        ([1], [-1], None, "does not precede"),
        ([4, 4], [0, 0], None, "second child"),
        ([-3], [0], None, "negative"),
        ([1, 2], [0, 1], [-1.0, -0.5], "above its parent"),
        ([1], [0], [0.5], "above its parent"),
        ([1], [0], [float("nan")], "above its parent"),
        ([1], [0, 0], None, "1 tokens but 2 parents"),
    ],
)
def test_what_is_not_a_tree_is_refused(tokens, parents, scores, message):
    with pytest.raises(ValueError, match=message):
        DraftTree.from_lists(tokens, parents, scores)


def test_validate_sees_depths_types_and_shapes():
    integers, zeros = torch.tensor([1, 2]), torch.zeros(2)
    parents = torch.tensor([0, 1])
    DraftTree(integers, parents, torch.tensor([1, 2]), zeros).validate()
    for tree, message in [
        (DraftTree(integers, parents, torch.tensor([1, 1]), zeros), "depth 1 below"),
        (DraftTree(integers, parents.int(), torch.tensor([1, 2]), zeros), "parents: torch.int32"),
        (DraftTree(integers, parents, torch.tensor([1]), zeros), "depths"),
        (DraftTree(integers, parents, torch.tensor([1, 2]), zeros.double()), "scores"),
    ]:
        with pytest.raises(ValueError, match=message):
            tree.validate()
