"""The bridge: opens tickets, hands each its events, and lets one driver step the engine."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

import trio

from reference_server.bridge.drivers import Driver, Gate, InLoop, Threaded
from reference_server.bridge.meter import Meter
from reference_server.bridge.policy import DEFAULT, POLICIES, SlowPolicy
from reference_server.bridge.queue import Books, Share
from reference_server.bridge.ticket import Ticket
from reference_server.clock import Clock
from reference_server.engine.interface import Engine, Event, Gauges, Started, Work

_LAST_WORDS = 1.0  # seconds
_GATHERS = POLICIES["unbounded"]  # an answer that is not streamed is taken as it comes


class Bridge:
    """Owns the stepping. `step_seconds` is the time between two steps; 0: as fast as it goes.

    `seat_seconds`: how much longer a step takes for each request that runs. `threaded`: the engine
    computes, so it is stepped in a thread beside the event loop.
    """

    def __init__(
        self,
        engine: Engine,
        step_seconds: float = 0.0,
        clock: Clock | None = None,
        seat_seconds: float = 0.0,
        *,
        threaded: bool = False,
        slow: SlowPolicy = POLICIES[DEFAULT],
    ) -> None:
        self.engine = engine
        self._step_seconds, self._seat_seconds = step_seconds, seat_seconds
        self._clock = clock or Clock()
        self.slow = slow
        self._tickets: dict[str, Ticket] = {}
        self._held: set[Ticket] = set()  # until they are closed: a client may read on at the end
        self._unstarted: set[str] = set()
        self._fresh = 0  # tokens that are owed to requests which no step has seen
        self._timers: trio.Nursery | None = None
        self.gate = Gate()
        self.books, self.meter = Books(), Meter()
        self.late_events = 0  # for requests that had gone already
        self.threaded = threaded
        self._driver: Driver
        if threaded:
            self._driver = Threaded(engine, self.gate, self._pace)
        else:
            self._driver = InLoop(engine, self.gate, self._clock, self._pace)

    @property
    def gauges(self) -> Gauges:
        return self.engine.gauges

    @property
    def busy(self) -> bool:
        """Somebody waits for an answer, or the engine has not heard yet that nobody does."""
        return bool(self._tickets) or self._driver.busy

    def now(self) -> float:
        return self._clock.now()

    @property
    def waiting(self) -> int:
        """Requests without a place, those that no step has seen included."""
        return len(self._unstarted)

    def wait_expected(self) -> float:
        """Seconds until a request of now would start, by the tokens owed and the latest pace.

        0 where nobody waits, or where nothing is known yet.
        """
        pace = self.meter.tokens_per_second
        if not self._unstarted or not pace:
            return 0.0
        return (self.engine.gauges.owed + self._fresh) / pace

    # -- requests ----------------------------------------------------------------------------

    def open(self, works: Sequence[Work], streamed: bool = False) -> Ticket:
        ticket = Ticket(self, works, self.slow if streamed else _GATHERS)
        self._held.add(ticket)
        for work in works:
            self.engine.submit(work)
            self._tickets[work.id] = ticket
            self._unstarted.add(work.id)
            self._fresh += work.n * (work.sampling.max_tokens or 0)
        self._driver.wake()
        return ticket

    def forget(self, work: str) -> None:
        self._tickets.pop(work, None)
        self._unstarted.discard(work)

    def closed(self, ticket: Ticket) -> None:
        self._held.discard(ticket)

    def shares(self, most: int) -> list[Share]:
        """The exchanges that hold something, the largest first, `most` of them."""
        shares = [share for ticket in self._held if (share := ticket.share).events]
        return sorted(shares, key=lambda share: (-share.bytes, share.id))[:most]

    def cancel(self, work: str) -> None:
        """The next step gives its places back; until then events of it are late."""
        self.forget(work)
        self.engine.cancel(work)
        self._driver.wake()

    def pause(self, work: str) -> None:
        self.engine.pause(work)
        self._driver.wake()

    def resume(self, work: str) -> None:
        self.engine.resume(work)
        self._driver.wake()

    def cut_all_but(self, one: Ticket) -> None:
        """Fail every exchange but this one. Only a faulty server does this."""
        for ticket in set(self._tickets.values()) - {one}:
            ticket.fail("the request was aborted", "server_error")

    def fail_all(self, message: str, kind: str = "server_error") -> None:
        """Fail every running exchange, visibly to its client."""
        for ticket in set(self._tickets.values()):
            ticket.fail(message, kind)

    # -- stepping ----------------------------------------------------------------------------

    def hold(self, change: int) -> None:
        """One more (+1) or one less (-1) for whom no step may be done."""
        self.gate.holders += change
        self._driver.wake()

    @contextmanager
    def held(self) -> Iterator[None]:
        """No step is done while anybody is inside. Only a faulty server does this."""
        self.hold(+1)
        try:
            yield
        finally:
            self.hold(-1)

    def allow(self, steps: int) -> None:
        """From the first call on the engine does as many steps as were allowed, and no other."""
        self.gate.allowed = steps + (
            self.gate.done if self.gate.allowed is None else self.gate.allowed
        )
        self._driver.wake()

    def later(self, seconds: float, call: Callable[[], None]) -> trio.CancelScope:
        """`call` after so many seconds, unless what is returned is cancelled before."""
        scope = trio.CancelScope()
        if self._timers is not None:
            self._timers.start_soon(self._after, seconds, call, scope)
        return scope

    async def _after(
        self, seconds: float, call: Callable[[], None], scope: trio.CancelScope
    ) -> None:
        with scope:
            await self._clock.sleep(seconds)
            call()

    async def run(self) -> None:
        """Step while there is work; sleep while there is none. Runs until cancelled."""
        async with trio.open_nursery() as self._timers:
            try:
                await self._driver.run(self._deliver)
            except Exception:
                self.fail_all("the engine failed")
                # Time for the streams to say so, before our end takes their tasks with it.
                await self._clock.sleep(_LAST_WORDS)
                raise

    def _deliver(self, events: Iterable[Event]) -> None:
        now = self._clock.now()
        self._fresh = 0
        for event in events:
            if isinstance(event, Started):
                self._unstarted.discard(event.work)
            ticket = self._tickets.get(event.work)
            if ticket is None:
                self.late_events += 1
            else:
                ticket.deliver(event, now)
        self.meter.pace(now, self.engine.gauges.tokens)

    def _pace(self) -> float:
        return self._step_seconds + self._seat_seconds * self.engine.gauges.running
