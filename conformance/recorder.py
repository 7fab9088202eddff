"""The recorder: drives one exchange on one socket and says what happened, byte by byte.

    recorder = Recorder(door)
    capture = await recorder.exchange(Exchange((request,), events=True))

    async with recorder.connection() as connection:      # two exchanges, one socket
        first = await connection.exchange(script)
        second = await connection.exchange(script)

Whatever the peer does is an `End` in the Capture; only cancellation leaves as an exception. `http1`
always reads along (on keep-alive nobody else knows that an exchange has ended), `sse` only where
the script asks for events. JSON is never looked at here.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager

import trio

from conformance import http1, sse
from conformance.capture import Capture, End, How, Read, Segment
from conformance.connect import (
    READ_SIZE,
    Door,
    NotConnected,
    TlsCut,
    TlsFailed,
    Wire,
    connect,
    reason_of,
)
from conformance.masking import Secret, mask
from conformance.script import Exchange

LATE_AT_MOST = 64 * 1024
SENTINEL = "[DONE]"
# When, and what: "pause", "resume", a member of LEAVES, and ANSWERED at the first byte.
Note = Callable[[float, str], None]
ANSWERED = "answered"
ROUNDING = 1e-6  # seconds; trio's deadline and our own sum may differ in the last bits


def unnoted(at: float, what: str) -> None:
    """Nobody wants to know."""


class Recorder:
    """Connects to one door and records exchanges; times count from the recorder's making.

    `clock` is read for every stamp; deadlines are trio's own, so under a virtual clock both are
    virtual. `secrets` are overwritten in every capture before it is returned.
    """

    def __init__(
        self,
        door: Door,
        *,
        clock: Callable[[], float] = trio.current_time,
        wall: float | None = None,
        secrets: Iterable[Secret] = (),
    ) -> None:
        self._door = door
        self._clock = clock
        self._origin = clock()
        self.wall = time.time() if wall is None else wall
        self.secrets = (*secrets, *_login(door))
        self._numbers = itertools.count()

    def now(self) -> float:
        """Seconds since the recorder was made."""
        return self._clock() - self._origin

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection]:
        """A connection that is dialled by its first exchange and closed at the end."""
        connection = Connection(self, self._door, next(self._numbers))
        try:
            yield connection
        finally:
            connection.close()

    async def exchange(self, script: Exchange, note: Note = unnoted) -> Capture:
        """One exchange on a connection of its own."""
        async with self.connection() as connection:
            return await connection.exchange(script, note)

    def beside(self, door: Door, secrets: Iterable[Secret] = ()) -> Recorder:
        """A recorder for another door whose times count from the same origin."""
        other = Recorder(door, clock=self._clock, wall=self.wall, secrets=secrets)
        other._origin = self._origin
        return other


def _login(door: Door) -> tuple[Secret, ...]:
    """What a proxy was told in confidence, and could repeat."""
    return () if door.login is None else (Secret("proxy:password", door.login[1].encode()),)


class Connection:
    """One socket and the exchanges on it, in order."""

    def __init__(self, recorder: Recorder, door: Door, number: int) -> None:
        self._recorder = recorder
        self._door = door
        self.number = number
        self.ordinal = 0
        self._wire: Wire | None = None
        self._connected_at: float | None = None
        self._over = False

    @property
    def usable(self) -> bool:
        """May another exchange be sent here? The peer's close may be on its way all the same."""
        return not self._over

    @property
    def is_quiet(self) -> bool:
        """Is it usable, connected, and nothing heard of the peer since the last exchange?"""
        return self.usable and self._wire is not None and self._wire.is_quiet()

    async def exchange(self, script: Exchange, note: Note = unnoted) -> Capture:
        """Send the script's request and record until its end; `note` hears what happens.

        On a connection that is over the capture says NOT_CONNECTED with detail "used up".
        """
        recording = _Recording(script, self._recorder.now, note)
        end = await self._connect(recording)
        if end is None and self._wire is not None:
            end = await recording.run(self._wire)
            self._over = end.how is not How.FRAMED or not recording.reusable
        capture = self._captured(recording, end or recording.end(How.NOT_CONNECTED, "used up"))
        self.ordinal += 1
        if self._over:
            self.close()
        return mask(capture, self._recorder.secrets)

    async def _connect(self, recording: _Recording) -> End | None:
        if self._wire is not None or self._over:
            return None
        clocks = recording.script.clocks
        self._over = True  # until there is a wire, whatever gets in the way
        with trio.move_on_after(min(clocks.connect, clocks.total)):
            try:
                slow = recording.script.slow
                self._wire = await connect(self._door, slow.buffer if slow else None)
            except NotConnected as error:
                return recording.end(How.NOT_CONNECTED, str(error))
            except TlsFailed as error:
                return recording.end(How.TLS_FAILED, str(error))
            self._over = False
            self._connected_at = self._recorder.now()
            return None
        return recording.end(How.CLOCK, "connect")

    def _captured(self, recording: _Recording, end: End) -> Capture:
        return Capture(
            received=bytes(recording.received),
            reads=tuple(recording.reads),
            request=tuple(recording.segments),
            url=recording.script.url,
            connection=self.number,
            ordinal=self.ordinal,
            early=recording.early,
            late=bytes(recording.late),
            connected_at=self._connected_at,
            sent_at=recording.sent_at,
            end=end,
            clock="user",
            wall=self._recorder.wall,
        )

    def close(self) -> None:
        """Close the socket. Idempotent."""
        self._over = True
        if self._wire is not None:
            self._wire.close()
            self._wire = None


class _Recording:
    """What one exchange has gathered so far."""

    def __init__(self, script: Exchange, now: Callable[[], float], note: Note) -> None:
        self.script = script
        self._now = now
        self._note = note
        self._started = now()
        self._http = http1.Reader(script.method, max_head=script.bounds.head)
        self._sse = sse.Reader(max_event=script.bounds.event) if script.events else None
        self.segments: list[Segment] = []
        self.received, self.late, self.early = bytearray(), bytearray(), b""
        self.reads: list[Read] = []
        self.sent_at: float | None = None
        self._progress_at = self._started
        self._sentinel_at: float | None = None
        self._events = 0
        self._left: str | None = None
        self._headed = False
        self._closed = False
        self._waiting = trio.CancelScope()
        self._request_left = trio.Event()
        self._rested_from: float | None = None
        self._rested_until: float | None = None

    @property
    def reusable(self) -> bool:
        """May the connection carry another exchange after this one?

        Not while some of the request is unsent: the next one would be taken for the rest of it.
        """
        is_open = self.sent_at is not None and not self._closed and not self._announced_close
        return self._http.complete and is_open

    @property
    def _announced_close(self) -> bool:
        """RFC 9112 section 9.3: "the connection will not persist" with the close option."""
        head = self._http.head
        if head is None:
            return True
        options = b",".join(head.all(b"connection")).lower()
        names = {name.strip() for name in options.split(b",")}
        if head.version == b"1.0":
            return b"keep-alive" not in names
        return b"close" in names

    def end(self, how: How, detail: str | None = None, unread: int | None = None) -> End:
        """The end, now."""
        return End(how, self._now(), detail, self._left, unread)

    async def run(self, wire: Wire) -> End:
        self.early = wire.peek()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._send, wire)
            end = await self._receive(wire)
            nursery.cancel_scope.cancel()
        if end.how is How.FRAMED:
            await self._linger(wire)
        return end

    async def _send(self, wire: Wire) -> None:
        try:
            for number, data in enumerate(self.script.request):
                if number and self.script.between:
                    await trio.sleep(self.script.between)
                await wire.send(data)
                self.segments.append(Segment(data, self._now()))
        except OSError:
            return  # the peer stopped listening; the reading side learns why
        self.sent_at = self._now()
        self._request_left.set()
        self._waiting.deadline = self._trio_deadline()

    async def _receive(self, wire: Wire) -> End:
        while True:
            if (end := self._over(wire)) is not None:
                return end
            try:
                with trio.CancelScope(deadline=self._trio_deadline()) as self._waiting:
                    await self._rest()
                    data, emptied = await wire.receive(self._at_once)
                    if (end := self._take(data, emptied)) is not None:
                        return end
            except TlsCut:
                self._http.close()
                return self.end(How.TLS_CUT)
            except OSError as error:
                self._http.close()
                return self.end(How.RESET, reason_of(error))

    async def _rest(self) -> None:
        """Read nothing for a while, where the script says so. Clocks and leaving go on."""
        slow = self.script.slow
        if slow is None:
            return
        if slow.rate is not None and self.reads:
            due = self.reads[-1].at or 0.0
            await trio.sleep(due + self._at_once / slow.rate - self._now())
        if slow.every is not None and self.reads:
            await trio.sleep((self.reads[-1].at or 0.0) + slow.every - self._now())
        if slow.pause and self._events >= slow.events and self._rested_until is None:
            if self.sent_at is None:
                await self._request_left.wait()
            if self._rested_from is None:
                self._rested_from = self._now()
                self._note(self._rested_from, "pause")
            await trio.sleep(self._rested_from + slow.pause - self._now())
            self._rested_until = self._progress_at = self._now()
            self._note(self._rested_until, "resume")

    @property
    def _at_once(self) -> int:
        """Bytes of one read: a tenth of a second's worth where a rate is given."""
        slow = self.script.slow
        if slow is None or slow.rate is None:
            return READ_SIZE
        return max(1, min(READ_SIZE, int(slow.rate / 10)))

    def _take(self, data: bytes, emptied: bool | None) -> End | None:
        if not data:
            self._http.close()
            return self.end(How.CLOSED)
        now = self._now()
        if not self.received:
            self._progress_at = now
            self._note(now, ANSWERED)
        self.received += data
        self._read_body(self._http.feed(data), now)
        if self._http.complete and self._http.end is not None:
            self.late += self.received[self._http.end :]
            del self.received[self._http.end :]
        self.reads.append(Read(len(self.received), now, emptied))
        return self.end(How.FRAMED) if self._http.complete else self._bound()

    def _read_body(self, body: bytes, now: float) -> None:
        had_body = self._headed
        self._headed = self._http.head is not None
        if self._headed and not had_body:
            self._progress_at = now
        if self._sse is None:
            events: list[sse.Event] = []
        else:
            events = [event for event in self._sse.feed(body) if event.data]
        self._events += len(events)
        if events or (body and not self._is_event_stream):
            self._progress_at = now
        if any(event.data.strip() == SENTINEL for event in events):
            self._sentinel_at = now

    @property
    def _is_event_stream(self) -> bool:
        head = self._http.head
        if self._sse is None or head is None:
            return False
        return (head.get(b"content-type") or b"").lower().startswith(b"text/event-stream")

    def _bound(self) -> End | None:
        bounds, head = self.script.bounds, self._http.head
        if head is None:
            over = "head" if len(self.received) > bounds.head else None
        elif len(self.received) - head.end > bounds.body or len(self.reads) >= bounds.reads:
            over = "body"
        else:
            over = "event" if self._sse is not None and self._sse.dead else None
        return None if over is None else self.end(How.BOUND, over)

    # -- clocks ----------------------------------------------------------------------------------

    def _clocks(self) -> list[tuple[float, str]]:
        """(time, name) of every clock that runs now."""
        clocks, leave, patience = self.script.clocks, self.script.leave, self.script.patience
        running = [(self._started + clocks.total, "total")]
        if self.received:
            running.append((self._progress_at + clocks.progress, "progress"))
        else:
            running.append(((self.sent_at or self._started) + clocks.first_byte, "first-byte"))
        if self._sentinel_at is not None:
            running.append((self._sentinel_at + clocks.closing, "progress"))
        if self.sent_at is not None and self._left is None:
            if patience is not None and not self._events:
                running.append((self.sent_at + patience, "patience"))
            if leave is not None and leave.seconds is not None:
                running.append((self.sent_at + leave.seconds, "leave"))
            if leave is not None and leave.events is not None and self._events >= leave.events:
                running.append((float("-inf"), "leave"))
        return running

    def _trio_deadline(self) -> float:
        return trio.current_time() + min(self._clocks())[0] - self._now()

    def _over(self, wire: Wire) -> End | None:
        """The end that a clock or the script's own leaving makes, if its time has come."""
        at, name = min(self._clocks())
        if at > self._now() + ROUNDING:
            return None
        if name not in ("leave", "patience"):
            return self.end(How.CLOCK, name)
        how = self.script.leave.how if name == "leave" and self.script.leave else "fin"
        self._left = how
        unread = wire.waiting()
        wire.leave(how)
        self._note(self._now(), how)
        return None if how == "half" else self.end(How.LEFT, name, unread)

    async def _linger(self, wire: Wire) -> None:
        """Bytes after the end of the message: those that wait, and those that come in time."""
        self.late += wire.peek()
        with trio.move_on_after(self.script.linger):
            while self.script.linger and len(self.late) < LATE_AT_MOST:
                try:
                    data, _ = await wire.receive()
                except (OSError, TlsCut):
                    data = b""  # the answer was whole; how the connection dies is not its end
                if not data:
                    self._closed = True
                    return
                self.late += data
