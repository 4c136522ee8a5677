import pytest
import torch

from drafttree.tree import DraftTree, Walk, walk
from drafttree.tree.walk import walk_lazily

TREE = DraftTree.from_lists([7, 8, 7, 7, 9], [0, 0, 1, 2, 1])


@pytest.mark.parametrize(
    ("choices", "expected"),
    [
        ([7, 9, 0, 0, 0, 3], Walk([0, 1, 5], 3)),
        ([8, 9, 7, 0, 4, 3], Walk([0, 2, 4], 4)),
        ([8, 9, 6, 0, 4, 3], Walk([0, 2], 6)),
        ([5, 9, 6, 0, 4, 3], Walk([0], 5)),
        ([7, 8, 7, 0, 4, 3], Walk([0, 1], 8)),  # 8 is a child of the root, not of node 1
    ],
)
def test_follows_the_choices(choices, expected):
    assert walk(TREE, torch.tensor(choices)) == expected
    asked = []

    def choose_at(node):
        asked.append(node)
        return choices[node]

    assert walk_lazily(TREE, choose_at) == expected
    assert asked == expected.path


def test_the_bare_root_emits_the_choice():
    assert walk(DraftTree.root_only(), torch.tensor([4])) == Walk([0], 4)


def test_choices_must_be_one_a_node():
    with pytest.raises(ValueError, match=r"expected \(6,\)"):
        walk(TREE, torch.tensor([7, 8]))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_follows_the_choices_on_a_device():
    tree = DraftTree.from_lists([7, 8, 7, 7, 9], [0, 0, 1, 2, 1], device="cuda")
    assert walk(tree, torch.tensor([7, 9, 0, 0, 0, 3], device="cuda")) == Walk([0, 1, 5], 3)
