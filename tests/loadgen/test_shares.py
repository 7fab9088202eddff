"""A load that is divided is the same load: every unit once, every limit kept."""

from __future__ import annotations

import math

import pytest

from conformance.errors import UsageError
from loadgen.load import Closed, Limits, Open
from loadgen.shares import limits_of, scheduled, shares

WORKERS = (1, 2, 3, 7, 40)


@pytest.mark.parametrize("workers", WORKERS)
def test_every_unit_of_an_open_load_is_in_one_share_at_its_own_time(workers: int) -> None:
    load = Open(tuple(n * n / 10 for n in range(29)), 90.0)
    found = shares(load, workers)
    assert sorted(each for share in found for each in _numbered(share)) == load.numbered
    for worker, share in enumerate(found):
        assert {unit % workers for unit, _ in _numbered(share)} <= {worker}
        assert share.seconds == 90.0


def _numbered(share: Open | Closed) -> list[tuple[int, float]]:
    assert isinstance(share, Open)
    return share.numbered


@pytest.mark.parametrize("workers", WORKERS)
def test_every_request_of_a_closed_load_is_in_one_share_and_every_client_too(workers: int) -> None:
    found = [each for each in shares(Closed(40, 113), workers) if isinstance(each, Closed)]
    units = [share.index(n) for share in found for n in range(share.requests or 0)]
    assert sorted(units) == list(range(113))
    assert sum(share.clients for share in found) == 40
    assert min(share.clients for share in found) >= 40 // workers
    assert sum(scheduled(share) or 0 for share in found) == 113


def test_a_load_that_time_ends_has_shares_that_time_ends() -> None:
    first, second = shares(Closed(5, seconds=9.0), 2)
    assert (scheduled(first), scheduled(second), first.seconds) == (None, None, 9.0)
    assert isinstance(second, Closed)
    assert [second.index(n) for n in range(3)] == [1, 3, 5]


def test_a_worker_without_a_client_is_refused() -> None:
    with pytest.raises(UsageError, match="--workers 3: more than the 2 clients"):
        shares(Closed(2, 10), 3)


@pytest.mark.parametrize("workers", WORKERS)
@pytest.mark.parametrize("most", [0, 1, 12, 113, 500])
def test_no_more_is_sent_by_all_than_by_one(workers: int, most: int) -> None:
    load, limits = Closed(40, 113), Limits(in_flight=50, requests=most)
    for stride in (1, 4):
        allowed = 0.0
        for worker, share in enumerate(shares(load, workers)):
            own = limits_of(limits, worker, workers, stride)
            assert own.in_flight == 50
            assert isinstance(share, Closed)
            allowed += min(own.requests, share.below(own.index))
        assert allowed == (min(most, allowed) if stride > 1 else most)


def test_a_limit_of_numbers_stays_and_none_stays_none() -> None:
    assert limits_of(Limits(), 0, 2, 4) == Limits()
    assert limits_of(Limits(index=9, requests=20), 1, 2, 1) == Limits(index=9)
    assert math.isinf(limits_of(Limits(requests=20), 1, 2, 1).requests)


@pytest.mark.parametrize("step", [1, 2, 3])
@pytest.mark.parametrize("first", [0, 1, 2])
def test_how_many_of_a_share_lie_below_a_number(first: int, step: int) -> None:
    share = Closed(1, first=first, step=step)
    for index in range(12):
        units = [share.index(n) for n in range(20)]
        assert share.below(index) == sum(unit < index for unit in units)
