"""How long the reader rests: streams on paper, a reader on paper, and what it would have seen."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest

from loadgen.fast.pause import APART, LEAST, MOST, PART, UNTOLD, Pause

Gap = Callable[[random.Random], float]
WAKE = 30e-6  # seconds that a wake-up takes, whatever it brings
READ = 10e-6


@dataclass
class Seen:
    """`alone`: events that a read brought alone; `pauses`: every pause that was made."""

    events: int = 0
    alone: int = 0
    looks: int = 0
    pauses: list[float] = field(default_factory=list)


def arrivals(streams: int, gap: Gap, seconds: float, seed: int) -> Iterator[tuple[float, int]]:
    """(when, stream), in order."""
    draw = random.Random(seed)
    due = [(draw.random() * gap(draw), number) for number in range(streams)]
    heapq.heapify(due)
    while due[0][0] < seconds:
        at, number = due[0]
        yield at, number
        heapq.heapreplace(due, (at + gap(draw), number))


def read(pause: Pause, events: list[tuple[float, int]]) -> Seen:
    """What the engine does with the pause, on a clock of its own."""
    seen = Seen(events=len(events))
    last: dict[int, float] = {}
    now, index = 0.0, 0
    while index < len(events):
        now = max(now, events[index][0]) if not seen.pauses or not seen.pauses[-1] else now
        now += WAKE
        brought: dict[int, list[float]] = {}
        while index < len(events) and events[index][0] <= now:
            brought.setdefault(events[index][1], []).append(events[index][0])
            index += 1
        for number, times in brought.items():
            now += READ
            seen.alone += len(times) == 1
            gap = times[-1] - last.get(number, -1.0)
            if APART < gap < pause.near:
                pause.tell(gap)
            last[number] = times[-1]
        seen.looks += 1
        seen.pauses.append(pause.after(now, len(brought)))
        now += seen.pauses[-1]
    return seen


def used_to(seconds: float) -> Pause:
    """One that knows that answers last so long."""
    pause = Pause()
    pause.ended(reads=100, seconds=seconds)
    return pause


def seen(streams: int, gap: Gap, seconds: float = 3.0) -> Seen:
    return read(used_to(9.0), list(arrivals(streams, gap, seconds, seed=7)))


def steady(seconds: float) -> Gap:
    return lambda draw: seconds


def jittered(seconds: float) -> Gap:
    return lambda draw: seconds * draw.uniform(0.7, 1.3)


def poisson(seconds: float) -> Gap:
    return lambda draw: draw.expovariate(1 / seconds)


@pytest.mark.parametrize("gap", [steady(0.02), jittered(0.02), poisson(0.02)])
def test_events_20_ms_apart_are_read_alone(gap: Gap) -> None:
    found = seen(64, gap)
    assert found.alone >= 0.95 * found.events


@pytest.mark.parametrize("milliseconds", [1, 2, 3])
def test_events_1_to_3_ms_apart_are_read_alone_too(milliseconds: int) -> None:
    found = seen(8, jittered(milliseconds / 1000))
    assert found.alone >= 0.95 * found.events
    assert max(found.pauses) < milliseconds / 1000


def test_one_wake_up_serves_several_of_many_streams() -> None:
    found = seen(64, steady(0.02))
    assert found.looks <= found.events / 4
    assert found.pauses[-1] == pytest.approx(MOST)


def test_nobody_pauses_for_a_lone_stream() -> None:
    found = seen(1, steady(0.02), seconds=30.0)
    assert set(found.pauses) == {0.0}
    assert found.looks == found.events


def test_events_that_come_closer_shorten_the_pause_at_once() -> None:
    calm = list(arrivals(64, steady(0.02), 3.0, seed=7))
    quick = [(at + 3.0, number) for at, number in arrivals(64, steady(0.0015), 0.5, seed=8)]
    pause = used_to(9.0)
    read(pause, calm)
    assert pause.seconds == pytest.approx(MOST)
    found = read(pause, quick)
    assert pause.seconds <= 0.0015 / 2
    assert found.alone >= 0.90 * found.events


def test_while_no_answer_has_ended_a_pause_is_no_longer_than_that() -> None:
    found = read(Pause(), list(arrivals(64, steady(0.02), 3.0, seed=7)))
    assert max(found.pauses) == pytest.approx(UNTOLD)


def test_the_end_of_a_short_answer_is_not_seen_much_later_for_a_pause() -> None:
    calm = list(arrivals(64, steady(0.02), 3.0, seed=7))
    pause = used_to(9.0)
    read(pause, calm)
    assert pause.seconds == pytest.approx(MOST)
    for _ in range(300):
        pause.ended(reads=50, seconds=1.0)
    assert pause.seconds == pytest.approx(PART * 1.0, rel=0.01)
    assert max(read(pause, calm).pauses) == pytest.approx(PART * 1.0, rel=0.01)


def test_no_pause_is_longer_than_the_bound_or_shorter_than_worth_it() -> None:
    for milliseconds in (0.3, 0.7, 5.0, 50.0):
        pauses = set(seen(32, poisson(milliseconds / 1000), seconds=1.0).pauses) - {0.0}
        assert all(LEAST <= pause <= MOST for pause in pauses)


def test_what_a_server_writes_at_one_go_does_not_keep_the_reader_awake() -> None:
    """Three events at the end of an answer come at once, and nobody could read them apart."""
    pause = used_to(9.0)
    events = list(arrivals(64, steady(0.02), 3.0, seed=7))
    tripled = sorted((at + APART * n / 8, number) for at, number in events for n in range(3))
    read(pause, tripled)
    assert pause.seconds == pytest.approx(MOST)


def test_a_clock_that_stands_still_is_no_infinite_rate() -> None:
    pause = used_to(9.0)
    assert pause.after(5.0, 3) == 0.0
    assert pause.after(5.0, 3) == 0.0
