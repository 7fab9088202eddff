"""Arrivals have the rate and the scatter they name, come again with their seed, and never drift."""

from __future__ import annotations

import math
import statistics
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conformance.errors import UsageError
from loadgen.arrivals import (
    CONSTANT,
    POISSON,
    Process,
    Stage,
    for_requests,
    offsets,
    parse_process,
    parse_stages,
    schedule,
    steady,
)

RATES = st.floats(0.1, 1000)
PROCESSES = st.sampled_from([CONSTANT, POISSON, Process("gamma", 0.3), Process("gamma", 3.0)])


def test_constant_arrivals_stand_at_multiples_of_the_period_to_the_last_bit() -> None:
    found = schedule(CONSTANT, steady(1000.0, 600.0), seed=1)
    assert len(found) == 600_000
    assert max(abs(at - k / 1000) for k, at in enumerate(found)) < 1e-9


@pytest.mark.parametrize("cv", [0.25, 1.0, 2.5])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_scattered_arrivals_have_the_mean_rate_and_the_cv_they_name(cv: float, seed: int) -> None:
    n, rate = 20_000, 50.0
    process = POISSON if cv == 1.0 else Process("gamma", cv)
    found = for_requests(process, rate, n, seed)
    gaps = [b - a for a, b in pairwise((0.0, *found))]
    mean = statistics.fmean(gaps)
    assert abs(mean * rate - 1) < 4 * cv / math.sqrt(n), seed
    assert abs(statistics.stdev(gaps) / mean / cv - 1) < 0.08, seed


def test_poisson_arrivals_are_not_rescaled_to_a_round_number() -> None:
    counts = [len(schedule(POISSON, steady(10.0, 100.0), seed)) for seed in range(200)]
    assert abs(statistics.fmean(counts) - 1000) < 4 * math.sqrt(1000 / 200)
    assert 0.8 < statistics.variance(counts) / 1000 < 1.25


@given(PROCESSES, RATES, st.integers(0, 2**40))
def test_offsets_ascend_stay_inside_and_come_again_with_the_seed(
    process: Process, rate: float, seed: int
) -> None:
    stages = (Stage(0, rate, 3.0), Stage(rate, rate / 2, 2.0))
    found = tuple(offsets(process, stages, seed))
    assert found == tuple(offsets(process, stages, seed))
    assert all(0 <= a <= b <= 5.0 for a, b in pairwise(found))


@given(RATES, RATES, st.floats(0.01, 1000), st.floats(0, 1))
def test_the_time_at_which_an_area_is_reached_gives_that_area_back(
    first: float, last: float, seconds: float, share: float
) -> None:
    stage = Stage(first, last, seconds)
    area = share * stage.area
    t = stage.reached(area)
    again = first * t + (last - first) / seconds * t * t / 2
    assert math.isclose(again, area, rel_tol=1e-6, abs_tol=1e-6)


def test_a_ramp_from_nothing_has_the_square_root_form() -> None:
    found = schedule(CONSTANT, (Stage(0, 10, 10),), seed=1)  # area t²/2
    assert found == pytest.approx([math.sqrt(2 * k) for k in range(50)])


def test_stages_follow_each_other_and_a_pause_is_a_pause() -> None:
    found = schedule(CONSTANT, parse_stages("2:5,0:10,4:5"), seed=1)
    assert found[:10] == pytest.approx([k / 2 for k in range(10)])
    assert found[10:] == pytest.approx([15 + k / 4 for k in range(20)])


def test_the_same_seed_gives_a_longer_run_the_same_beginning() -> None:
    short = schedule(POISSON, steady(20.0, 10.0), seed=9)
    long = schedule(POISSON, steady(20.0, 30.0), seed=9)
    assert long[: len(short)] == short
    assert schedule(POISSON, steady(20.0, 30.0), seed=10) != long


def test_the_number_of_requests_can_be_capped() -> None:
    assert len(schedule(POISSON, steady(20.0, 30.0), seed=9, most=7)) == 7


def test_specs_are_read_as_written() -> None:
    assert parse_process("gamma:0.5") == Process("gamma", 0.5)
    assert parse_process("poisson") is POISSON
    assert parse_stages("5:30, 5..20:60") == (Stage(5, 5, 30), Stage(5, 20, 60))


@pytest.mark.parametrize("text", ["", "gamma", "gamma:0", "gamma:nan", "uniform", "poisson:2"])
def test_another_process_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(UsageError, match="expected constant, poisson or gamma:CV"):
        parse_process(text)


@pytest.mark.parametrize("text", ["", "5", "5:0", "5..:3", "-1:3", "5:3,", "1e9:3", "9999999:3"])
def test_other_stages_are_refused_in_one_line(text: str) -> None:
    with pytest.raises(UsageError, match=r"^--stages .*expected"):
        parse_stages(text)


def test_a_load_of_nothing_and_a_load_without_end_are_refused() -> None:
    with pytest.raises(UsageError, match="no request would be sent"):
        schedule(CONSTANT, (Stage(0, 0, 5),), seed=1)
    with pytest.raises(UsageError, match="at most"):
        for_requests(CONSTANT, 1.0, 10**8, seed=1)
