import math

import pytest

from drafttree.errors import UserError
from drafttree.sampling import SamplingParams


def test_the_default_is_greedy():
    params = SamplingParams()
    assert params.greedy
    assert (params.temperature, params.top_k, params.top_p, params.seed) == (0.0, None, None, None)


def test_the_edges_of_every_range_are_taken():
    SamplingParams(temperature=1e-5, top_k=1, top_p=1e-9, seed=0)
    params = SamplingParams(temperature=1e9, top_k=10**9, top_p=1.0, seed=2**63 - 1)
    assert not params.greedy
    assert SamplingParams(temperature=1, top_p=1).temperature == 1.0


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("temperature", -0.1),
        ("temperature", math.nan),
        ("temperature", math.inf),
        ("temperature", 1e-6),
        ("temperature", "warm"),
        ("temperature", None),
        ("temperature", True),
        ("top_k", 0),
        ("top_k", -1),
        ("top_k", 2.5),
        ("top_k", True),
        ("top_p", 0.0),
        ("top_p", -0.5),
        ("top_p", 1.0001),
        ("top_p", math.nan),
        ("seed", -1),
        ("seed", 2**63),
        ("seed", 1.5),
        ("min_p", 0.1),
    ],
)
def test_a_bad_value_is_one_line_that_names_the_field(field, value):
    with pytest.raises(UserError, match=f"^sampling: {field}: found .*, expected ") as error:
        SamplingParams(**{field: value})
    assert "\n" not in str(error.value)


def test_with_seed_keeps_a_seed_and_draws_a_missing_one():
    given = SamplingParams(temperature=1.0, seed=5)
    assert given.with_seed() == given
    drawn = [SamplingParams(temperature=0.5, top_k=3).with_seed() for _ in range(4)]
    assert len({params.seed for params in drawn}) == 4
    assert all(0 <= params.seed < 2**63 and params.top_k == 3 for params in drawn)


def test_params_cannot_be_changed():
    with pytest.raises(Exception, match="frozen"):
        SamplingParams().temperature = 1.0
