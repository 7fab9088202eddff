"""A run is valid, or says why not; each reason on its own."""

from __future__ import annotations

from random import Random

import pytest

from loadgen.measure import Row
from loadgen.outcome import Fate
from loadgen.slo import Judged, Met, parse_slo
from loadgen.trust import REASONS, doubts, mann_whitney
from tests.loadgen.rows import failed, row, unsent

RNG = Random(5)
CLEAN = [row(n, n / 10, ttft=0.1 + RNG.random() / 100, late=0.0002) for n in range(200)]


def reasons(
    rows: list[Row], lags: tuple[float, ...] = (), *judged: Judged, steady: bool = True
) -> list[str]:
    found = doubts(rows, lags, judged, steady=steady)
    assert {doubt.reason for doubt in found} <= set(REASONS)
    return [doubt.reason for doubt in found]


def test_a_clean_run_is_valid() -> None:
    assert reasons(CLEAN, (0.001,) * 500) == []


def test_a_client_whose_timer_wakes_late_is_the_limit() -> None:
    assert reasons(CLEAN, (0.001,) * 98 + (0.011,) * 2) == ["client_limited"]
    assert reasons(CLEAN, (0.001,) * 99 + (0.5,)) == []
    assert reasons(CLEAN, (0.02,) * 3) == ["client_limited"]


def test_a_slower_server_allows_more_lag() -> None:
    slow = [row(n, n / 10, ttft=1.0) for n in range(200)]
    assert reasons(slow, (0.04,) * 200) == []
    assert reasons(slow, (0.06,) * 200) == ["client_limited"]


def test_dropped_requests_are_the_clients_limit_and_a_rate_that_was_not_achieved() -> None:
    assert reasons([*CLEAN, unsent(200, 20.0)]) == ["client_limited", "rate_not_achieved"]


def test_late_sends_are_named() -> None:
    rows = [
        *CLEAN[:190],
        *(row(n, n / 10, ttft=0.1, late=0.05) for n in range(190, 199)),
        CLEAN[-1],
    ]
    assert reasons(rows) == ["schedule_late"]


def test_a_schedule_that_stretches_has_not_achieved_its_rate() -> None:
    rows = [row(n, n / 10, ttft=10.0, late=n / 500) for n in range(200)]
    assert reasons(rows, steady=False) == ["rate_not_achieved"]


def test_an_objective_that_the_sample_cannot_tell_makes_too_few_samples() -> None:
    slo = parse_slo("ttft:p99<1s")
    assert reasons(CLEAN, (), Judged(slo, Met.UNDECIDED, None, 50)) == ["too_few_samples"]
    assert reasons(CLEAN, (), Judged(slo, Met.NO, 2.0, 200)) == []


def test_no_request_in_the_window_is_no_run() -> None:
    assert reasons([]) == ["too_few_samples"]


def test_a_ttft_that_grows_over_the_window_is_not_steady_unless_the_load_changes() -> None:
    rows = [row(n, n / 10, ttft=0.1 + n / 200) for n in range(200)]
    assert reasons(rows) == ["not_steady"]
    assert reasons(rows, steady=False) == []


def test_noise_is_steady() -> None:
    alarms = 0
    for seed in range(200):
        rng = Random(seed)
        rows = [row(n, n / 10, ttft=rng.lognormvariate(-2, 1)) for n in range(60)]
        alarms += reasons(rows) != []
    assert alarms <= 2


def test_the_rank_test_has_its_textbook_value() -> None:
    """U = 25 of 25, mean 12.5, variance 25·11/12."""
    assert mann_whitney([1, 2, 3, 4, 5], [6, 7, 8, 9, 10]) == pytest.approx(
        12.5 / (25 * 11 / 12) ** 0.5
    )
    assert mann_whitney([1, 1, 1], [1, 1]) == 0.0
    assert mann_whitney([1, 2, 2], [2, 3]) == pytest.approx(-mann_whitney([2, 3], [1, 2, 2]))


@pytest.mark.parametrize("counted", [65, 4])
def test_usage_that_cannot_be_is_a_mismatch(counted: int) -> None:
    odd = (row(n, n / 10, ttft=0.1, completion_tokens=counted) for n in range(195, 200))
    rows = [*CLEAN[:195], *odd]
    assert reasons(rows) == ["token_mismatch"]
    assert reasons(rows[:197]) == ["token_mismatch"]
    assert reasons(rows[:196]) == []


def test_usage_that_is_missing_is_no_mismatch() -> None:
    assert reasons([row(n, n / 10, ttft=0.1, completion_tokens=None) for n in range(50)]) == []


def test_a_run_of_failures_has_no_doubt_of_its_own() -> None:
    rows = [failed(n, n / 10, Fate.REFUSED) for n in range(200)]
    assert reasons(rows) == []
