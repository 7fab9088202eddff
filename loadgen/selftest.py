"""The tool's own error: what it measured against when the server says that it wrote. Pure.

An event's error is its time less the moment at which the server began the write that held it, both
on the machine's monotonic clock: what the write itself took is counted against us.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from conformance.capture import Json
from conformance.chunks import Chunk
from conformance.reading import Reading
from loadgen.exactness import exact
from loadgen.measure import chunk_times
from loadgen.quantiles import quantile

BODY = "body"
LOOKS = 9  # at two clocks
NOISE = 20e-6  # seconds; two looks at two clocks differ by less
Write = tuple[float, float]  # when it began and when it had returned


@dataclass(frozen=True, slots=True)
class Error:
    """Seconds; positive: we were late. `is_value`: the time was a value, not a bound.

    `outside`: how far the time lies outside the write itself, from its beginning to its return.
    """

    seconds: float
    is_value: bool
    outside: float = 0.0


@dataclass(frozen=True, slots=True)
class Errors:
    """Of one answer, or of many: of the first event with text, of each, and of the gaps.

    `unmatched`: answers that the log does not tell of event by event.
    """

    ttft: tuple[Error, ...] = ()
    instants: tuple[Error, ...] = ()
    gaps: tuple[Error, ...] = ()
    events: int = 0
    unmatched: int = 0


@dataclass(frozen=True, slots=True)
class Figures:
    """`bias`: the mean error; `p50`, `p99`, `most` of its size. None: too few."""

    n: int
    bias: float | None
    p50: float | None
    p99: float | None
    most: float | None


def zero_of(clock: Callable[[], float], now: Callable[[], float]) -> float:
    """What `clock` said when `now`, by the same clock since, was 0.

    Whoever is stopped between the two looks finds too little, so the most of a few tries is right.
    """
    return max(clock() - now() for _ in range(LOOKS))


def writes_from(log: Iterable[str]) -> dict[str, tuple[Write, ...]]:
    """Answer's id → each write of its body, from the server's log."""
    told = map(json.loads, log)
    return {
        str(one["id"]): tuple(
            (begun, done) for part, begun, done, _ in one["writes"] if part == BODY
        )
        for one in told
    }


def errors_of(reading: Reading, writes: Mapping[str, Sequence[Write]], origin: float) -> Errors:
    """`origin`: the monotonic clock at the zero of the capture's."""
    times = list(chunk_times(reading))
    known = _writes(reading, writes)
    if known is None or len(known) != len(times) or None in times:
        return Errors(unmatched=1)
    errors = [
        _error(origin + at, write, is_value)
        for chunk, at, write, is_value in zip(
            reading.chunks, times, known, exact(reading), strict=True
        )
        if at is not None and _carries(chunk)
    ]
    return Errors(tuple(errors[:1]), tuple(errors), tuple(_gaps(errors)), len(times))


def _error(at: float, write: Write, is_value: bool) -> Error:
    begun, done = write
    return Error(at - begun, is_value, max(0.0, begun - at, at - done))


def _writes(reading: Reading, writes: Mapping[str, Sequence[Write]]) -> Sequence[Write] | None:
    name = reading.head.get(b"x-request-id") if reading.head else None
    return None if name is None else writes.get(name.decode("ascii", "replace"))


def _carries(chunk: Chunk) -> bool:
    return any(choice.carries for choice in chunk.choices)


def _gaps(errors: Sequence[Error]) -> Iterator[Error]:
    """The error of a gap is the difference of those of its ends."""
    for before, after in pairwise(errors):
        yield Error(after.seconds - before.seconds, before.is_value and after.is_value)


def together(each: Iterable[Errors]) -> Errors:
    found = list(each)
    return Errors(
        tuple(error for one in found for error in one.ttft),
        tuple(error for one in found for error in one.instants),
        tuple(error for one in found for error in one.gaps),
        sum(one.events for one in found),
        sum(one.unmatched for one in found),
    )


def figures(errors: Iterable[Error]) -> Figures:
    signed = [error.seconds for error in errors]
    sizes = sorted(map(abs, signed))
    if not sizes:
        return Figures(0, None, None, None, None)
    half, tail = quantile(sizes, 0.5).value, quantile(sizes, 0.99).value
    return Figures(len(sizes), statistics.fmean(signed), half, tail, sizes[-1])


def outside(errors: Errors) -> tuple[int, float]:
    """How many values lie outside their write by more than `NOISE`, and by how much at most."""
    off = [error.outside for error in errors.instants if error.is_value]
    return sum(each > NOISE for each in off), max(off, default=0.0)


def shares(errors: Errors) -> dict[str, tuple[Figures, Figures]]:
    """Metric → the figures of all its errors, and of those between values alone."""
    return {
        name: (figures(found), figures(error for error in found if error.is_value))
        for name, found in (("ttft", errors.ttft), ("gap", errors.gaps))
    }


def document(found: Figures) -> dict[str, Json]:
    """Seconds."""
    return {
        "n": found.n,
        "bias": found.bias,
        "p50": found.p50,
        "p99": found.p99,
        "max": found.most,
    }
