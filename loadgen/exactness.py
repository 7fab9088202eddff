"""Which instants are values, and which only bounds: the kernel's stamps read with care. Pure.

The kernel stamps segments, gives those that it merges in its queue the newest stamp, and gives a
read the stamp of the last one that it took from. So where a read took all that there was, its stamp
is that of its last byte: a value for an event that ends there, with nothing behind it but the end
of its HTTP chunk. (A server that sends a chunk's end apart from its data is found out by a read
that ends between the two; then nothing at all may follow.) Every other event came at that time or
before: a bound. It came after the last stamp at which the queue is known to have been empty, and
after the request had left.

When a read returned (the user clock) is always a bound, and nothing is known below it. Where the
reads of a capture are the arrivals of packets, every time is a value.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from conformance import http1
from conformance.reading import Reading


class Moment(NamedTuple):  # one an event: cheaper to make than a frozen dataclass
    """An event came at `at` or before, and not before `earliest`; None: nobody knows.

    `is_value`: it came at `at`, and the two are equal.
    """

    at: float
    earliest: float | None
    is_value: bool


# RFC 9112 section 7.1: chunk = chunk-size [ chunk-ext ] CRLF chunk-data CRLF
_OWN = (b"", b"\r", b"\r\n")
_STAMPED, _SEEN = "kernel", "packet"


def moments(reading: Reading) -> list[Moment | None]:
    """One for every event of the reading, in order; None: its end or its time is not known."""
    ends = wire_ends(reading)
    if reading.capture.clock == _STAMPED:
        return _stamped(reading, ends)
    is_value = reading.capture.clock == _SEEN
    reads = iter(reading.capture.reads)
    read = next(reads, None)
    found: list[Moment | None] = []
    for end in ends:
        while read is not None and read.end < end:
            read = next(reads, None)
        at = None if read is None else read.at
        found.append(None if at is None else Moment(at, at if is_value else None, is_value))
    return found


def _stamped(reading: Reading, ends: Sequence[int]) -> list[Moment | None]:
    received, reads = reading.capture.received, iter(reading.capture.reads)
    own = (b"",) if _sends_ends_apart(reading, ends) else _OWN
    since, read = _asked_at(reading), next(reads, None)
    found: list[Moment | None] = []
    for end in ends:
        while read is not None and read.end < end:
            if read.emptied is True and read.at is not None:
                since = read.at
            read = next(reads, None)
        if read is None or read.at is None:
            found.append(None)
            continue
        is_value = read.emptied is True and received[end : min(read.end, end + 3)] in own
        found.append(Moment(read.at, read.at if is_value else min(since, read.at), is_value))
    return found


def _sends_ends_apart(reading: Reading, ends: Sequence[int]) -> bool:
    if reading.framing is not http1.Framing.CHUNKED:
        return False
    return not {read.end for read in reading.capture.reads}.isdisjoint(ends)


def _asked_at(reading: Reading) -> float:
    """No event of the answer is earlier: when the request had left, or the recorder's making.

    Our process may have been stopped between the send and the look at the clock.
    """
    sent, reads = reading.capture.sent_at, reading.capture.reads
    first = reads[0].at if reads else None
    return sent if sent is not None and first is not None and sent < first else 0.0


def wire_ends(reading: Reading) -> list[int]:
    """For every event, in order: the offset in `received` behind its last byte."""
    spans, number, shift = reading.spans, -1, 0
    last, found = len(spans) - 1, []
    for chunk in reading.chunks:
        end = chunk.event.end
        while number < last and spans[number + 1].body < end:
            number += 1
            shift = spans[number].wire - spans[number].body
        found.append(end + shift)
    return found


def exact(reading: Reading) -> tuple[bool, ...]:
    """For every event of the reading, in order: is its time a value?"""
    return tuple(moment is not None and moment.is_value for moment in moments(reading))
