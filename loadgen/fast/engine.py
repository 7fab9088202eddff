"""Engine: one epoll descriptor for all streams, waited for by one trio task, drained in one go.

Every time it wakes it reads once from each socket that has something, which asks the kernel for
bytes and stamp and appends both; see `stream` for the rest. Clocks stand in a heap; a stream is
asked again when its entry comes up.

With stamps, a stream of which nothing but more of the same is expected is calm: it has a place in a
second descriptor, which is looked at after pauses (see `pause`). The first reads of an answer, and
whatever our side has to react to, stay in the first; so does the peer's close, which has no stamp.
The first descriptor holds the second one while nobody pauses, and the timer that ends a pause.
"""

from __future__ import annotations

import select
import time
from collections import deque
from collections.abc import Callable

import trio

from conformance.capture import End, How
from conformance.connect import READ_SIZE, TlsCut, reason_of

from .deadlines import Deadlines
from .pacing import timer
from .pause import APART, Pause
from .stamps import JUMP, ROOM, Stamps
from .stream import FOREVER, UNSAID
from .watched import Watched

AT_ONCE = 64  # sockets of one look at the descriptor
SLICE = 0.0005  # seconds after which the other tasks have their turn
# EPOLLIN with EPOLLONESHOT, EPOLLET; `select` has the names on Linux alone. A socket of which we
# took all need not be asked again: the edge saves the kernel that.
_ONCE, _EDGE = 0x1 | 1 << 30, 0x1 | 1 << 31


class Engine:
    """`now`: the recorder's clock; `stamps`: None where reads are timed by that same clock."""

    def __init__(
        self, now: Callable[[], float], stamps: Stamps | None, pause: Pause | None = None
    ) -> None:
        self._now = now
        self._stamps = stamps
        self._epoll = select.epoll()
        self._calm = select.epoll()
        self._timer = None if stamps is None else timer()
        self.pause = pause or Pause()
        self._watched: dict[int, Watched] = {}
        self._deadlines = Deadlines()
        self._scope = trio.CancelScope()
        self._over: deque[Watched] = deque()  # their tasks have not been told
        self._waits = False
        self._resting = 0.0  # the pause that the timer makes now
        self._unread = False  # a socket of the calm ones has more than it gave
        self.unstamped = 0  # reads that the kernel gave no stamp for
        # How long bytes lay before they were read, of the calm ones
        self.reads, self.waited, self.longest = 0, 0.0, 0.0
        self._noted, self._moments, self._oldest = 0, 0.0, FOREVER  # of this wake-up
        if self._timer is not None:
            self._epoll.register(self._calm.fileno(), _ONCE)
            self._epoll.register(self._timer.number, select.EPOLLIN)

    def close(self) -> None:
        """The descriptors; the sockets are their connections'."""
        self._epoll.close()
        self._calm.close()
        if self._timer is not None:
            self._timer.close()

    async def run(self) -> None:
        """Serve until cancelled."""
        while True:
            with trio.CancelScope(deadline=self._trio_time(self._deadlines.due)) as self._scope:
                while True:
                    await self._turn()
                    self._drain()
                    if self._deadlines.due <= self._now():
                        break
            await trio.lowlevel.checkpoint()
            self._ring()

    async def _turn(self) -> None:
        """Until something came. Exchanges that are over are handed out before, one a turn: what
        each task does with its answer takes longer than a send that has become due may wait.
        """
        if self._over:
            self._over.popleft().tell()
        if self._over:
            await trio.lowlevel.checkpoint()
            return
        self._waits = True
        try:
            await trio.lowlevel.wait_readable(self._epoll.fileno())
        finally:
            self._waits = False

    @property
    def delay(self) -> dict[str, float | None]:
        """Seconds that bytes lay before they were read, where they were read after pauses."""
        mean = self.waited / self.reads if self.reads else None
        most = self.longest if self.reads else None
        return {"pause": self.pause.most, "mean": mean, "most": most, "reads": self.reads}

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
            if watched.last is not None:
                self._calm.unregister(watched.number)
            watched.stream.armed = -FOREVER

    def again(self, watched: Watched) -> None:
        """A read left something there."""
        if watched.last is not None:
            self._unread = True
            self._calm.modify(watched.number, _EDGE)

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

    def _leave(self, watched: Watched, name: str) -> None:
        stream, leave = watched.stream, watched.stream.script.leave
        how = leave.how if name == "leave" and leave is not None else "fin"
        stream.left = how
        unread = watched.wire.waiting()
        if how == "half":
            watched.wire.leave(how)
            self._arm(watched)
            return
        self.unwatch(watched)
        watched.wire.leave(how)
        self._finish(watched, stream.ended(How.LEFT, self._now(), name, unread))

    def _finish(self, watched: Watched, end: End) -> None:
        self.unwatch(watched)
        stream = watched.stream
        self.pause.ended(stream.reads, self._now() - stream.started)
        stream.end = end
        if self._waits:  # somebody else's turn, who asked
            watched.tell()
        else:
            self._over.append(watched)

    # -- reading -----------------------------------------------------------------------------------

    def _drain(self) -> None:
        until = time.monotonic() + SLICE
        if self._stamps is not None:
            self._stamps.refresh(until)
        while ready := self._epoll.poll(0, AT_ONCE):
            reads, now = 0, self._now()
            for number, _ in ready:
                if (watched := self._watched.get(number)) is not None:
                    self._read(watched, now)
                    reads += 1
                elif self._timer is not None:
                    if number == self._timer.number:
                        self._timer.quiet()
                    self._look(until)
            if not reads or time.monotonic() >= until:
                break
        if self._noted:
            self._account(self._now())

    def _account(self, now: float) -> None:
        """All that was noted had been read by now."""
        self.reads += self._noted
        self.waited += self._noted * now - self._moments
        self.longest = max(self.longest, now - self._oldest)
        self._noted, self._moments, self._oldest = 0, 0.0, FOREVER

    def _look(self, until: float) -> None:
        """Read the calm ones, and settle when they are looked at again."""
        reads, self._unread = 0, False
        while ready := self._calm.poll(0, AT_ONCE):
            now = self._now()
            for number, _ in ready:
                if (watched := self._watched.get(number)) is not None:
                    self._read(watched, now)
            reads += len(ready)
            if len(ready) < AT_ONCE:
                break
            if time.monotonic() >= until:
                self._unread = True
                break
        moment = time.monotonic()
        pause = self.pause.after(moment, reads)
        if self._unread:
            pause = 0.0
        if pause != self._resting and self._timer is not None:
            self._timer.set(moment + pause if pause else 0.0, pause)
            self._resting = pause
        if not pause:
            self._epoll.modify(self._calm.fileno(), _ONCE)

    def _read(self, watched: Watched, now: float) -> None:
        """`now`: just before, or a few reads ago; long ago, where the process was stopped since."""
        stream = watched.stream
        try:
            data, ancillary, _, _ = watched.read(READ_SIZE, ROOM)
        except BlockingIOError:
            return
        except OSError as error:
            self._finish(watched, stream.ended(How.RESET, self._now(), reason_of(error)))
            return
        except TlsCut:
            self._finish(watched, stream.ended(How.TLS_CUT, self._now()))
            return
        if not data:
            self._finish(watched, stream.ended(How.CLOSED, self._now()))
            return
        emptied: int = len(data) < READ_SIZE  # a short read is all that there was
        if not emptied:
            self.again(watched)
        at = None if self._stamps is None else self._stamps.at(ancillary)
        if at is None or at > now + JUMP:
            at, emptied = self._plausible(at, emptied)
        if watched.last is not None:
            self._note(watched, watched.last, at)
        said = stream.take(data, at, emptied)
        if isinstance(said, End):
            self._finish(watched, said)
        elif said is not None:
            self.check(watched)
        if self._timer is not None and watched.last is None and stream.reads >= self.pause.first:
            self._soothe(watched, at)

    def _plausible(self, at: float | None, emptied: int) -> tuple[float, int]:
        """The stamp, unless there is none or it lies ahead: then the time now, which is a bound."""
        now = self._now()
        if at is not None and at <= now + JUMP:
            return at, emptied
        if self._stamps is None:
            return now, emptied
        self.unstamped += at is None
        return now, UNSAID

    def _note(self, watched: Watched, last: float, at: float) -> None:
        """When these bytes had come, and how long after the last ones."""
        self._noted += 1
        self._moments += at
        if at < self._oldest:
            self._oldest = at
        if APART < at - last < self.pause.near:
            self.pause.tell(at - last)
        watched.last = at

    def _soothe(self, watched: Watched, at: float) -> None:
        """From here on it is looked at after pauses; its end is seen at once all the same."""
        if watched.stream.is_calm and self._watched.get(watched.number) is watched:
            self._epoll.modify(watched.number, select.EPOLLRDHUP)
            self._calm.register(watched.number, _EDGE)
            watched.last = at

    # -- clocks ------------------------------------------------------------------------------------

    def _arm(self, watched: Watched) -> None:
        if self._deadlines.arm(watched, len(self._watched)):
            due = self._trio_time(self._deadlines.due)
            self._scope.deadline = min(self._scope.deadline, due)

    def _ring(self) -> None:
        """Ask every stream whose entry has come up."""
        for watched in self._deadlines.up(self._now()):
            self.check(watched)

    def _trio_time(self, moment: float) -> float:
        return trio.current_time() + (moment - self._now()) if moment < FOREVER else FOREVER
