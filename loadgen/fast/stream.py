"""Stream: what one exchange has brought so far, and whether it is over. Knows no socket.

Bytes are kept, and where each read ended and when; that is all that most reads cost. They are
looked at in two ways, both linear over the whole exchange:

- HTTP, for where the answer ends. A chunked body cannot end in a read that holds no line which
  could begin the last chunk, so what such reads brought is looked at later, at one go.
- Progress, by events where the script asks for them. Nobody has to know of it before a clock could
  run out, except where our side leaves after so many events.
"""

from __future__ import annotations

import re
from array import array
from dataclasses import replace
from functools import partial

from conformance import http1, sse
from conformance.capture import Capture, End, How, Read, Segment
from conformance.recorder import ROUNDING, SENTINEL
from conformance.script import Exchange

_SENTINEL = SENTINEL.encode()
# RFC 9112 section 7.1: last-chunk = 1*("0") [ chunk-ext ] CRLF; it stands at the start of a line.
# White space before it is wrong, and read all the same.
_last_chunk = re.compile(rb"\n[0 \t]").search  # half the cost of looking for one pair of bytes
# With which a read begins that may be the last chunk, or what the read before left of the sentinel
_ODD = b"0 \t" + _SENTINEL[1:]
CHECK = "check"  # nothing is over, but a clock may have come nearer
FOREVER = float("inf")


class Stream:
    """One exchange under way. Times are seconds on the recorder's clock."""

    __slots__ = (
        "_emptied",
        "_ends",
        "_fed",
        "_http",
        "_lazy",
        "_looked",
        "_pending_from",
        "_progress",
        "_room",
        "_suspected",
        "_times",
        "armed",
        "early",
        "end",
        "late",
        "left",
        "received",
        "script",
        "segments",
        "sent_at",
        "started",
    )

    def __init__(self, script: Exchange, started: float) -> None:
        self.script = script
        self.started = started
        self.received, self.late, self.early = bytearray(), bytearray(), b""
        self._ends, self._times, self._emptied = array("Q"), array("d"), array("b")
        self.segments: list[Segment] = []
        self.sent_at: float | None = None
        self.left: str | None = None
        self.end: End | None = None
        self.armed = FOREVER  # the next moment at which somebody asks `over`
        self._http = http1.Reader(script.method, max_head=script.bounds.head, spans=False)
        self._fed = 0  # bytes that it has had
        self._progress: _Progress | None = None
        self._looked = started  # the last progress that we know of
        self._suspected: float | None = None  # since when the sentinel may have been there
        self._lazy = False  # a body may be looked at later
        self._room = -1  # bytes up to which no bound is reached
        self._pending_from = 0  # no unfinished event begins before this byte

    @property
    def reusable(self) -> bool:
        """May the connection carry another exchange after this one?"""
        head = self._http.head
        if head is None or not self._http.complete or self.sent_at is None:
            return False
        # RFC 9112 section 9.3: "the connection will not persist" with the close option.
        options = {name.strip() for name in b",".join(head.all(b"connection")).lower().split(b",")}
        return b"keep-alive" in options if head.version == b"1.0" else b"close" not in options

    @property
    def reads(self) -> int:
        return len(self._ends)

    @property
    def is_calm(self) -> bool:
        """Is nothing but events expected from here on, and our side has not to react to any?"""
        return self._lazy and self.script.events

    def take(self, data: bytes, at: float, emptied: int) -> End | str | None:
        """One read that brought something. The End, if that was all; CHECK; or None: go on.

        `emptied`: did it empty the socket? False, True or UNSAID.
        """
        received = self.received
        received += data
        size = len(received)
        self._ends.append(size)
        self._times.append(at)
        self._emptied.append(emptied)
        if (
            self._lazy
            and size <= self._room
            and not _last_chunk(data)
            and _SENTINEL not in data
            and data[0] not in _ODD
            and len(data) >= len(_SENTINEL)
        ):
            return None
        return self._look(data, at)

    def _suspect(self, data: bytes, at: float) -> str | None:
        """Where the sentinel stands in the newest bytes its clock may run from here on."""
        if self._suspected is not None:
            return None
        if _SENTINEL not in self.received[-len(data) - len(_SENTINEL) :]:
            return None
        self._suspected = at
        return CHECK

    def _look(self, data: bytes, at: float) -> End | str:
        http = self._http
        http.follow(bytes(memoryview(self.received)[self._fed :]))
        self._fed = len(self.received)
        if http.complete and http.end is not None:
            self.late += self.received[http.end :]
            del self.received[http.end :]
            self._ends[-1] = len(self.received)
            return self.ended(How.FRAMED, at)
        if http.head is not None and self._room < 0:
            self._looked = at
        if self._is_eager:
            self._follow()
        over = self._bound()
        if over is not None:
            return self.ended(How.BOUND, at, over)
        self._suspect(data, at)
        self._relax()
        return CHECK

    @property
    def _is_eager(self) -> bool:
        """Does our side do something after so many events?"""
        leave = self.script.leave
        by_events = leave is not None and leave.events is not None
        return by_events or self.script.patience is not None

    def _relax(self) -> None:
        """May the next reads wait? Up to which size?"""
        http, bounds = self._http, self.script.bounds
        if http.head is None:
            return
        # A read brings a byte at least: so far ahead the number of reads cannot be too large.
        reads = len(self.received) + bounds.reads - len(self._ends) - 1
        self._room = min(http.head.end + bounds.body, reads)
        if self.script.events:
            self._room = min(self._room, self._pending_from + bounds.event)
        later = http.framing is http1.Framing.CLOSE or http.is_between or http.dead
        self._lazy = later and not self._is_eager

    def _bound(self) -> str | None:
        bounds, head, size = self.script.bounds, self._http.head, len(self.received)
        if head is None:
            return "head" if size > bounds.head else None
        if size - head.end > bounds.body or len(self._ends) >= bounds.reads:
            return "body"
        if self.script.events and size - self._pending_from > bounds.event:
            progress = self._follow()
            self._pending_from = progress.pending_from
            return "event" if progress.dead else None
        return None

    def _follow(self) -> _Progress:
        """Progress up to the last read."""
        if self._progress is None:
            self._progress = _Progress(self.script, self.started)
        self._progress.follow(self.received, self._ends, self._times)
        self._looked = self._progress.at
        return self._progress

    # -- clocks ------------------------------------------------------------------------------------

    def deadline(self) -> float:
        """No clock of this exchange runs out before that, as far as is known without looking."""
        earliest = min(self._clocks())[0]
        if self._suspected is not None:
            return min(earliest, self._suspected + self.script.clocks.closing)
        if self._times and not self._is_followed:
            # The sentinel may be in pieces that nobody has put together yet.
            return min(earliest, self._times[-1] + self.script.clocks.closing)
        return earliest

    @property
    def _is_followed(self) -> bool:
        return self._progress is not None and self._progress.reads == len(self._times)

    def over(self, now: float) -> tuple[How, str] | None:
        """How and by which clock the exchange is over, or is to be left."""
        if now < self.deadline() - ROUNDING:
            return None
        if self.received:
            self._follow()
        self._suspected = None
        at, name = min(self._clocks())
        if at > now + ROUNDING:
            return None
        return (How.LEFT if name in ("leave", "patience") else How.CLOCK), name

    def _clocks(self) -> list[tuple[float, str]]:
        """(time, name) of every clock that runs now."""
        clocks, leave, patience = self.script.clocks, self.script.leave, self.script.patience
        running = [(self.started + clocks.total, "total")]
        if self.received:
            running.append((self._looked + clocks.progress, "progress"))
        else:
            running.append(((self.sent_at or self.started) + clocks.first_byte, "first-byte"))
        events = 0
        if self._progress is not None:
            events = self._progress.events
            if self._progress.sentinel_at is not None:
                running.append((self._progress.sentinel_at + clocks.closing, "progress"))
        if self.sent_at is not None and self.left is None:
            if patience is not None and not events:
                running.append((self.sent_at + patience, "patience"))
            if leave is not None and leave.seconds is not None:
                running.append((self.sent_at + leave.seconds, "leave"))
            if leave is not None and leave.events is not None and events >= leave.events:
                running.append((-FOREVER, "leave"))
        return running

    # -- the end -----------------------------------------------------------------------------------

    def ended(
        self, how: How, at: float, detail: str | None = None, unread: int | None = None
    ) -> End:
        """The end, at that time."""
        return End(how, at, detail, self.left, unread)

    def capture(self, about: Capture, end: End) -> Capture:
        """The record; `about` has what only the connection knows."""
        emptied = map(_YES_NO.__getitem__, self._emptied)
        return replace(
            about,
            received=bytes(self.received),
            reads=tuple(map(_read, zip(self._ends, self._times, emptied, strict=True))),
            request=tuple(self.segments),
            url=self.script.url,
            early=self.early,
            late=bytes(self.late),
            sent_at=self.sent_at,
            end=end,
        )


UNSAID = 2
_read = partial(tuple.__new__, Read)
_YES_NO = (False, True, None)


class _Progress:
    """When the last progress was, followed read by read once anybody asks."""

    def __init__(self, script: Exchange, started: float) -> None:
        self._http = http1.Reader(script.method, max_head=script.bounds.head, spans=False)
        self._sse = sse.Reader(max_event=script.bounds.event) if script.events else None
        self.reads = 0
        self._upto = 0
        self._headed = False
        self.at = started
        self.sentinel_at: float | None = None
        self.events = 0
        self.pending_from = 0  # no unfinished event begins before this byte of the answer

    @property
    def dead(self) -> bool:
        """Was an event longer than we bear?"""
        return self._sse is not None and self._sse.dead

    def follow(self, received: bytearray, ends: array[int], times: array[float]) -> None:
        for index in range(self.reads, len(ends)):
            end = ends[index]
            self._step(bytes(received[self._upto : end]), times[index])
            self._upto = end
        self.reads = len(ends)

    def _step(self, data: bytes, at: float) -> None:
        if not self._upto:
            self.at = at
        body = self._http.feed(data)
        had_head, self._headed = self._headed, self._http.head is not None
        if self._headed and not had_head:
            self.at = at
        found = [] if self._sse is None else self._sse.feed(body)
        if found:
            self.pending_from = self._upto
        events = [event for event in found if event.data]
        self.events += len(events)
        if events or (body and not self._is_event_stream):
            self.at = at
        if any(event.data.strip() == SENTINEL for event in events):
            self.sentinel_at = at

    @property
    def _is_event_stream(self) -> bool:
        head = self._http.head
        if self._sse is None or head is None:
            return False
        return (head.get(b"content-type") or b"").lower().startswith(b"text/event-stream")
