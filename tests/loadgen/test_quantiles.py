"""A percentile is a value of the sample, or it is not there; its bounds hold what they say."""

from __future__ import annotations

import math
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadgen.quantiles import EXACT_AT_MOST, least, quantile

QS = st.sampled_from([0.01, 0.1, 0.5, 0.9, 0.99, 0.999])
VALUES = st.lists(st.floats(0, 1e9) | st.just(math.inf), max_size=300).map(sorted)


def test_the_definition_is_nearest_rank() -> None:
    ordered = [float(n) for n in range(1, 101)]
    found = [quantile(ordered, q).value for q in (0.5, 0.9, 0.99, 0.01)]
    assert found == [50, 90, 99, 1]


@pytest.mark.parametrize(("q", "n"), [(0.5, 2), (0.9, 10), (0.99, 100), (0.999, 1000), (0.01, 100)])
def test_a_quantile_needs_a_sample_that_reaches_beyond_it(q: float, n: int) -> None:
    assert least(q) == n
    assert quantile([1.0] * (n - 1), q).value is None
    assert quantile([1.0] * n, q).value == 1.0


@given(VALUES, QS)
def test_a_quantile_is_a_value_of_the_sample_between_its_bounds(
    ordered: list[float], q: float
) -> None:
    found = quantile(ordered, q)
    assert {found.value, found.low, found.high} <= {*ordered, None}
    known = [each for each in (found.low, found.value, found.high) if each is not None]
    assert known == sorted(known)
    if found.value is not None:
        share = sum(each <= found.value for each in ordered) / len(ordered)
        assert share >= q - 1e-9


def test_bounds_are_the_textbook_ranks_for_a_median() -> None:
    """n = 10: P(B < 2) = 0.0107 and P(B < 9) = 0.9893, so the 2nd and the 9th value."""
    found = quantile([float(n) for n in range(1, 11)], 0.5)
    assert (found.low, found.high) == (2.0, 9.0)


def test_a_small_sample_has_no_upper_bound_for_a_tail() -> None:
    """0.99³⁶⁸ is the first power below 2.5 %."""
    ordered = [float(n) for n in range(1, 369)]
    assert quantile(ordered, 0.99).high == 368
    assert quantile(ordered[:367], 0.99).high is None
    assert quantile(ordered[:50], 0.99).low is not None
    assert quantile([], 0.5).low is None


@pytest.mark.parametrize(("q", "n"), [(0.5, 40), (0.9, 200), (0.99, 1000)])
def test_the_bounds_hold_the_true_quantile_as_often_as_they_say(q: float, n: int) -> None:
    rng, held = Random(11), 0
    for _ in range(400):
        found = quantile(sorted(rng.random() for _ in range(n)), q)
        held += (found.low or 0) <= q <= (1 if found.high is None else found.high)
    assert 0.93 <= held / 400 <= 1.0


@pytest.mark.parametrize("q", [0.5, 0.9, 0.99])
def test_exact_and_approximate_ranks_meet(q: float) -> None:
    n = math.floor(EXACT_AT_MOST / min(q, 1 - q))
    exact = quantile([float(k) for k in range(1, n + 1)], q)
    more = math.ceil(n * 1.01)
    near = quantile([float(k) for k in range(1, more + 1)], q)
    assert exact.low is not None
    assert exact.high is not None
    assert near.low is not None
    assert near.high is not None
    spread = math.sqrt(n * q * (1 - q))
    assert abs((exact.low - n * q) - (near.low - more * q)) < 0.1 * spread
    assert abs((exact.high - n * q) - (near.high - more * q)) < 0.1 * spread
