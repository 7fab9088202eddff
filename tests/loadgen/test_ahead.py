"""Sends are prepared while there is time, in order and within bounds; no collection is long."""

from __future__ import annotations

import gc

import trio

from conformance.script import Bounds, Clocks, Exchange
from loadgen.ahead import BYTES, STEPS, Ahead
from loadgen.courses import Step
from tests.loadgen.playing import against


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

    async def looks(scope: trio.CancelScope) -> None:
        for _ in range(3):
            await trio.sleep(1.05)
            seen.append(gc.get_freeze_count())

    against(lambda asked: None, "--rate", "10", "--duration", "4", meanwhile=looks)
    assert 0 < seen[0] < seen[1] < seen[2]
    assert gc.get_freeze_count() == 0
