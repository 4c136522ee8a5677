import pytest
import torch

from drafttree.errors import UserError
from drafttree.sampling import SamplingParams, choose, coupled_scores, gumbel
from drafttree.tree import build_tree

LOGITS = 3 * torch.randn(6, 400, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
POSITIONS = torch.arange(20, 26)


@pytest.mark.parametrize("sharpness", [0.5, 1.0, 3.0])
def test_it_is_the_noisy_softmax(sharpness):
    scores = coupled_scores(LOGITS, POSITIONS, 9, 0.7, sharpness=sharpness)
    noisy = (LOGITS / 0.7).log_softmax(-1) + gumbel(9, POSITIONS, 400)
    torch.testing.assert_close(scores, torch.log(torch.softmax(noisy / sharpness, -1)))
    torch.testing.assert_close(scores.exp().sum(-1), torch.ones(6, dtype=torch.float64))
    assert coupled_scores(LOGITS.bfloat16(), POSITIONS, 9, 0.7).dtype == torch.float32


def test_a_perfect_drafter_drafts_what_the_target_chooses():
    choices = choose(LOGITS, POSITIONS, SamplingParams(temperature=0.7, seed=9))
    tree = build_tree(coupled_scores(LOGITS, POSITIONS, 9, 0.7), 12)
    assert tree.tokens[:6].tolist() == choices.tolist()
    assert tree.tokens[:6].tolist() != LOGITS.argmax(-1).tolist()


@pytest.mark.parametrize(("temperature", "sharpness"), [(0.0, 1.0), (-1.0, 1.0), (float("nan"), 1.0), (1.0, 0.0)])
def test_bad_numbers_are_one_line(temperature, sharpness):
    with pytest.raises(UserError, match="coupled drafting"):
        coupled_scores(LOGITS, POSITIONS, 9, temperature, sharpness=sharpness)
