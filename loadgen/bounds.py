"""How well a run knows its times: which are values, and between what the others leave its figures.

Of a time that is only a bound the row has the earliest moment as well. So each gap has a least and
a most, and the k-th smallest of the true gaps lies between the k-th smallest of these. Where the
two are apart a figure cannot be told: it is between them. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from operator import attrgetter

from loadgen.formulas import METRICS
from loadgen.measure import Row

Limits = tuple[float, float]  # at least, at most
APART = 20e-6  # seconds that do not matter, or
APART_SHARE = 0.01  # of the figure, or where it is a mean over many gaps
# (the last of which is nearly always open: the end of the answer comes with the last token)
APART_MEANS = 0.05
SAID = (
    "a chunk's time is a value where the stamp is of that chunk alone; else the chunk came then or "
    "before: a bound. A figure that bounds leave open by more than 20 µs and 1 % (tpot and the "
    "mean gap: 5 %) is null; `between` has the least and the most that it can be, `as_read` what "
    "the times say as they are. By the user clock every time is when a read returned: a bound of "
    "which it is not known how far it is off. So a latency is at most what was read, and of what "
    "lies between two reads (tpot, gap, stall) no most is known"
)
AT_MOST, AS_READ = "≤", "≈"


@dataclass(frozen=True, slots=True)
class Known:
    """Chunks with text, and the first of each request: how many, and how many times are bounds."""

    chunks: int
    bounds: int
    first: int
    first_bounds: int

    @property
    def share(self) -> float | None:
        """Of the times that are bounds."""
        return self.bounds / self.chunks if self.chunks else None


def known(rows: Iterable[Row]) -> Known:
    """`bounds` None, as in what an older version stored: all of them."""
    chunks = bounds = first = first_bounds = 0
    for row in rows:
        if row.token_times:
            chunks += len(row.token_times)
            bounds += len(row.token_times) if row.bounds is None else row.bounds
            first += 1
            first_bounds += not is_first_value(row)
    return Known(chunks, bounds, first, first_bounds)


def is_first_value(row: Row) -> bool:
    """Is the time of the first token a value?"""
    return row.bounds == 0 or row.earliest[:1] == row.token_times[:1] != ()


def open_to_doubt(rows: Sequence[Row]) -> bool:
    """Is there a bound below which something is known?"""
    return any(row.earliest for row in rows)


def is_by_reads(load: Mapping[str, object]) -> bool:
    """Is every time of this load when a read returned? `load`: as it is described."""
    return load.get("clock") == "user"


def mark(metric: str) -> str:
    """What a figure is as its times were read, where these are bounds; empty: the client's own."""
    found = METRICS.get(metric)
    if found is None or found.clients:
        return ""
    return AS_READ if found.between else AT_MOST


def by_reads(metric: str, read: Mapping[str, float | None]) -> dict[str, Limits]:
    """Between what the statistics lie that were `read` where every time is a bound: nothing is
    known of the least, and of a difference not of the most either. Who failed stays infinite."""
    if not (sign := mark(metric)):
        return {}
    known = {name: value for name, value in read.items() if value is not None and value < math.inf}
    return {name: (0.0, v if sign == AT_MOST else math.inf) for name, v in known.items()}


def _earliest(row: Row) -> Sequence[float]:
    return row.earliest or row.token_times


def _first(origin: Callable[[Row], float | None]) -> Callable[[Row], Iterator[Limits]]:
    def within(row: Row) -> Iterator[Limits]:
        start = origin(row)
        if start is not None and row.token_times:
            yield _earliest(row)[0] - start, row.token_times[0] - start

    return within


def _gaps(row: Row) -> Iterator[Limits]:
    both = zip(_earliest(row), row.token_times, strict=True)
    for (early, late), (next_early, next_late) in pairwise(both):
        yield max(0.0, next_early - late), next_late - early


def _stall(row: Row) -> Iterator[Limits]:
    found = list(_gaps(row))
    if found:
        yield max(least for least, _ in found), max(most for _, most in found)


def _tpot(row: Row) -> Iterator[Limits]:
    early, late = _earliest(row), row.token_times
    if row.tpot is not None and (after := row.tokens_after):
        yield max(0.0, early[-1] - late[0]) / after, (late[-1] - early[0]) / after


def _answer(origin: Callable[[Row], float | None]) -> Callable[[Row], Iterator[Limits]]:
    def within(row: Row) -> Iterator[Limits]:
        start, answer = origin(row), row.first_answer
        if start is not None and answer is not None and answer in row.token_times:
            yield _earliest(row)[row.token_times.index(answer)] - start, answer - start

    return within


# Metric → between what each of its values lies; the others are of reads, not of chunks with text.
WITHIN: Mapping[str, Callable[[Row], Iterator[Limits]]] = {
    "ttft": _first(attrgetter("intended")),
    "ttft@sent": _first(attrgetter("sent")),
    "first-answer": _answer(attrgetter("intended")),
    "first-answer@sent": _answer(attrgetter("sent")),
    "tpot": _tpot,
    "gap": _gaps,
    "stall": _stall,
}


def allowed(metric: str, statistic: str, value: float) -> float:
    """Seconds that the least and the most of a figure may lie apart for it to be told."""
    of_many = metric == "tpot" or (metric, statistic) == ("gap", "mean")
    return max(APART, (APART_MEANS if of_many else APART_SHARE) * value)
