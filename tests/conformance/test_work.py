"""The witnesses of work that should have ended, on records made by hand."""

from __future__ import annotations

from itertools import accumulate

import pytest

from conformance import work
from conformance.arrivals import Arrival, gaps, rate, share
from conformance.checks.unharmed import missing
from conformance.dossier import Sample
from conformance.work import Contrast

BOTH = (work.GAUGE, work.COUNTER)


def samples(*rows: tuple[float, float, float]) -> list[Sample]:
    """(time, requests running, tokens generated)"""
    return [Sample(at, {"running": run, "generated_tokens": count}) for at, run, count in rows]


def text(start: float, *spans: tuple[float, float]) -> list[Arrival]:
    """Arrivals from `start` on: each span is (seconds, gap)."""
    steps = [gap for seconds, gap in spans for _ in range(round(seconds / gap))]
    return [Arrival(at, n, n) for n, at in enumerate(accumulate(steps, initial=start))]


QUIET = samples((0.0, 0, 5), (0.1, 0, 5))


def test_the_level_before_is_that_of_the_last_second_and_steady_if_nothing_moved() -> None:
    base = work.baseline([*QUIET, *samples((0.3, 1, 9))], before=0.2)
    assert base is not None
    assert (base.values[work.GAUGE], base.steady) == (0, True)
    moving = work.baseline(samples((0.0, 0, 5), (0.1, 0, 6)), before=0.2)
    assert moving is not None
    assert not moving.steady
    assert work.baseline(QUIET, before=5) is None


def test_a_witness_is_one_only_if_it_showed_the_control() -> None:
    base = work.baseline(QUIET, 0.2)
    assert base is not None
    during = [(0.3 + n / 10, 1.0, 6.0 + n) for n in range(6)]
    after = [(1.2, 0.0, 11.0)]
    assert work.live(samples(*during, *after), base, (0.25, 0.85)) == BOTH
    at_the_end = [(at, run, 5.0) for at, run, _ in during]
    assert work.live(samples(*at_the_end, *after), base, (0.25, 0.85)) == (work.GAUGE,)
    stale = [(1.2, 1.0, 11.0)]
    assert work.live(samples(*during, *stale), base, (0.25, 0.85)) == (work.COUNTER,)


def test_work_has_stopped_once_neither_gauge_nor_counter_shows_any() -> None:
    base = work.baseline(QUIET, 0.2)
    assert base is not None
    found = samples((1.1, 1, 20), (1.2, 1, 30), (1.3, 0, 35), (1.4, 0, 35), (1.5, 0, 35))
    seen = work.activity(found, base, BOTH, [], after=1.0)
    assert [works for _, works in seen] == [True, True, True, False, False]
    assert work.stopped_at(seen) == 1.4


def test_a_gauge_that_lies_is_overruled_by_the_counter() -> None:
    base = work.baseline(QUIET, 0.2)
    assert base is not None
    found = samples(*((1 + n / 10, 0, 20 + n) for n in range(5)))
    assert work.stopped_at(work.activity(found, base, BOTH, [], after=0.9)) is None


def test_beside_another_request_of_ours_the_gauge_has_to_be_higher_by_one() -> None:
    base = work.baseline(QUIET, 0.2)
    assert base is not None
    neighbour = work.Other(sent=1.0, first=1.2, end=2.0)
    rows = samples((1.1, 1, 20), (1.4, 2, 25), (1.6, 1, 30), (2.0, 0, 35), (2.2, 0, 40))
    assert work.activity(rows, base, BOTH, [neighbour], after=0.9) == [
        (1.4, True),
        (1.6, False),
        (2.2, False),
    ]


def test_a_neighbour_that_waits_for_its_turn_does_not_count() -> None:
    """Else the one that runs in its place would be taken for it."""
    base = work.baseline(QUIET, 0.2)
    assert base is not None
    waiting = work.Other(sent=1.0, first=4.0, end=5.0)
    rows = samples((2.0, 1, 20), (3.0, 1, 30), (4.5, 1, 40), (5.5, 0, 45))
    seen = work.activity(rows, base, BOTH, [waiting], after=0.9)
    assert seen == [(4.5, False), (5.5, False)]


def test_what_one_request_adds_to_the_gauge_is_measured() -> None:
    base = work.baseline(QUIET, 0.2)
    assert base is not None
    assert work.each(samples((0.3, 2, 6), (0.4, 2, 7), (0.5, 2, 8)), base, (0.2, 0.6)) == 2


# -- contrast -------------------------------------------------------------------------------------

SHARED = text(0.0, (3.0, 0.02), (2.0, 0.01))


def test_a_neighbour_that_is_faster_alone_is_a_witness() -> None:
    known = work.contrast(SHARED, (0.0, 3.0), (0.0, 0.0))
    assert known is not None
    assert 0.01 < (known.gap or 0) < 0.02


@pytest.mark.parametrize(
    "neighbour",
    [
        text(0.0, (5.0, 0.02)),
        text(0.0, (3.0, 0.02), (2.0, 0.018)),
        text(0.0, (3.0, 0.02)),
        [Arrival(5.0, n, n) for n in range(100)],
        [],
    ],
    ids=["the same", "nearly the same", "gone with it", "at once", "nothing"],
)
def test_a_neighbour_that_felt_nothing_is_none(neighbour: list[Arrival]) -> None:
    assert work.contrast(neighbour, (0.0, 3.0), (0.0, 0.0)) is None


def test_a_neighbour_that_waited_for_its_turn_is_a_witness_unless_all_is_held_back() -> None:
    waited = text(3.0, (2.0, 0.01))
    assert work.contrast(waited, (0.01, 3.0), (0.0, 0.02)) == Contrast(serial=True)
    assert work.contrast(waited, (2.9, 3.0), (0.0, 0.02)) is None


KNOWN = Contrast(gap=0.014)


@pytest.mark.parametrize(
    ("neighbour", "stopped"),
    [
        (text(0.0, (1.0, 0.02), (3.0, 0.01)), True),
        (text(0.0, (4.0, 0.02), (1.0, 0.01)), False),
        (text(0.0, (2.5, 0.02), (1.5, 0.01)), None),
        (text(0.0, (1.0, 0.02)), None),
    ],
    ids=["at once", "never", "somewhere between", "over too soon"],
)
def test_relief_tells_whether_the_work_ended(
    neighbour: list[Arrival], stopped: bool | None
) -> None:
    told = work.relieved(neighbour, KNOWN, left=1.0, natural=4.2)
    assert (None if told is None else told[0]) is stopped


@pytest.mark.parametrize(
    ("first", "stopped"), [(1.2, True), (4.1, False), (2.9, None), (3.2, None), (30.0, None)]
)
def test_a_turn_tells_whether_the_work_ended(first: float, stopped: bool | None) -> None:
    told = work.relieved(text(first, (1.0, 0.01)), Contrast(serial=True), left=1.0, natural=4.2)
    assert (None if told is None else told[0]) is stopped


def test_gaps_and_rates_are_those_of_neighbours() -> None:
    found = text(1.0, (1.0, 0.1))
    assert gaps(found, 1.05, 1.45) == pytest.approx([0.1, 0.1, 0.1])
    assert rate(found) == pytest.approx(10)
    assert rate(found[:1]) is None
    assert share([1, 2, 3, 4], 2.5) == 0.5


# -- texts ----------------------------------------------------------------------------------------

COUNT = ", ".join(map(str, range(1, 60)))


@pytest.mark.parametrize(
    "text",
    [
        COUNT.replace(", 20", ""),
        COUNT.replace(", 20", "").replace(", 25", ""),
        COUNT.replace("2", "", 1),
    ],
    ids=["a piece", "two pieces", "a digit"],
)
def test_a_text_that_lacks_pieces_is_known_by_its_ends(text: str) -> None:
    assert missing(COUNT, text)


@pytest.mark.parametrize(
    ("whole", "text"),
    [
        (COUNT, COUNT),
        (COUNT, COUNT[:-9]),
        (COUNT, COUNT + ", 60"),
        (COUNT, COUNT.replace("20", "xx")),
        (COUNT, "something else"),
        (COUNT, ""),
        ("1, " * 60, "1, " * 50),
        ("1, " * 60 + "2", "1, " * 50 + "2"),
    ],
    ids=["equal", "cut", "longer", "other", "foreign", "empty", "repeating", "repeating to an end"],
)
def test_a_text_that_merely_differs_lacks_nothing(whole: str, text: str) -> None:
    assert missing(whole, text) is None
