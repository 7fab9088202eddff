"""Runs → independent units for a comparison: whole runs, or blocks of time within them. Pure.

Requests of one run depend on each other (they queue behind each other), so a test over single
requests finds differences where there are none. A unit is a run where there are enough of them;
else a block at least ten mean request times long, and twice as long again for as long as
neighbouring blocks still resemble each other.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from loadgen.formulas import METRICS
from loadgen.measure import Row
from loadgen.result import Result
from loadgen.summary import Window, counted_rows

# On either side. Six against six can be told apart in 924 ways, so that the most extreme has a p of
# 2/924, which stays below 5 % when it is corrected for nine measures; of five against five, 2/252.
RUNS_AT_LEAST = 6
BLOCKS_AT_LEAST = 8
REQUEST_TIMES = 10.0
ALIKE = 0.25  # correlation of neighbouring blocks above which they are made longer
CHANCE = 1.64  # over the root of their number: what independent ones exceed once in twenty times
FINEST = 400  # blocks of a run at most


@dataclass(frozen=True, slots=True)
class Unit:
    """The measured rows of one run or block; `seconds`: how long it is."""

    rows: tuple[Row, ...]
    seconds: float


@dataclass(frozen=True, slots=True)
class Units:
    """`kind`: "run" or "block". `seconds` None: of runs. `alike`: None where it cannot be told."""

    kind: str
    seconds: float | None
    first: tuple[Unit, ...]
    second: tuple[Unit, ...]
    alike: float | None = None


def units_of(first: Sequence[Result], second: Sequence[Result]) -> Units | None:
    """The units of both sides; None where the runs are too short for enough of them."""
    if min(len(first), len(second)) >= RUNS_AT_LEAST:
        return Units("run", None, tuple(map(_whole, first)), tuple(map(_whole, second)))
    shortest = min(run.summary.window.seconds for run in (*first, *second))
    seconds = max(REQUEST_TIMES * request_time((*first, *second)), shortest / FINEST)
    while True:
        cut = [[_blocks(run, seconds) for run in side] for side in (first, second)]
        if min(sum(map(len, side)) for side in cut) < BLOCKS_AT_LEAST:
            return None
        alike = likeness([run for side in cut for run in side])
        pairs = sum(len(run) - 1 for side in cut for run in side if run)
        if alike is None or alike <= max(ALIKE, CHANCE / math.sqrt(pairs)):
            sides = [tuple(block for run in side for block in run) for side in cut]
            return Units("block", seconds, sides[0], sides[1], alike)
        seconds *= 2


def request_time(runs: Sequence[Result]) -> float:
    """Mean seconds from a request's intended start to its end."""
    rows = [r for run in runs for r in counted_rows(run.rows) if r.success and r.ended is not None]
    return statistics.fmean([(row.ended or 0.0) - row.intended for row in rows]) if rows else 0.0


def measured(run: Result) -> list[Row]:
    window = run.summary.window
    return [row for row in counted_rows(run.rows) if window.holds(row.intended)]


def _whole(run: Result) -> Unit:
    return Unit(tuple(measured(run)), run.summary.window.seconds)


def _blocks(run: Result, seconds: float) -> list[Unit]:
    """Equal ones, at least so long, that fill the window."""
    window: Window = run.summary.window
    count = int(window.seconds / seconds) if seconds > 0 else 0
    if count < 1:
        return []
    length = window.seconds / count
    rows: list[list[Row]] = [[] for _ in range(count)]
    for row in measured(run):
        rows[min(count - 1, int((row.intended - window.start) / length))].append(row)
    return [Unit(tuple(each), length) for each in rows]


_LEVELS: Sequence[Callable[[Row], tuple[float, ...]]] = [
    METRICS[name].values for name in ("ttft", "e2e")
]


def likeness(runs: Sequence[Sequence[Unit]]) -> float | None:
    """The greatest correlation of neighbouring blocks, over what is compared; None: too few."""
    found = [_correlation([_means(run, values) for run in runs]) for values in _LEVELS]
    known = [each for each in found if each is not None]
    return max(known, default=None)


def _means(run: Sequence[Unit], values: Callable[[Row], tuple[float, ...]]) -> list[float]:
    pools = ([v for row in unit.rows if row.success for v in values(row)] for unit in run)
    return [statistics.fmean(pool) for pool in pools if pool]


def _correlation(series: Sequence[Sequence[float]]) -> float | None:
    """Each run about its own mean; corrected for the −1/n that short series show."""
    products, squares, pairs = 0.0, 0.0, 0
    for values in series:
        mean = statistics.fmean(values) if values else 0.0
        apart = [value - mean for value in values]
        squares += sum(a * a for a in apart)
        products += sum(a * b for a, b in pairwise(apart))
        pairs += max(0, len(values) - 1)
    if squares <= 0 or pairs < 4:
        return None
    return products / squares + 1 / (pairs + 1)
