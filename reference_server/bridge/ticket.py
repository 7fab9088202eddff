"""One exchange's hold on the engine: what it asked, what it has not been sent yet, how it ends."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import trio

from reference_server.bridge.meter import Meter, Watch
from reference_server.bridge.policy import KIND, Full, SlowPolicy
from reference_server.bridge.queue import Books, Queue, Share
from reference_server.engine.interface import Delta, Done, Event, Failure, Started, Work
from reference_server.seams import After

_IN_A_ROW = 16
UNAVAILABLE = "service_unavailable"  # the kind of failure that another server may not have


class Desk(Protocol):
    """What a ticket needs of the bridge."""

    books: Books
    meter: Meter

    def now(self) -> float: ...

    def later(self, seconds: float, call: Callable[[], None]) -> trio.CancelScope: ...

    def forget(self, work: str) -> None: ...

    def closed(self, ticket: Ticket) -> None: ...

    def cancel(self, work: str) -> None: ...

    def pause(self, work: str) -> None: ...

    def resume(self, work: str) -> None: ...

    def hold(self, change: int) -> None: ...

    def cut_all_but(self, one: Ticket) -> None: ...


class Ticket:
    """The events of one exchange's works, in order, until each has its Done or Failure.

    Closing it is idempotent and takes its work out of the batch at the next step.
    """

    def __init__(self, desk: Desk, works: Sequence[Work], policy: SlowPolicy) -> None:
        self._desk, self._policy = desk, policy
        self._id = works[0].id.partition("/")[0]
        self._watches = {work.id: Watch(desk.meter, desk.now()) for work in works}
        self._open = set(self._watches)
        self._queue = Queue(policy, sum(work.n for work in works), desk.books)
        self._wanted = trio.Event()
        self._paused = self._holding = self._deaf = False
        self._in_a_row = 0  # events taken without any waiting
        self._patience: trio.CancelScope | None = None
        self._deadline: trio.CancelScope | None = None

    @property
    def share(self) -> Share:
        """What waits for its client now."""
        return Share(self._id, len(self._queue), self._queue.bytes, self._paused)

    def must_start(self, seconds: float) -> None:
        """A request that has no place by then is given up."""
        said = f"the request could not start within {seconds:g} s"
        self._deadline = self._desk.later(seconds, lambda: self.fail(said, UNAVAILABLE))

    # -- from the engine ---------------------------------------------------------------------

    def deliver(self, event: Event, now: float) -> None:
        watch = self._watches[event.work]
        if isinstance(event, Started):
            watch.started(now)
            _stop(self._deadline)
            return
        if isinstance(event, Delta):
            watch.delta(event, now)
        else:
            if isinstance(event, Done):
                watch.done(now)
            self._open.discard(event.work)
            self._desk.forget(event.work)
        if not self._deaf:
            self._queue.put(event)
            self._wanted.set()
            self._mind()

    def _mind(self) -> None:
        """What the policy says, now that there is one event more."""
        if self._policy.waits and not self._holding:
            self._holding = True
            self._desk.hold(+1)
        if not self._open or self._paused or not self._queue.full:
            return
        if self._policy.full is Full.DROP:
            self._drop()
            return
        self._paused = True
        self._desk.books.pauses += 1
        for work in self._open:
            self._desk.pause(work)
        self._patience = self._desk.later(self._policy.patience, self._drop)

    def _drop(self) -> None:
        self._desk.books.dropped += 1
        self.fail("the client reads too slowly", KIND)

    # -- to the client -----------------------------------------------------------------------

    async def receive(self) -> Event | None:
        """The next event; None after the last. Asking for it says that all before are written."""
        self._in_a_row += 1
        while not self._queue:
            self._release()
            if not self._open:
                return None
            self._wanted = trio.Event()
            await self._wanted.wait()
            self._in_a_row = 0
        if self._in_a_row >= _IN_A_ROW:
            self._in_a_row = 0
            await trio.lowlevel.checkpoint()  # a write need not wait, so nobody else had a turn
        event = self._queue.take()
        if self._paused and self._queue.low:
            self._go_on()
        return event

    def _go_on(self) -> None:
        self._paused = False
        _stop(self._patience)
        for work in self._open:
            self._desk.resume(work)

    def _release(self) -> None:
        if self._holding:
            self._holding = False
            self._desk.hold(-1)

    # -- ends --------------------------------------------------------------------------------

    def close(self) -> None:
        """Give up what still runs, and what was not written. Idempotent."""
        for work in self._open:
            self._desk.cancel(work)
        self._end()

    def abandon(self, after: After) -> None:
        """Its client is gone. Only a faulty server does anything but close it."""
        if after.leaks:
            for work in self._open:
                self._desk.forget(work)
                self._desk.pause(work)  # for ever: its places are never given back
            self._end()
        if after.cuts:
            self._desk.cut_all_but(self)
        if after.seconds:
            self._deaf = True
            self._queue.clear()
            self._release()
            self._desk.later(after.seconds, self.close)
        else:
            self.close()

    def _end(self) -> None:
        self._open = set()
        self._queue.clear()
        _stop(self._patience)
        _stop(self._deadline)
        self._release()
        self._wanted.set()
        self._desk.closed(self)

    def fail(self, message: str, kind: str) -> None:
        """End every work of this exchange with a Failure that its client will see."""
        failed, self._open = self._open, set()
        for work in failed:
            self._desk.cancel(work)
            if not self._deaf:
                self._queue.put(Failure(work, message, kind))
        self._wanted.set()
        _stop(self._patience)
        _stop(self._deadline)


def _stop(timer: trio.CancelScope | None) -> None:
    if timer is not None:
        timer.cancel()
