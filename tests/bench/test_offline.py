"""Acceptance on recorded outputs, held against walking by hand and against decoding."""

from __future__ import annotations

import pytest
import torch
from saved_models import tiny_model, tiny_network

from drafttree.bench.offline import RecordedDrafts, accepted, record_drafts
from drafttree.drafter.drafter import Drafter
from drafttree.transformers.taps import HiddenTaps
from drafttree.tree import DraftTree, build_tree

TARGET = tiny_model().double()
DRAFTER = Drafter.for_target(tiny_network(), TARGET)
PROMPT = torch.tensor([[5, 9, 12, 7, 30]])
OUTPUT = [8, 44, 17, 21, 6, 6, 50, 13]


@torch.inference_mode()
def drafts_one_by_one(anchor: int) -> torch.Tensor:
    """[L, V] logits of one anchor, from a context that holds nothing but the tokens before it."""
    before = torch.cat([PROMPT, torch.tensor([OUTPUT[:anchor]], dtype=torch.long)], dim=1)
    with HiddenTaps(TARGET.model.layers, DRAFTER.config.target_layer_ids) as taps:
        TARGET.model(input_ids=before, use_cache=False)
        context = DRAFTER.new_context(64)
        DRAFTER.extend(context, taps.take(), 0)
    return DRAFTER.draft(context, OUTPUT[anchor])


def test_drafts_are_those_of_a_context_that_ends_at_the_anchor() -> None:
    drafts = record_drafts(TARGET, DRAFTER, PROMPT, OUTPUT, 6)
    assert drafts.tokens.shape == drafts.scores.shape == (len(OUTPUT), 3, 6)
    for anchor in range(len(OUTPUT)):
        expected = build_tree(drafts_one_by_one(anchor), 6, spine=False)
        found = drafts.tree(anchor, 6, False)
        assert torch.equal(found.tokens, expected.tokens) and torch.equal(found.parents, expected.parents)
        assert torch.allclose(found.scores, expected.scores, atol=1e-5)


def recorded(output: list[int], guesses: list[list[list[int]]]) -> RecordedDrafts:
    tokens = torch.tensor(guesses)  # [A, L, K]
    scores = torch.log(torch.tensor([0.6, 0.3, 0.05])).expand(tokens.shape).contiguous()
    return RecordedDrafts(output, tokens, scores)


def test_lengths_walk_from_anchor_to_anchor() -> None:
    wrong = [[97, 98, 99]] * 3
    guesses = [
        [[2, 90, 91], [3, 92, 93], [80, 94, 95]],  # at 1: the likeliest are 2, 3, so the next anchor is 4
        wrong,
        wrong,
        [[70, 5, 71], [6, 72, 73], [74, 75, 76]],  # at 4: 5 is the second, beside the spine
        wrong,
        wrong,
    ]
    drafts = recorded([1, 2, 3, 4, 5, 6], guesses)
    assert drafts.lengths(None) == [3, 1, 1]
    assert drafts.lengths(0) == [1, 1, 1, 1, 1]
    assert drafts.lengths(3, spine=True) == [3, 1, 1]  # nothing but the spine
    assert drafts.lengths(3, spine=False) == [3, 2]  # 0.6, 0.36 and then 0.3, the second at depth 1
    assert drafts.lengths(2, spine=1) == [3, 1, 1]  # 0.6 and 0.36
    assert drafts.lengths(1) == [2, 1, 1, 1]


def test_a_last_step_counts_what_the_output_holds() -> None:
    drafts = recorded([1, 2, 3], [[[2, 8, 9], [3, 8, 9], [4, 8, 9]]] * 3)
    assert drafts.lengths(None) == [2]  # the path has three tokens and the bonus, the output two more


def test_a_budget_above_the_recorded_candidates_is_refused() -> None:
    with pytest.raises(ValueError, match="budget 4"):
        recorded([1, 2], [[[2, 8, 9]]] * 2).tree(0, 4, True)


def test_accepted_follows_the_text_through_the_tree() -> None:
    tree = DraftTree.from_lists([5, 6, 7, 8], [0, 0, 2, 3])
    assert accepted(tree, [6, 7, 9]) == [2, 3]
    assert accepted(tree, [6, 7, 8, 1]) == [2, 3, 4]
    assert accepted(tree, [7]) == []
    assert accepted(tree, []) == []
