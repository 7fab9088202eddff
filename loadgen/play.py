"""Playing a load: each request at its intended time, or whenever a client is free.

One trio task a unit (a request, or a session with its turns and retries), times from whoever
records it. Every scheduled request ends in exactly one `Played`: what was not sent because of a
limit of ours is dropped, what an interruption took is cancelled or, where it was under way, left.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Protocol

import trio

from conformance.script import Exchange
from loadgen.ahead import Ahead
from loadgen.collecting import EVERY, set_aside, short_collections
from loadgen.courses import Course, Single, Step
from loadgen.lines import Line, Pool, Records, can_send_at_once
from loadgen.load import Closed, Limits, Open
from loadgen.outcome import Fate
from loadgen.played import Played

LEAD = 0.05  # seconds between the call and the start of the load
TICK = 0.02  # seconds between two looks at how late the timer wakes, in a short load
LOOKS = 400  # are enough for a p99
TOGETHER = 16  # requests that are begun in a row
SPARE = 0.0005  # seconds before a send in which nothing else is begun


@dataclass(slots=True)
class Offered:
    """What came of it; times on the recorder's clock. `end`: when the schedule was over."""

    start: float = 0.0
    end: float = 0.0
    complete: bool = True
    lags: list[float] = field(default_factory=list)


Script = Callable[[int], Exchange]
Take = Callable[[Played], None]
Sleep = Callable[[float], Awaitable[object]]


class Playing(Protocol):
    """A load under way, whoever plays it."""

    @property
    def sent(self) -> int: ...
    @property
    def in_flight(self) -> int: ...
    def interrupt(self) -> None: ...


class Player:
    """One load on one recorder. `script` makes request number i; `take` gets what became of it.

    `sleep` waits for the moments of the schedule, and for nothing else; `watch` in the same way for
    those at which is looked how late a timer wakes. `own`: does request i have
    a connection of its own, closed after its answer? `course`: in place of these two, where a
    request may be followed by another; the load's indices are then those of units.
    """

    def __init__(
        self,
        recorder: Records,
        script: Script,
        take: Take,
        limits: Limits | None = None,
        sleep: Sleep = trio.sleep,
        watch: Sleep = trio.sleep,
        own: Callable[[int], bool] = lambda index: False,
        course: Course | None = None,
    ) -> None:
        self._recorder = recorder
        self._course = course or Single(script, own)
        self._take = take
        self._limits = limits or Limits()
        self._sleep, self._watch = sleep, watch
        self._sent = 0
        self._in_flight = 0
        self._pool = Pool(recorder)
        self._scope = trio.CancelScope()
        self._last: float | None = None  # when the newest request was taken up
        self.offered = Offered()

    @property
    def sent(self) -> int:
        return self._sent

    @property
    def in_flight(self) -> int:
        """Requests that were sent and have not ended."""
        return self._in_flight

    def interrupt(self) -> None:
        """Send nothing more and leave what is under way."""
        self.offered.complete = False
        self._scope.cancel()

    async def play(self, load: Open | Closed, start: float | None = None) -> Offered:
        """Returns when every request has ended: by itself, by its clocks or by `interrupt`.

        `start`: on the recorder's clock; None: soon.
        """
        offered = self.offered
        offered.start = offered.end = self._recorder.now() + LEAD if start is None else start
        async with self._pool.open():
            with self._scope, short_collections():
                async with trio.open_nursery() as watching:
                    watching.start_soon(self._watch_timer, tick(load.seconds))
                    if isinstance(load, Open):
                        await self._open(load)
                    else:
                        await self._closed(load)
                    watching.cancel_scope.cancel()
        return offered

    # -- open loop -------------------------------------------------------------------------------

    async def _open(self, load: Open) -> None:
        start, due, wanted, together = self.offered.start, 0, load.numbered, 0
        self.offered.end = start + load.seconds
        ahead = Ahead(self._course.first, [unit for unit, _ in wanted], self._recorder.now)
        try:
            async with trio.open_nursery() as nursery:
                ahead.fill(start - SPARE)
                for unit, offset in wanted:
                    step = ahead.next()
                    together = await self._due(start + offset, ahead, together)
                    due += 1
                    self._begin(nursery, unit, start + offset, step)
                await self._until(self.offered.end)
        finally:
            if due < len(wanted):
                self.offered.end = self._recorder.now()
            elif load.counted and self._last is not None:
                self.offered.end = max(self.offered.end, self._last)
            for unit, offset in wanted[due:]:
                self._never(unit, start + offset, Fate.CANCELLED)

    def _begin(self, nursery: trio.Nursery, unit: int, intended: float, step: Step) -> None:
        if unit >= self._limits.index or self._is_full:
            self._never(unit, intended, Fate.DROPPED)
            return
        self._take_up(intended)
        started = self._recorder.now()
        line = None if step.own else self._pool.ready()
        if can_send_at_once(line):
            line.begin(step.script)
        nursery.start_soon(self._unit, unit, intended, step, (started, line))

    @property
    def _is_full(self) -> bool:
        limits = self._limits
        return self._sent >= limits.requests or self._in_flight >= limits.in_flight

    def _take_up(self, moment: float) -> None:
        self._last = moment
        self._sent += 1
        self._in_flight += 1

    def _never(self, unit: int, intended: float, fate: Fate) -> None:
        """Nothing of the unit was sent."""
        for index in self._course.never(unit):
            self._take(Played(index, intended, unsent=fate))

    async def _due(self, moment: float, ahead: Ahead, together: int) -> int:
        """What is due already is begun at once, up to TOGETHER in a row, before anybody else has a
        turn: how many by now. Else what was begun goes out first, and then there is time.
        """
        now = self._recorder.now()
        if now >= moment and together < TOGETHER:
            return together + 1
        if now < moment - SPARE:
            await trio.lowlevel.checkpoint()
            ahead.one_more(moment - SPARE)
        await self._until(moment)
        return 0

    async def _until(self, moment: float) -> None:
        """Absolute, so that nothing drifts."""
        await self._sleep(max(0.0, moment - self._recorder.now()))

    # -- closed loop -----------------------------------------------------------------------------

    async def _closed(self, load: Closed) -> None:
        await self._until(self.offered.start)
        begun, most = 0, min(load.most, self._limits.requests, load.below(self._limits.index))
        seconds = math.inf if load.seconds is None else load.seconds

        async def client() -> None:
            nonlocal begun
            while begun < most:
                now = self._recorder.now()
                if now >= self.offered.start + seconds:
                    return
                if self._sent >= self._limits.requests:
                    return
                unit, begun = load.index(begun), begun + 1
                self._take_up(now)
                await self._unit(unit, now, self._course.first(unit))

        try:
            async with trio.open_nursery() as nursery:
                for _ in range(int(min(load.clients, self._limits.in_flight, load.most))):
                    nursery.start_soon(client)
        finally:
            self._close_books(load, begun, most)

    def _close_books(self, load: Closed, begun: int, most: float) -> None:
        now, last = self._recorder.now(), self._last
        interrupted = not self.offered.complete
        if interrupted or load.seconds is None:
            self.offered.end = now if interrupted or last is None else last
        else:
            self.offered.end = self.offered.start + load.seconds
        fate = Fate.CANCELLED if interrupted else Fate.DROPPED
        over = begun >= most or self._sent >= self._limits.requests
        for number in range(begun, load.requests or 0) if over or interrupted else ():
            self._never(load.index(number), self.offered.end, fate)

    # -- one unit --------------------------------------------------------------------------------

    async def _unit(
        self,
        unit: int,
        intended: float,
        first: Step,
        begun: tuple[float, Line | None] | None = None,
    ) -> None:
        """Its requests, each after the one before; the first is taken up already.

        `begun`: when it was, and on which connection.
        """
        step, wanted, fate = first, None, None
        try:
            while True:
                played = await self._one(step, intended, wanted, begun)
                begun = None
                then = self._course.then(unit, played)
                if then is None:
                    return
                wanted = (intended if wanted is None else wanted) if then.again else None
                intended, step = self._after(played) + then.after, then
                if not await self._comes(step, intended, wanted):
                    fate = Fate.DROPPED
                    return
        finally:
            for index, own in self._course.rest(unit, fate):
                self._take(Played(index, self._recorder.now(), unsent=own))

    async def _comes(self, step: Step, intended: float, wanted: float | None) -> bool:
        """Waits for its moment; False: a limit of ours does not let it go."""
        unsent: Fate | None = Fate.CANCELLED
        try:
            # Not by `sleep`: that one waits for one at a time.
            await trio.sleep(max(0.0, intended - self._recorder.now()))
            unsent = Fate.DROPPED if self._is_full else None
        finally:
            if unsent is not None:
                self._take(Played(step.index, intended, unsent=unsent, wanted=wanted))
        if unsent is None:
            self._take_up(intended)
        return unsent is None

    def _after(self, played: Played) -> float:
        ended = None if played.capture is None else played.capture.end.at
        return self._recorder.now() if ended is None else ended

    async def _one(
        self,
        step: Step,
        intended: float,
        wanted: float | None,
        begun: tuple[float, Line | None] | None,
    ) -> Played:
        started, line = begun or (self._recorder.now(), None)
        capture = None
        try:
            if line is None and not step.own:
                line = self._pool.ready()
            connection = line or await self._pool.new()
            capture = await connection.exchange(step.script)
            if step.own:
                connection.close()
            else:
                self._pool.give(connection)
        finally:
            self._in_flight -= 1
            played = Played(step.index, intended, started, capture, wanted=wanted)
            self._take(played)
        return played

    async def _watch_timer(self, every: float) -> None:
        """How late the timer wakes is how late everything else here can be."""
        await self._watch(max(0.0, self.offered.start - self._recorder.now()))
        due = aside = self._recorder.now()
        while True:
            if due >= aside:
                set_aside()
                aside = due + EVERY
            due = max(due + every, self._recorder.now())
            await self._watch(max(0.0, due - self._recorder.now()))
            self.offered.lags.append(max(0.0, self._recorder.now() - due))


def tick(seconds: float | None) -> float:
    """Seconds between two looks at the timer, in a load that lasts so long."""
    return TICK if seconds is None else min(EVERY, max(TICK, seconds / LOOKS))
