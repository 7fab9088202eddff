"""Sends are prepared while there is time, in order and within bounds; no collection is long."""

from __future__ import annotations

import gc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio

from conformance.capture import Capture
from conformance.script import Bounds, Clocks, Exchange
from loadgen.ahead import BYTES, STEPS, Ahead
from loadgen.collecting import EVERY, SELDOM
from loadgen.courses import Step
from loadgen.load import Open
from loadgen.play import LOOKS, TICK, Player, tick
from loadgen.played import Played
from tests.loadgen.playing import against, virtually


def step(index: int, size: int = 10) -> Step:
    return Step(index, Exchange((b"x" * size,), clocks=Clocks(), bounds=Bounds()))


class Making:
    """Takes a second of its own clock for each step."""

    def __init__(self, size: int = 10) -> None:
        self.now, self.made, self.size = 0.0, 0, size

    def __call__(self, index: int) -> Step:
        self.now += 1.0
        self.made += 1
        return step(index, self.size)

    def ahead(self, units: int) -> Ahead:
        return Ahead(self, range(units), lambda: self.now)


def test_steps_come_in_order_whether_or_not_they_were_made_before() -> None:
    for until in (0.0, 3.0, 1e9):
        making = Making()
        ahead = making.ahead(200)
        ahead.fill(until)
        for index in range(200):
            assert ahead.next().index == index
            ahead.one_more(until)
        assert making.made == 200


def test_none_is_begun_after_the_moment_and_one_at_a_time_before_it() -> None:
    making = Making()
    ahead = making.ahead(200)
    ahead.fill(5.0)
    assert making.made == 5
    ahead.one_more(making.now)
    assert making.made == 5
    ahead.one_more(making.now + 10)
    assert making.made == 6


def test_what_waits_is_bounded_by_number_and_by_size() -> None:
    making = Making()
    making.ahead(1000).fill(1e9)
    assert making.made == STEPS
    large = Making(size=BYTES // 4)
    ahead = large.ahead(1000)
    ahead.fill(1e9)
    assert large.made == 4
    for _ in range(20):
        ahead.next()
        ahead.one_more(1e9)
    assert large.made == 24


def test_what_is_old_is_set_aside_while_a_load_is_played_and_no_longer() -> None:
    seen: list[int] = []
    thresholds: set[tuple[int, int, int]] = set()

    async def looks(scope: trio.CancelScope) -> None:
        for _ in range(3):
            await trio.sleep(1.05)
            seen.append(gc.get_freeze_count())
            thresholds.add(gc.get_threshold())

    before = gc.get_threshold()
    against(lambda asked: None, "--rate", "10", "--duration", "4", meanwhile=looks)
    assert 0 < seen[0] < seen[1] < seen[2]
    assert gc.get_freeze_count() == 0
    assert thresholds == {(SELDOM, *before[1:])}
    assert gc.get_threshold() == before


def test_a_long_load_is_looked_at_seldom_but_never_too_seldom_for_a_p99() -> None:
    assert tick(None) == tick(1.0) == TICK
    assert tick(LOOKS * 0.05) == 0.05
    assert tick(1e6) == EVERY
    assert all(seconds / tick(seconds) >= 100 for seconds in (2.0, 5.0, 16.0, 3600.0))


class Logging:
    """A connection that can send at once, and says when anybody does what with it."""

    usable = is_quiet = True

    def __init__(self, log: list[str]) -> None:
        self.log = log

    def begin(self, script: Exchange) -> None:
        self.log.append("sent")

    async def exchange(self, script: Exchange) -> Capture:
        self.log.append("recorded")
        await trio.sleep(0.5)
        return Capture(b"")

    def close(self) -> None:
        raise AssertionError("it is usable")


class LoggingRecorder:
    def __init__(self) -> None:
        self.log: list[str] = []

    def now(self) -> float:
        return trio.current_time()

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Logging]:
        yield Logging(self.log)


def test_what_is_due_at_once_is_sent_before_anybody_else_has_a_turn() -> None:
    """The first three make connections, the next three have them."""
    recorder = LoggingRecorder()
    played: list[Played] = []

    async def main() -> None:
        player = Player(recorder, lambda index: step(index).script, played.append)
        await player.play(Open((0.0, 0.0, 0.0, 1.0, 1.0, 1.0), 2.0))

    virtually(main)
    assert recorder.log == ["recorded"] * 3 + ["sent"] * 3 + ["recorded"] * 3
    assert sorted(each.index for each in played) == list(range(6))
    assert all(each.started == each.intended for each in played)
