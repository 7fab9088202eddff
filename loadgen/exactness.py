"""Which instants are values, and which only bounds: the kernel's stamps read with care. Pure.

The kernel stamps segments and gives a read the stamp of the last one it took. So the time of an
event is a value where its read began with an empty queue, took all that was there, and brought the
end of this one event and nothing behind it but the end of its HTTP chunk: that stamp is then the
event's own. Everywhere else the event came at that time or before: a bound. When a read returned
(the user clock) is always one.
"""

from __future__ import annotations

from collections.abc import Iterator

from conformance.capture import Read
from conformance.reading import Reading


def exact(reading: Reading) -> tuple[bool, ...]:
    """For every event of the reading, in order: is its time a value?"""
    capture = reading.capture
    if capture.clock != "kernel":
        return (False,) * len(reading.chunks)
    return tuple(_marked(reading))


def _marked(reading: Reading) -> Iterator[bool]:
    received = reading.capture.received
    reads = _windows(reading.capture.reads)
    window = next(reads, None)
    ended, behind = 0, b""  # events that the current read ended, and what it brought besides
    for chunk in reading.chunks:
        place = reading.place(chunk.event.end - 1) + 1
        while window is not None and window[0] < place:
            yield from _settled(ended, window, behind)
            ended, window = 0, next(reads, None)
        ended += 1
        behind = b"" if window is None else received[place : min(window[0], place + _ENOUGH)]
    yield from _settled(ended, window, behind)


# RFC 9112 section 7.1: chunk = chunk-size [ chunk-ext ] CRLF chunk-data CRLF
_OWN = (b"", b"\r", b"\r\n")
_ENOUGH = 3


def _windows(reads: tuple[Read, ...]) -> Iterator[tuple[int, bool]]:
    """(end, did it begin and end with an empty queue) of every read."""
    empty = True  # what waited before the request is not among the reads
    for read in reads:
        yield read.end, empty and read.emptied is True
        empty = read.emptied is True


def _settled(ended: int, window: tuple[int, bool] | None, behind: bytes) -> tuple[bool, ...]:
    is_value = window is not None and ended == 1 and window[1] and behind in _OWN
    return (is_value,) * ended
