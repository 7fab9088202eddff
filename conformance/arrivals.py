"""When the text of a stream arrived: the recorded reads, laid over its events. Pure.

Times are seconds on the capture's clock. A record without times gives nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from conformance.chunks import Kind
from conformance.reading import Reading


@dataclass(frozen=True, slots=True)
class Arrival:
    """One event that brought text, and when its last byte was read."""

    at: float
    event: int  # ordinal
    chunk: int  # index into the reading's chunks


def arrivals(reading: Reading) -> tuple[Arrival, ...]:
    """Every event with text (content, reasoning, a tool call) whose arrival is on record."""
    return tuple(_timed(reading))


def _timed(reading: Reading) -> Iterator[Arrival]:
    reads = iter(reading.capture.reads)
    read = next(reads, None)
    for index, chunk in enumerate(reading.chunks):
        if chunk.kind is not Kind.CHUNK or not any(c.carries for c in chunk.choices):
            continue
        end = reading.place(chunk.event.end - 1) + 1
        while read is not None and read.end < end:
            read = next(reads, None)
        if read is None:
            return
        if read.at is not None:
            yield Arrival(read.at, chunk.event.ordinal, index)


def rate(found: Sequence[Arrival]) -> float | None:
    """Events a second from the first to the last; None where they came at once."""
    if len(found) < 2 or found[-1].at <= found[0].at:
        return None
    return (len(found) - 1) / (found[-1].at - found[0].at)


def gaps(found: Iterable[Arrival], start: float, end: float) -> tuple[float, ...]:
    """Times between neighbours, of pairs that lie within [start, end]."""
    within = [each.at for each in found if start <= each.at <= end]
    return tuple(b - a for a, b in pairwise(within))


def share(values: Sequence[float], above: float) -> float:
    """The share of the values that are greater; 0 of none."""
    return sum(value > above for value in values) / len(values) if values else 0.0
