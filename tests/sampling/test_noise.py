import math

import pytest
import torch
from scipy import stats

from drafttree.sampling import gumbel
from drafttree.sampling.noise import _gumbel_of_bits, gumbel_at, row_keys

WORD = (1 << 64) - 1


def by_python_integers(seed, position, token):
    """The generator written with unbounded integers."""

    def mix(z):
        z &= WORD
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & WORD
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & WORD
        return z ^ (z >> 31)

    golden = 0x9E3779B97F4A7C15
    row = mix(mix(seed + golden) + mix(position * golden + 0xBF58476D1CE4E5B9))
    uniform = ((mix(row + token * golden) >> 11) + 0.5) * 2.0**-53
    return -math.log(-math.log1p(-uniform))


def test_it_is_the_documented_hash():
    positions = torch.tensor([0, 1, 77, 10**6, 2**40])
    for seed in (0, 1, 12345, 2**62, 2**63 - 1):
        noise = gumbel(seed, positions, 300)
        assert noise.dtype == torch.float64 and noise.shape == (5, 300)
        for row, position in enumerate(positions.tolist()):
            for token in (0, 1, 2, 150, 299):
                expected = by_python_integers(seed, position, token)
                assert noise[row, token].item() == pytest.approx(expected, rel=1e-14, abs=1e-14)


def test_a_number_depends_on_its_address_alone():
    positions = torch.tensor([5, 900, 3, 5])
    noise = gumbel(11, positions, 1001)
    for row in range(4):
        assert torch.equal(gumbel(11, positions[row : row + 1], 1001)[0], noise[row])
    assert torch.equal(noise[0], noise[3])
    assert torch.equal(gumbel(11, positions, 37), noise[:, :37])
    tokens = torch.tensor([[1000, 4, 4, 0], [1, 2, 3, 999]])
    assert torch.equal(gumbel_at(11, positions[:2], tokens), noise[:2].gather(-1, tokens))
    assert not torch.equal(gumbel(12, positions, 1001), noise)
    assert gumbel(11, positions[:0], 9).shape == (0, 9)


@pytest.mark.parametrize("seed", [0, 1, 2, 2**63 - 1])
def test_the_values_are_gumbel(seed):
    values = gumbel(seed, torch.arange(40), 5000).flatten()
    assert bool(torch.isfinite(values).all())
    assert stats.kstest(values.numpy(), "gumbel_r").pvalue > 1e-3
    # The tails decide which unlikely tokens win: counts beyond levels of probability 1e-2 to 1e-4.
    for tail in (1e-2, 1e-3, 1e-4):
        above = int((values > stats.gumbel_r.isf(tail)).sum())
        assert stats.binomtest(above, len(values), tail).pvalue > 1e-3


def test_the_first_and_the_last_cell_are_finite():
    lowest, highest = _gumbel_of_bits(torch.tensor([-1, 0])).tolist()  # all ones, all zeros
    assert lowest == pytest.approx(-math.log(53 * math.log(2)))
    assert highest == pytest.approx(54 * math.log(2))


def test_neighbouring_tokens_positions_and_seeds_are_independent():
    size = 400
    uniform = torch.stack(
        [torch.exp(-torch.exp(-gumbel(seed, torch.arange(20), size))) for seed in range(20)]
    )  # [seed, position, token]
    for axis in range(3):
        for lag in (1, 2, 7):
            first = uniform.narrow(axis, 0, uniform.shape[axis] - lag).flatten()
            second = uniform.narrow(axis, lag, uniform.shape[axis] - lag).flatten()
            assert abs(stats.pearsonr(first.numpy(), second.numpy()).statistic) < 4.5 / math.sqrt(len(first))
            cells = (first * 8).long() * 8 + (second * 8).long()
            assert stats.chisquare(torch.bincount(cells, minlength=64).numpy()).pvalue > 1e-4
    # Seed and position are not summed: (seed + a, position) is no shift of (seed, position + a).
    for a in (1, 2, 3):
        assert not torch.equal(uniform[a, 0], uniform[0, a])


def test_rows_start_apart():
    keys = torch.cat([row_keys(seed, torch.arange(500)) for seed in range(40)])
    assert keys.unique().numel() == keys.numel()
    noise = gumbel(0, torch.arange(4), 50000)
    assert noise.unique().numel() == noise.numel()


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_device_makes_the_same_noise():
    positions = torch.tensor([0, 7, 123456])
    assert torch.equal(row_keys(9, positions.cuda()).cpu(), row_keys(9, positions))
    torch.testing.assert_close(
        gumbel(9, positions.cuda(), 50000).cpu(), gumbel(9, positions, 50000), rtol=0, atol=1e-12
    )
