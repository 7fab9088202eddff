"""Engine: one epoll descriptor for all streams, waited for by one trio task, drained in one go.

Every time it wakes it reads once from each socket that has something, which asks the kernel for
bytes and stamp and appends both; see `stream` for the rest. Clocks stand in a heap; a stream is
asked again when its entry comes up.
"""

from __future__ import annotations

import heapq
import itertools
import select
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import trio

from conformance.capture import End, How
from conformance.connect import READ_SIZE, reason_of
from conformance.connect.wire import Plain

from .stamps import ROOM, Stamps
from .stream import FOREVER, UNSAID, Stream

AT_ONCE = 64  # sockets of one look at the descriptor
SLICE = 0.0005  # seconds after which the other tasks have their turn
SPARE = 1024  # entries of ended streams that the heap may hold besides


@dataclass(slots=True)
class Watched:
    """A stream on its socket; `task` waits for its end."""

    stream: Stream
    plain: Plain
    read: Callable[[int, int], tuple[bytes, Any, int, Any]] = field(init=False)
    number: int = field(init=False)  # the descriptor
    task: trio.lowlevel.Task | None = None

    def __post_init__(self) -> None:
        self.read = self.plain.raw.recvmsg
        self.number = self.plain.raw.fileno()


class Engine:
    """`now`: the recorder's clock; `stamps`: None where reads are timed by that same clock."""

    def __init__(self, now: Callable[[], float], stamps: Stamps | None) -> None:
        self._now = now
        self._stamps = stamps
        self._epoll = select.epoll()
        self._watched: dict[int, Watched] = {}
        self._heap: list[tuple[float, int, Watched]] = []
        self._serial = itertools.count()
        self._scope = trio.CancelScope()
        self.unstamped = 0  # reads that the kernel gave no stamp for

    def close(self) -> None:
        """The descriptor; the sockets are their connections'."""
        self._epoll.close()

    async def run(self) -> None:
        """Serve until cancelled."""
        while True:
            with trio.CancelScope(deadline=self._trio_time(self._due)) as self._scope:
                while True:
                    await trio.lowlevel.wait_readable(self._epoll.fileno())
                    self._drain()
                    if self._due <= self._now():
                        break
            await trio.lowlevel.checkpoint()
            self._ring()

    # -- streams -----------------------------------------------------------------------------------

    def watch(self, watched: Watched) -> None:
        """Read from now on, and mind the clocks."""
        self._watched[watched.number] = watched
        self._epoll.register(watched.number, select.EPOLLIN)
        self._arm(watched)

    def unwatch(self, watched: Watched) -> None:
        """Before its socket is closed. Idempotent."""
        if self._watched.get(watched.number) is watched:
            del self._watched[watched.number]
            self._epoll.unregister(watched.number)
            watched.stream.armed = -FOREVER

    def check(self, watched: Watched) -> None:
        """Something happened that may end the stream, or bring one of its clocks nearer."""
        stream = watched.stream
        if stream.end is not None:
            return
        now = self._now()
        over = stream.over(now)
        if over is None:
            self._arm(watched)
        elif over[0] is How.CLOCK:
            self._finish(watched, stream.ended(How.CLOCK, now, over[1]))
        else:
            self._leave(watched, over[1])

    async def ended(self, watched: Watched) -> End:
        """Wait for the end."""
        if watched.stream.end is None:
            watched.task = trio.lowlevel.current_task()

            def abort(_: object) -> trio.lowlevel.Abort:
                watched.task = None
                return trio.lowlevel.Abort.SUCCEEDED

            await trio.lowlevel.wait_task_rescheduled(abort)
        assert watched.stream.end is not None
        return watched.stream.end

    def _leave(self, watched: Watched, name: str) -> None:
        stream, leave = watched.stream, watched.stream.script.leave
        how = leave.how if name == "leave" and leave is not None else "fin"
        stream.left = how
        unread = watched.plain.waiting()
        if how == "half":
            watched.plain.leave(how)
            self._arm(watched)
            return
        self.unwatch(watched)
        watched.plain.leave(how)
        self._finish(watched, stream.ended(How.LEFT, self._now(), name, unread))

    def _finish(self, watched: Watched, end: End) -> None:
        self.unwatch(watched)
        watched.stream.end = end
        if watched.task is not None:
            trio.lowlevel.reschedule(watched.task)
            watched.task = None

    # -- reading -----------------------------------------------------------------------------------

    def _drain(self) -> None:
        until = time.monotonic() + SLICE
        poll = self._epoll.poll
        if self._stamps is not None:
            self._stamps.refresh(until)
        while ready := poll(0, AT_ONCE):
            for number, _ in ready:
                if (watched := self._watched.get(number)) is not None:
                    self._read(watched)
            if time.monotonic() >= until:
                return

    def _read(self, watched: Watched) -> None:
        stream = watched.stream
        try:
            data, ancillary, _, _ = watched.read(READ_SIZE, ROOM)
        except BlockingIOError:
            return
        except OSError as error:
            self._finish(watched, stream.ended(How.RESET, self._now(), reason_of(error)))
            return
        at = now = self._now()
        emptied: int = len(data) < READ_SIZE  # a short read is all that there was
        if not data:
            self._finish(watched, stream.ended(How.CLOSED, now))
            return
        if self._stamps is not None:
            stamp = self._stamps.at(ancillary)
            if stamp is None:
                self.unstamped += 1
                emptied = UNSAID
            elif stamp < now:
                at = stamp
        said = stream.take(data, at, emptied)
        if said is None:
            return
        if isinstance(said, End):
            self._finish(watched, said)
        else:
            self.check(watched)

    # -- clocks ------------------------------------------------------------------------------------

    @property
    def _due(self) -> float:
        return self._heap[0][0] if self._heap else FOREVER

    def _arm(self, watched: Watched) -> None:
        stream = watched.stream
        deadline = stream.deadline()
        if deadline >= stream.armed:
            return
        stream.armed = deadline
        heapq.heappush(self._heap, (deadline, next(self._serial), watched))
        if deadline <= self._due:
            self._scope.deadline = min(self._scope.deadline, self._trio_time(deadline))
        if len(self._heap) > 4 * len(self._watched) + SPARE:
            self._heap = [each for each in self._heap if each[2].stream.armed == each[0]]
            heapq.heapify(self._heap)

    def _ring(self) -> None:
        """Ask every stream whose entry has come up."""
        now = self._now()
        while self._heap and self._heap[0][0] <= now:
            when, _, watched = heapq.heappop(self._heap)
            if when == watched.stream.armed:
                watched.stream.armed = FOREVER
                self.check(watched)

    def _trio_time(self, moment: float) -> float:
        return trio.current_time() + (moment - self._now()) if moment < FOREVER else FOREVER
