"""What follows each request of a unit: a retry, the next turn of its session, or nothing more.

A unit is played in order: nothing of it is sent before what came before has ended. An answer is
read here only where a later turn repeats it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from conformance.capture import How
from conformance.reading import read
from conformance.script import Exchange
from loadgen.outcome import SUCCESSES, Fate, fate_of
from loadgen.played import Played
from loadgen.workload import Ask, Workload


@dataclass(frozen=True, slots=True)
class Step:
    """One request to be sent, `after` seconds after the one before has ended.

    `own`: on a connection of its own, closed after the answer. `again`: it is a retry.
    """

    index: int
    script: Exchange
    own: bool = False
    after: float = 0.0
    again: bool = False


class Course(Protocol):
    """The requests of a load, unit by unit. Units are told by their number."""

    def first(self, unit: int) -> Step: ...

    def then(self, unit: int, played: Played) -> Step | None:
        """None: the unit is over."""

    def rest(self, unit: int, fate: Fate | None = None) -> Sequence[tuple[int, Fate]]:
        """Of a unit that was begun, at its end: indices that are not sent, and what became of them.

        `fate`: where something else than the unit itself ended it.
        """

    def never(self, unit: int) -> Sequence[int]:
        """The indices of a unit of which nothing is sent."""


class Single:
    """Every unit is one request of the same number."""

    def __init__(self, script: Callable[[int], Exchange], own: Callable[[int], bool]) -> None:
        self._script, self._own = script, own

    def first(self, unit: int) -> Step:
        return Step(unit, self._script(unit), self._own(unit))

    def then(self, unit: int, played: Played) -> Step | None:
        return None

    def rest(self, unit: int, fate: Fate | None = None) -> Sequence[tuple[int, Fate]]:
        return ()

    def never(self, unit: int) -> Sequence[int]:
        return (unit,)


@dataclass(slots=True)
class _Open:
    """A unit under way: the answers so far, and which of its indices have not come yet."""

    ask: Ask
    left: list[int]
    said: list[str]
    fate: Fate = Fate.CANCELLED


class Sessions:
    """Units of a workload with turns or retries. `exchange` puts a request on the wire."""

    def __init__(self, workload: Workload, exchange: Callable[[Ask], Exchange]) -> None:
        self._workload = workload
        self._exchange = exchange
        self._open: dict[int, _Open] = {}

    def first(self, unit: int) -> Step:
        first, *left = self._workload.indices(unit)
        ask = self._workload.ask(first)
        self._open[unit] = _Open(ask, left, [])
        return self._step(ask, 0.0)

    def then(self, unit: int, played: Played) -> Step | None:
        own = self._open[unit]
        if self._gave_up(own.ask, played):
            return self._retry(own)
        if not own.left or played.capture is None:
            return None
        if not self._goes_on(own, played):
            return None
        index = own.left.pop(0)
        own.ask = self._workload.ask(index, own.said)
        return self._step(own.ask, self._workload.think_time(index))

    def rest(self, unit: int, fate: Fate | None = None) -> Sequence[tuple[int, Fate]]:
        own = self._open.pop(unit)
        return [(index, fate or own.fate) for index in own.left]

    def never(self, unit: int) -> Sequence[int]:
        self._open.pop(unit, None)
        return self._workload.indices(unit)

    def _step(self, ask: Ask, after: float) -> Step:
        return Step(ask.index, self._exchange(ask), ask.client.own, after, ask.attempt > 0)

    def _gave_up(self, ask: Ask, played: Played) -> bool:
        """Did a client without patience leave before the first byte, with a try left?"""
        capture = played.capture
        return (
            capture is not None
            and capture.end.how is How.LEFT
            and ask.client.patience is not None
            and not capture.received
            and ask.attempt + 1 < self._workload.attempts
        )

    def _retry(self, own: _Open) -> Step:
        index = own.ask.index + 1
        own.ask = self._workload.ask(index, own.said)
        return self._step(own.ask, self._workload.retry_wait(index))

    def _goes_on(self, own: _Open, played: Played) -> bool:
        """Is there an answer to go on from, and a client who does?"""
        assert played.capture is not None
        reading = read(played.capture, api=self._workload.api)
        fate = fate_of(reading)
        if fate in SUCCESSES:
            own.said.append(reading.text)
            return not own.ask.client.hangs_up
        if fate is not Fate.LEFT:
            own.fate = Fate.UNREACHED
        return False


def course_of(workload: Workload, exchange: Callable[[Ask], Exchange]) -> Course:
    """The plain one where nothing follows anything."""
    if workload.stride > 1:
        return Sessions(workload, exchange)

    def own(index: int) -> bool:
        return workload.clients.of(workload.seed, index).own

    return Single(lambda index: exchange(workload.ask(index)), own)
