"""Who steps the engine: a task of the event loop, or a thread beside it.

Both step whenever the engine is not idle and the gate is free, hand on the events of each step in
order, and sleep otherwise until they are woken.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Protocol

import trio

from reference_server.clock import Clock
from reference_server.engine.interface import Engine, Event

_LAST_STEP = 10.0  # seconds
Deliver = Callable[[Iterable[Event]], None]
Pace = Callable[[], float]  # seconds from one step to the next


class Gate:
    """Whether a step may be done. `holders` forbid all; `allowed`, if set, counts steps.

    `holders` and `allowed` are written by the loop's side alone, `done` by the driver alone.
    """

    def __init__(self) -> None:
        self.holders = 0
        self.allowed: int | None = None
        self.done = 0

    @property
    def free(self) -> bool:
        return not self.holders and (self.allowed is None or self.done < self.allowed)


class Driver(Protocol):
    def wake(self) -> None:
        """A verb was given, or the gate has changed. The loop's side calls it."""

    @property
    def busy(self) -> bool:
        """Something that `wake` told of is not done yet, or the engine is not idle."""

    async def run(self, deliver: Deliver) -> None:
        """Until cancelled. Raises what the engine raises."""


class InLoop:
    """Steps between other tasks, so a virtual clock can drive it. For engines that are quick."""

    def __init__(self, engine: Engine, gate: Gate, clock: Clock, pace: Pace) -> None:
        self._engine, self._gate = engine, gate
        self._clock, self._pace = clock, pace
        self._wanted = trio.Event()

    def wake(self) -> None:
        self._wanted.set()

    @property
    def busy(self) -> bool:
        return not self._engine.idle

    async def run(self, deliver: Deliver) -> None:
        while True:
            await self._woken()
            await self._step_until_idle(deliver)

    async def _woken(self) -> None:
        await self._wanted.wait()
        self._wanted = trio.Event()

    async def _step_until_idle(self, deliver: Deliver) -> None:
        due = self._clock.now()
        while not self._engine.idle:
            if not self._gate.free:
                await self._woken()
                due = self._clock.now()
                continue
            due += self._pace()
            await self._clock.sleep(max(0.0, due - self._clock.now()))
            # A late step does not make the next ones hurry: the pace is a floor, not a schedule.
            due = max(due, self._clock.now())
            if self._gate.free:
                self._gate.done += 1
                deliver(self._engine.step())


class Threaded:
    """Steps in a thread. It never waits for the loop, nor the loop for it.

    Events go into one queue; while the loop has not come to fetch them, no second message is sent.
    """

    def __init__(self, engine: Engine, gate: Gate, pace: Pace) -> None:
        self._engine, self._gate, self._pace = engine, gate, pace
        self._wanted = threading.Event()
        self._outbox: deque[Event] = deque()
        self._posted = self._stopping = False
        self._asked = self._settled = 0  # wakes so far; those the engine was idle after
        self._error: BaseException | None = None

    def wake(self) -> None:
        self._asked += 1
        self._wanted.set()

    @property
    def busy(self) -> bool:
        return self._asked != self._settled

    async def run(self, deliver: Deliver) -> None:
        ended = trio.Event()
        self._deliver, self._token = deliver, trio.lowlevel.current_trio_token()
        thread = threading.Thread(target=self._work, args=(ended,), name="engine", daemon=True)
        thread.start()
        try:
            await ended.wait()
        finally:
            self._stopping = True
            self._wanted.set()
            with trio.CancelScope(shield=True):
                # A step that never ends must not keep the process: the thread is a daemon.
                await trio.to_thread.run_sync(thread.join, _LAST_STEP)
        if self._error is not None:
            raise self._error

    # -- the loop's side ---------------------------------------------------------------------

    def _fetch(self) -> None:
        self._posted = False  # first: what is put from here on is told again
        self._deliver([self._outbox.popleft() for _ in range(len(self._outbox))])

    # -- the thread --------------------------------------------------------------------------

    def _work(self, ended: trio.Event) -> None:
        try:
            while not self._stopping:
                self._once()
        except BaseException as error:
            self._error = error
        self._tell(ended.set)

    def _once(self) -> None:
        asked = self._asked  # before the engine is looked at: what comes later is not settled
        self._wanted.clear()
        idle = self._engine.idle
        if idle:
            self._settled = asked
        if idle or not self._gate.free:
            if asked == self._asked and not self._stopping:
                self._wanted.wait()
            return
        self._gate.done += 1
        due = time.monotonic() + self._pace()
        for event in self._engine.step():
            self._put(event)
        if (early := due - time.monotonic()) > 0:
            time.sleep(early)

    def _put(self, event: Event) -> None:
        self._outbox.append(event)
        if not self._posted:
            self._posted = True
            self._tell(self._fetch)

    def _tell(self, call: Callable[[], object]) -> None:
        try:
            self._token.run_sync_soon(call)
        except trio.RunFinishedError:
            self._stopping = True
