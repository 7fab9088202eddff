"""The search is arithmetic: it finds a known capacity, bears noise, says what it cannot tell."""

from __future__ import annotations

import math
from collections.abc import Callable
from random import Random

import pytest

from loadgen.knee import LEAST_RATE, Outcome, Search, Trial, is_saturated


def searched(outcome: Callable[[float], Outcome], **changes: float) -> Search:
    search = Search(changes.get("start", 1.0), changes.get("most", 1e4), 0.04)
    for _ in range(500):
        if search.rate is None:
            return search
        search.tell(Trial(search.rate, outcome(search.rate), "ttft"))
    raise AssertionError("the search does not end")


def up_to(capacity: float) -> Callable[[float], Outcome]:
    return lambda rate: Outcome.MET if rate <= capacity else Outcome.MISSED


@pytest.mark.parametrize("capacity", [0.02, 0.3, 0.99, 1.0, 7.3, 8.0, 41.7, 9000.0])
def test_a_sharp_capacity_is_found_within_the_resolution(capacity: float) -> None:
    search = searched(up_to(capacity))
    assert search.met is not None
    assert search.missed is not None
    assert search.met <= capacity <= search.missed <= search.met * 1.0401
    assert len(search.told) <= 2 * (math.ceil(abs(math.log2(capacity))) + 8)


def test_nothing_above_the_bound_is_tried() -> None:
    search = searched(up_to(1e9), most=50.0)
    assert (search.met, search.missed) == (50.0, None)
    assert max(trial.rate for trial in search.told) == 50.0


def test_a_server_that_meets_no_rate_is_given_up() -> None:
    search = searched(lambda rate: Outcome.MISSED)
    assert search.met is None
    assert search.missed is not None
    assert LEAST_RATE <= search.missed < 2 * LEAST_RATE
    assert search.why == ("ttft",)


def test_two_of_three_trials_decide_and_a_saturated_one_alone() -> None:
    search = Search(1.0, 1e4, 0.04)
    search.tell(Trial(1.0, Outcome.MISSED))
    search.tell(Trial(1.0, Outcome.MET))
    assert search.rate == 1.0
    search.tell(Trial(1.0, Outcome.MET))
    assert (search.met, search.rate) == (1.0, 2.0)
    search.tell(Trial(2.0, Outcome.SATURATED))
    assert (search.missed, search.disagreed) == (2.0, (1.0,))


def test_what_cannot_be_told_ends_the_search() -> None:
    search = searched(lambda rate: Outcome.MET if rate < 5 else Outcome.UNTOLD)
    assert search.untold == Trial(8.0, Outcome.UNTOLD, "ttft")
    assert search.met == 4.0


def test_trials_that_err_now_and_then_move_the_knee_little() -> None:
    """Near the capacity a trial errs with a chance that falls with the distance."""
    for seed in range(20):
        rng = Random(seed)

        def noisy(rate: float, rng: Random = rng) -> Outcome:
            chance = 1 / (1 + math.exp((rate - 10) / 0.15))
            return Outcome.MET if rng.random() < chance else Outcome.MISSED

        search = searched(noisy)
        assert search.met is not None
        assert search.met == pytest.approx(10, rel=0.07), seed


@pytest.mark.parametrize(
    ("in_flight", "saturated"),
    [
        (range(0, 60, 2), True),
        ([20] * 30, False),
        ([*range(30), *[30] * 30], False),
        (range(15), False),
        (range(0, 110, 10), False),
        ([*range(0, 90, 3), *range(90, 0, -3)], False),
    ],
)
def test_only_what_keeps_growing_is_saturated(in_flight: list[int], saturated: bool) -> None:
    assert is_saturated(list(in_flight)) is saturated
