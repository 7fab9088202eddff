"""Playing a load: each request at its intended time, or whenever a client is free.

One trio task a request, times from whoever records it. Every scheduled request ends in exactly
one `Played`: what was not sent because of a limit of ours is dropped, what an interruption took is
cancelled or, where it was under way, left.
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Protocol

import trio

from conformance.capture import Capture
from conformance.script import Exchange
from loadgen.load import Closed, Limits, Open
from loadgen.outcome import Fate
from loadgen.played import Played

LEAD = 0.05  # seconds between the call and the start of the load
TICK = 0.02  # seconds between two looks at how late the timer wakes


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


class Line(Protocol):
    """A connection as a recorder gives it; see conformance.recorder.Connection."""

    @property
    def usable(self) -> bool: ...
    @property
    def is_quiet(self) -> bool: ...
    async def exchange(self, script: Exchange, /) -> Capture: ...
    def close(self) -> None: ...


class Records(Protocol):
    """Who records: conformance's Recorder or the fast one."""

    def now(self) -> float: ...
    def connection(self) -> AbstractAsyncContextManager[Line]: ...


class Player:
    """One load on one recorder. `script` makes request number i; `take` gets what became of it.

    `sleep` waits for the moments of the schedule, and for nothing else. `own`: does request i have
    a connection of its own, closed after its answer?
    """

    def __init__(
        self,
        recorder: Records,
        script: Script,
        take: Take,
        limits: Limits | None = None,
        sleep: Sleep = trio.sleep,
        own: Callable[[int], bool] = lambda index: False,
    ) -> None:
        self._recorder = recorder
        self._script = script
        self._take = take
        self._limits = limits or Limits()
        self._sleep = sleep
        self._own = own
        self._sent = 0
        self._in_flight = 0
        self._pool = _Pool(recorder)
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
            with self._scope:
                async with trio.open_nursery() as watching:
                    watching.start_soon(self._watch_timer)
                    if isinstance(load, Open):
                        await self._open(load)
                    else:
                        await self._closed(load)
                    watching.cancel_scope.cancel()
        return offered

    # -- open loop -------------------------------------------------------------------------------

    async def _open(self, load: Open) -> None:
        start, due, wanted = self.offered.start, 0, load.numbered
        self.offered.end = start + load.seconds
        try:
            async with trio.open_nursery() as nursery:
                for index, offset in wanted:
                    script = self._script(index)  # made while there is time
                    await self._until(start + offset)
                    due += 1
                    self._begin(nursery, index, start + offset, script)
                await self._until(self.offered.end)
        finally:
            if due < len(wanted):
                self.offered.end = self._recorder.now()
            for index, offset in wanted[due:]:
                self._take(Played(index, start + offset, unsent=Fate.CANCELLED))

    def _begin(self, nursery: trio.Nursery, index: int, intended: float, script: Exchange) -> None:
        over = self._sent >= self._limits.requests or index >= self._limits.index
        if over or self._in_flight >= self._limits.in_flight:
            self._take(Played(index, intended, unsent=Fate.DROPPED))
            return
        self._sent += 1
        self._in_flight += 1
        nursery.start_soon(self._one, index, intended, script)

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
                index, begun = load.index(begun), begun + 1
                self._last = now
                self._sent += 1
                self._in_flight += 1
                await self._one(index, now, self._script(index))

        try:
            async with trio.open_nursery() as nursery:
                for _ in range(int(min(load.clients, self._limits.in_flight, load.most))):
                    nursery.start_soon(client)
        finally:
            self._close_books(load, begun)

    def _close_books(self, load: Closed, begun: int) -> None:
        now, last = self._recorder.now(), self._last
        interrupted = not self.offered.complete
        if interrupted or load.seconds is None:
            self.offered.end = now if interrupted or last is None else last
        else:
            self.offered.end = self.offered.start + load.seconds
        fate = Fate.CANCELLED if interrupted else Fate.DROPPED
        limits = self._limits
        most = min(load.most, limits.requests, load.below(limits.index))
        for number in range(begun, load.requests or 0) if begun >= most or interrupted else ():
            self._take(Played(load.index(number), self.offered.end, unsent=fate))

    # -- one request -----------------------------------------------------------------------------

    async def _one(self, index: int, intended: float, script: Exchange) -> None:
        started = self._recorder.now()
        capture = None
        try:
            own = self._own(index)
            connection = await (self._pool.new() if own else self._pool.take())
            capture = await connection.exchange(script)
            if own:
                connection.close()
            else:
                self._pool.give(connection)
        finally:
            self._in_flight -= 1
            self._take(Played(index, intended, started, capture))

    async def _watch_timer(self) -> None:
        """How late the timer wakes is how late everything else here can be."""
        await trio.sleep(max(0.0, self.offered.start - self._recorder.now()))
        due = self._recorder.now()
        while True:
            due = max(due + TICK, self._recorder.now())
            await trio.sleep(max(0.0, due - self._recorder.now()))
            self.offered.lags.append(max(0.0, self._recorder.now() - due))


class _Pool:
    """Idle connections, the freshest first."""

    def __init__(self, recorder: Records) -> None:
        self._recorder = recorder
        self._idle: list[Line] = []
        self._stack = AsyncExitStack()

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """All are closed at the end."""
        async with self._stack:
            yield

    async def take(self) -> Line:
        """A connection for one exchange, new where none idles."""
        while self._idle:
            connection = self._idle.pop()
            if connection.is_quiet:  # the peer may have closed what it promised to keep
                return connection
            connection.close()
        return await self.new()

    async def new(self) -> Line:
        return await self._stack.enter_async_context(self._recorder.connection())

    def give(self, connection: Line) -> None:
        if connection.usable:
            self._idle.append(connection)
