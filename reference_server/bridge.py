"""Between engine and sockets: steps the engine while there is work, hands each exchange its events.

The engine knows no clock, the connections know no engine. A `Ticket` is one exchange's hold on the
engine; closing it is idempotent and takes its work out of the batch before the next step.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import trio

from reference_server.clock import Clock
from reference_server.engine.interface import Done, Engine, Event, Failure, Gauges, Started, Work
from reference_server.seams import After

_LAST_WORDS = 1.0  # seconds


class Ticket:
    """The events of one exchange's works, in order, until each has its Done or Failure."""

    def __init__(self, bridge: Bridge, works: Sequence[Work]) -> None:
        self._bridge = bridge
        self._open = {work.id for work in works}
        self.started = False
        self._send, self.events = trio.open_memory_channel[Event](math.inf)

    def deliver(self, event: Event) -> None:
        if isinstance(event, Started):
            self.started = True
            return
        self._send.send_nowait(event)
        if isinstance(event, Done | Failure):
            self._open.discard(event.work)
            self._bridge.forget(event.work)
        if not self._open:
            self._send.close()

    def close(self) -> None:
        """Give up what still runs. Idempotent."""
        for work in self._open:
            self._bridge.cancel(work)
        self._open = set()
        self._send.close()
        self.events.close()

    def abandon(self, after: After) -> None:
        """Its client is gone. Only a faulty server does anything but close it."""
        if after.leaks:
            for work in self._open:
                self._bridge.leak(work)
            self._open = set()
        if after.cuts:
            self._bridge.cut_all_but(self)
        if after.seconds:
            self._bridge.close_later(self, after.seconds)
        else:
            self.close()

    def fail(self, message: str, kind: str) -> None:
        """End every work of this exchange with a Failure that its client will see."""
        for work in tuple(self._open):
            self._bridge.cancel(work)
            self.deliver(Failure(work, message, kind))


class Bridge:
    """Owns the stepping. `step_seconds` is the time between two steps; 0: as fast as it goes.

    `seat_seconds`: how much longer a step takes for each request that runs.
    """

    def __init__(
        self,
        engine: Engine,
        step_seconds: float = 0.0,
        clock: Clock | None = None,
        seat_seconds: float = 0.0,
    ) -> None:
        self.engine = engine
        self._step_seconds, self._seat_seconds = step_seconds, seat_seconds
        self._abandoned: list[tuple[float, Ticket]] = []
        self._held = 0
        self._clock = clock or Clock()
        self._tickets: dict[str, Ticket] = {}
        self._wanted = trio.Event()
        self.late_events = 0  # for requests that had gone already

    @property
    def gauges(self) -> Gauges:
        return self.engine.gauges

    @property
    def busy(self) -> bool:
        """Somebody waits for an answer, or the engine has not heard yet that nobody does."""
        return bool(self._tickets) or not self.engine.idle

    def open(self, works: Sequence[Work]) -> Ticket:
        ticket = Ticket(self, works)
        for work in works:
            self.engine.submit(work)
            self._tickets[work.id] = ticket
        self._wanted.set()
        return ticket

    def forget(self, work: str) -> None:
        self._tickets.pop(work, None)

    def cancel(self, work: str) -> None:
        """The next step gives its places back; until then events of it are late."""
        self.forget(work)
        self.engine.cancel(work)
        self._wanted.set()

    def leak(self, work: str) -> None:
        """Its places are kept for ever, and nobody hears of it. Only a faulty server does this."""
        self.forget(work)
        self.engine.pause(work)
        self._wanted.set()

    @contextmanager
    def held(self) -> Iterator[None]:
        """No step is done while anybody is inside. Only a faulty server does this."""
        self._held += 1
        try:
            yield
        finally:
            self._held -= 1

    def cut_all_but(self, one: Ticket) -> None:
        """Fail every exchange but this one."""
        for ticket in set(self._tickets.values()) - {one}:
            ticket.fail("the request was aborted", "server_error")

    def close_later(self, ticket: Ticket, seconds: float) -> None:
        """Let the work of a ticket go on for a while, with nobody to hear of it."""
        self._abandoned.append((self._clock.now() + seconds, ticket))

    def _close_abandoned(self) -> None:
        due = [ticket for at, ticket in self._abandoned if at <= self._clock.now()]
        self._abandoned = [each for each in self._abandoned if each[1] not in due]
        for ticket in due:
            ticket.close()

    def fail_all(self, message: str, kind: str = "server_error") -> None:
        """Fail every running exchange, visibly to its client."""
        for ticket in set(self._tickets.values()):
            ticket.fail(message, kind)

    async def run(self) -> None:
        """Step while there is work; sleep while there is none. Runs until cancelled."""
        try:
            while True:
                await self._wanted.wait()
                self._wanted = trio.Event()
                await self._step_until_idle()
        except Exception:
            self.fail_all("the engine failed")
            # Time for the streams to say so, before our end takes their tasks with it.
            await self._clock.sleep(_LAST_WORDS)
            raise

    async def _step_until_idle(self) -> None:
        due = self._clock.now()
        while not self.engine.idle:
            due += self._step_seconds + self._seat_seconds * self.engine.gauges.running
            await self._clock.sleep(max(0.0, due - self._clock.now()))
            # A late step does not make the next ones hurry: the pace is a floor, not a schedule.
            due = max(due, self._clock.now())
            self._close_abandoned()
            if self._held:
                continue
            for event in self.engine.step():
                self._deliver(event)

    def _deliver(self, event: Event) -> None:
        ticket = self._tickets.get(event.work)
        if ticket is None:
            self.late_events += 1
        else:
            ticket.deliver(event)
