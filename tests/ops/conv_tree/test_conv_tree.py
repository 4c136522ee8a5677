import random

import pytest
import torch
from torch.nn import functional as F

from drafttree.ops.conv_tree import commit_window, conv_paths, conv_tree, tap_rows


def random_mask(nodes, width, rng):
    """A random tree's [width, width] mask with padding behind it, and its parents."""
    parents = [-1] + [rng.randrange(node) for node in range(1, nodes)]
    mask = torch.zeros(width, width, dtype=torch.bool)
    for node in range(nodes):
        at = node
        while at >= 0:
            mask[node, at] = True
            at = parents[at]
    return mask, parents


@pytest.mark.parametrize("taps", [2, 3, 4])
def test_gather_is_the_convolution_along_every_path(taps):
    rng, generator = random.Random(taps), torch.Generator().manual_seed(taps)
    mask = torch.stack([random_mask(n, 24, rng)[0] for n in (24, 1, 10)])
    rows = torch.randn(3, 24, 10, generator=generator, dtype=torch.float64)
    window = torch.randn(3, taps - 1, 10, generator=generator, dtype=torch.float64)
    weight = torch.randn(10, taps, generator=generator, dtype=torch.float64)
    expected = conv_paths(rows, window, weight, mask)
    for b, nodes in ((1, 1), (2, 10)):
        rows[b, nodes:] = float("nan")
    found = conv_tree(rows, window, weight, tap_rows(mask, mask.sum(-1) - 1, taps))
    for b, nodes in enumerate((24, 1, 10)):
        assert torch.allclose(found[b, :nodes], expected[b, :nodes], rtol=0, atol=1e-12)


def test_paths_are_pytorchs_convolution():
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(1, 12, 10, generator=generator, dtype=torch.float64)
    window = torch.randn(1, 3, 10, generator=generator, dtype=torch.float64)
    weight = torch.randn(10, 4, generator=generator, dtype=torch.float64)
    mask = torch.ones(1, 12, 12).tril().bool()  # a chain
    text = torch.cat([window, rows], dim=1).transpose(1, 2)
    expected = F.silu(F.conv1d(text, weight[:, None], groups=10)).transpose(1, 2)
    assert torch.allclose(conv_paths(rows, window, weight, mask), expected, rtol=0, atol=1e-12)


def test_half_precision_is_rounded_once():
    """bfloat16 rows: within one rounding of the float64 value, as a convolution that sums in float32."""
    generator = torch.Generator().manual_seed(1)
    rows, window = (torch.randn(1, n, 64, generator=generator).bfloat16() for n in (9, 3))
    weight = torch.randn(64, 4, generator=generator).bfloat16()
    mask, _ = random_mask(9, 9, random.Random(1))
    taps = tap_rows(mask[None], mask[None].sum(-1) - 1, 4)
    text = torch.cat([window, rows], dim=1).double()
    total = sum(text[0, taps[0, :, j]] * weight[:, j].double() for j in range(4))
    expected = F.silu(total.float().bfloat16())
    found = conv_tree(rows, window, weight, taps)[0]
    assert found.dtype == torch.bfloat16
    assert (found == expected).float().mean() > 0.99


@pytest.mark.parametrize("length", [1, 2, 3, 7])
def test_commit_keeps_the_last_raw_rows(length):
    generator = torch.Generator().manual_seed(length)
    window, rows = (torch.randn(2, n, 5, generator=generator) for n in (3, length))
    expected = torch.cat([window, rows], dim=1)[:, -3:].clone()
    commit_window(rows, window)
    assert torch.equal(window, expected)
