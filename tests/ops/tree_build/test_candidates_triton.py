"""The kernel's candidates: the tokens of a full sort in its order, log-probabilities to float32's rounding."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_devices import DEVICE, KERNEL_DEVICES, on_gpu
from tree_build_cases import tensors_difference

from drafttree.ops.tree_build import TreeTensors, build_trees_from_logits, rank_candidates
from drafttree.ops.tree_build.batched import build_trees_naive, rank_candidates_naive
from drafttree.ops.tree_build.triton import build_trees_triton
from drafttree.ops.tree_build.triton_candidates import group_size, rank_candidates_triton
from drafttree.tree.candidates import ranked_candidates

DTYPES = [torch.float32, torch.bfloat16, torch.float16]
ROUNDING = 4e-6  # of a log-probability down to about -30, in float32


def agree(logits, count, device=DEVICE, **options):
    tokens, scores = (part.cpu() for part in rank_candidates_triton(logits.to(device), count, **options))
    expected, expected_scores = rank_candidates_naive(logits, count)
    assert torch.equal(tokens, expected)
    assert torch.equal(scores.isfinite(), expected_scores.isfinite())
    assert bool((scores <= 0).all()) and bool((scores[..., :-1] >= scores[..., 1:]).all())
    exact = logits.double().log_softmax(-1).gather(-1, tokens.long())
    present = scores.isfinite()
    assert not present.any() or float((scores - exact)[present].abs().max()) < ROUNDING


@pytest.mark.parametrize("device", KERNEL_DEVICES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("vocab", "count"), [(1, 1), (5, 5), (300, 128), (1000, 7), (9001, 64)])
def test_equal_to_a_sort(device, dtype, vocab, count):
    generator = torch.Generator().manual_seed(vocab)
    logits = 4 * torch.randn(2, 3, vocab, generator=generator)
    agree(logits.to(dtype), count, device)
    agree(logits.to(dtype), count, device, block=256, pick_warps=4)
    agree(torch.round(logits / 8).to(dtype), count, device)  # a handful of values: ties at the threshold everywhere
    agree(torch.zeros_like(logits).to(dtype), count, device)


@pytest.mark.parametrize("device", KERNEL_DEVICES)
def test_special_values(device):
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(6, 2, 700, generator=generator)
    logits[0, 1, 333] = float("nan")
    logits[1, 0, 699] = float("inf")
    logits[2, 1] = float("-inf")  # no token at all
    logits[3, 0, 5:] = float("-inf")  # five tokens
    logits[4, 0, ::2] = -0.0
    logits[4, 0, 1::2] = 0.0
    logits[5, 0] *= 1e37
    for dtype in (torch.float32, torch.bfloat16):
        agree(logits.to(dtype)[:5], 9, device)
    tokens, scores = (part.cpu() for part in rank_candidates_triton(logits.to(device), 9))
    expected, expected_scores = rank_candidates_naive(logits, 9)
    assert torch.equal(tokens, expected) and torch.allclose(scores[5], expected_scores[5], rtol=1e-6)
    assert not scores[:2].isfinite().any() and not tokens[:2].any()
    assert not scores[2, 1].isfinite().any() and scores[2, 0].isfinite().all()
    assert scores[3, 0].isfinite().sum() == 5
    negative = -torch.full((1, 1, 40), float("nan"))
    assert not rank_candidates_triton(negative.to(device), 3)[1].isfinite().any()


@pytest.mark.parametrize("device", KERNEL_DEVICES)
def test_rows_of_a_wider_buffer(device):
    generator = torch.Generator().manual_seed(1)
    buffer = torch.randn(2, 5, 600, generator=generator).bfloat16()
    agree(buffer[:, 1:4, 8:520], 16, device)
    tokens, _ = rank_candidates_triton(buffer.to(device)[:, 1:4, 8:520], 16)
    assert torch.equal(tokens.cpu(), rank_candidates_naive(buffer[:, 1:4, 8:520], 16)[0])


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 2**31),
    vocab=st.integers(1, 900),
    share=st.floats(0, 1),
    values=st.sampled_from([1, 2, 5, 100, 10**6]),
    dtype=st.sampled_from(DTYPES),
)
def test_any_ties(seed, vocab, share, values, dtype):
    generator = torch.Generator().manual_seed(seed)
    logits = (torch.randint(0, values, (1, 2, vocab), generator=generator) * 8.0 / values - 5).to(dtype)
    agree(logits, max(1, round(share * min(vocab, 128))), block=128)


def test_the_specification_is_that_of_the_tree_core():
    logits = torch.round(4 * torch.randn(2, 3, 500, generator=torch.Generator().manual_seed(2))) / 2
    tokens, scores = rank_candidates(logits, 40)
    for request in range(2):
        expected, expected_scores = ranked_candidates(logits[request], 40)
        assert torch.equal(tokens[request].long(), expected) and torch.equal(scores[request], expected_scores)


@pytest.mark.parametrize("device", KERNEL_DEVICES)
def test_from_logits_to_trees(device):
    generator = torch.Generator().manual_seed(3)
    logits = (3 * torch.randn(3, 6, 3000, generator=generator)).bfloat16()
    logits[1, 4, 17] = float("nan")
    anchors, budgets = torch.tensor([1, 2, 3]), torch.tensor([30, 30, 5]).int()
    tokens, scores = rank_candidates_triton(logits.to(device), 30)
    found = TreeTensors.empty(3, 31, device=device)
    build_trees_triton(anchors.to(device), tokens, scores, budgets.to(device), None, 6, found)
    expected = TreeTensors.empty(3, 31)
    build_trees_naive(anchors, tokens.cpu(), scores.cpu(), budgets, None, 6, expected)
    assert tensors_difference(found, expected) is None
    assert found.counts.tolist() == [31, 1, 6]
    public = build_trees_from_logits(anchors.to(device), logits.to(device), budgets.to(device), 31, forced=6)
    assert public.counts.tolist() == [31, 1, 6]


def test_a_group_has_no_more_than_its_share():
    for vocab, count in [(248320, 64), (248320, 16), (248320, 128), (151936, 64), (50, 3)]:
        group = group_size(vocab, count)
        assert vocab / group <= 16384 and group * count <= 16384


def test_arguments_are_checked():
    logits = torch.zeros(2, 3, 50)
    for wrong, count in [(logits[0], 3), (logits.int(), 3), (logits, 0), (logits, 51), (logits.transpose(1, 2), 2)]:
        with pytest.raises(ValueError, match=r"logits|count"):
            rank_candidates(wrong, count)


@pytest.mark.parametrize("device", [on_gpu])
@pytest.mark.parametrize("count", [16, 64, 128])
@pytest.mark.parametrize("dtype", DTYPES)
def test_the_vocabulary_of_a_real_model(device, count, dtype):
    logits = (3 * torch.randn(2, 15, 248320, generator=torch.Generator().manual_seed(count))).to(dtype)
    agree(logits, count, device)
    agree(torch.round(logits), count, device)
    first = rank_candidates_triton(logits.to(device), count)
    for _ in range(20):
        assert all(
            torch.equal(a, b) for a, b in zip(first, rank_candidates_triton(logits.to(device), count), strict=True)
        )


@pytest.mark.parametrize("device", [on_gpu])
def test_nothing_waits_and_a_graph_replays(device):
    logits = torch.randn(2, 15, 5000, device=device, dtype=torch.bfloat16)
    anchors, budgets = torch.tensor([1, 2], device=device), torch.tensor([63, 20], device=device).int()
    out = TreeTensors.empty(2, 64, device=device)
    build_trees_from_logits(anchors, logits, budgets, 64, forced=15, out=out)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        build_trees_from_logits(anchors, logits, budgets, 64, forced=15, out=out)
    logits.copy_(torch.randn(2, 15, 5000))
    budgets.fill_(40)
    graph.replay()
    expected = build_trees_from_logits(anchors, logits, budgets, 64, forced=15)
    assert tensors_difference(out, TreeTensors(*(part.cpu() for part in vars(expected).values()))) is None
