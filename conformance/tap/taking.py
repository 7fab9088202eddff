"""What is kept of one exchange while it passes: a bounded copy with times.

The copy stops at a bound, of the exchange or of all together; the bytes still flow, and the reader
that knows where the answer ends still reads.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field

from conformance import http1
from conformance.capture import Capture, End, How, Read, Segment
from conformance.tap.request import Asked

MOST_ANSWER = 8 * 1024 * 1024  # bytes kept of one answer
MOST_REQUEST = 8 * 1024 * 1024
MOST_READS = 250_000
MOST_STRAY = 64 * 1024
MOST_TOGETHER = 128 * 1024 * 1024  # of all exchanges that are not judged yet
PER_READ = 32  # bytes that a read costs beside its data


@dataclass(slots=True)
class Budget:
    """Bytes that may still be kept."""

    left: int = MOST_TOGETHER

    def take(self, size: int) -> bool:
        if size > self.left:
            return False
        self.left -= size
        return True


@dataclass(frozen=True, slots=True)
class Taken:
    """One exchange that is over; small to send to another process: arrays, no record a read."""

    number: int
    asked: Asked
    url: str
    connection: int
    ordinal: int
    request: tuple[tuple[bytes, float], ...]
    received: bytes
    ends: array[int]
    times: array[float]
    emptied: bytes  # of each read: 0, 1, or 2 for unknown
    early: bytes
    late: bytes
    connected_at: float | None
    sent_at: float | None
    end: End
    wall: float
    began: float
    size: int  # what it took of the budget

    def capture(self) -> Capture:
        emptied = [(False, True, None)[each] for each in self.emptied]
        return Capture(
            received=self.received,
            reads=tuple(map(Read, self.ends, self.times, emptied)),
            request=tuple(Segment(data, at) for data, at in self.request),
            url=self.url,
            connection=self.connection,
            ordinal=self.ordinal,
            early=self.early,
            late=self.late,
            connected_at=self.connected_at,
            sent_at=self.sent_at,
            end=self.end,
            clock="user",
            wall=self.wall,
        )


@dataclass(slots=True)
class Taking:
    """One exchange while it passes. Times are seconds on the tap's clock."""

    number: int
    asked: Asked
    url: str
    connection: int
    ordinal: int
    connected_at: float | None
    began: float
    wall: float
    budget: Budget
    early: bytes = b""
    late: bytes = b""
    sent_at: float | None = None
    _request: list[tuple[bytes, float]] = field(default_factory=list)
    _sent: int = 0
    _received: bytearray = field(default_factory=bytearray)
    _ends: array[int] = field(default_factory=lambda: array("Q"))
    _times: array[float] = field(default_factory=lambda: array("d"))
    _emptied: bytearray = field(default_factory=bytearray)
    _size: int = 0
    _is_cut: bool = False
    _http: http1.Reader = field(init=False)

    def __post_init__(self) -> None:
        self._http = http1.Reader(self.asked.method.decode("ascii") or "POST", spans=False)

    @property
    def complete(self) -> bool:
        """Does the answer's framing say that it is whole?"""
        return self._http.complete

    def sent(self, data: bytes, at: float, *, last: bool) -> None:
        """A piece of the request went out."""
        self._sent += len(data)
        if self._sent <= MOST_REQUEST and self._takes(len(data)):
            self._request.append((data, at))
        else:
            self._is_cut = True
        if last:
            self.sent_at = at

    def got(self, data: bytes, at: float, emptied: bool | None) -> bytes:
        """A piece of the answer passed; returns what of it follows after the answer's end."""
        self._http.feed(data)
        rest = b""
        if self._http.complete and self._http.excess:
            rest = data[-self._http.excess :]
            data = data[: -self._http.excess]
        self._copy(data, at, emptied)
        return rest

    def _copy(self, data: bytes, at: float, emptied: bool | None) -> None:
        full = len(self._received) + len(data) > MOST_ANSWER or len(self._ends) >= MOST_READS
        if self._is_cut or full or not self._takes(len(data)):
            self._is_cut = True
            return
        self._received += data
        self._ends.append(len(self._received))
        self._times.append(at)
        self._emptied.append(2 if emptied is None else emptied)

    def _takes(self, size: int) -> bool:
        taken = self.budget.take(size + PER_READ)
        self._size += size + PER_READ if taken else 0
        return taken

    def over(self, end: End) -> Taken:
        """The exchange is over; a copy that was cut ends at our bound, whatever came after."""
        if self._is_cut:
            end = End(How.BOUND, self._times[-1] if self._times else end.at, "body", end.left)
        return Taken(
            number=self.number,
            asked=self.asked,
            url=self.url,
            connection=self.connection,
            ordinal=self.ordinal,
            request=tuple(self._request),
            received=bytes(self._received),
            ends=self._ends,
            times=self._times,
            emptied=bytes(self._emptied),
            early=self.early,
            late=self.late[:MOST_STRAY],
            connected_at=self.connected_at,
            sent_at=self.sent_at,
            end=end,
            wall=self.wall,
            began=self.began,
            size=self._size,
        )
