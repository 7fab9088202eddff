"""When requests are to start: offsets in seconds from the start of the load. Pure and seeded.

A process of rate 1 is drawn once and stretched over the rate: arrival number k stands where the
area under the rate reaches the k-th point of that process. No offset is computed from the wait
before it, so nothing drifts, and nothing is rescaled to end at a round time.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, count, islice, repeat, takewhile
from random import Random

from conformance.errors import UsageError

MOST_ARRIVALS = 10_000_000
MOST_RATE = 1e6  # requests a second
MOST_SECONDS = 1e7


@dataclass(frozen=True, slots=True)
class Stage:
    """The rate goes in a line from `first` to `last` (requests a second) over `seconds`."""

    first: float
    last: float
    seconds: float

    @property
    def area(self) -> float:
        """The number of arrivals to expect."""
        return (self.first + self.last) / 2 * self.seconds

    def reached(self, area: float) -> float:
        """Seconds into the stage at which that area lies behind; `area` within [0, self.area].

        The root of first·t + slope·t²/2 = area, in the form that stands for a slope of 0 too.
        """
        slope = (self.last - self.first) / self.seconds
        root = math.sqrt(max(0.0, self.first**2 + 2 * slope * area))
        return 0.0 if area <= 0 else min(self.seconds, 2 * area / (self.first + root))


@dataclass(frozen=True, slots=True)
class Process:
    """How arrivals scatter: `constant` has none, `poisson` a CV of 1, `gamma` the `cv` it names.

    CV: standard deviation of the times between arrivals over their mean.
    """

    kind: str
    cv: float

    def __str__(self) -> str:
        return f"gamma:{self.cv:g}" if self.kind == "gamma" else self.kind

    def points(self, rng: Random) -> Iterator[float]:
        """The process of rate 1, without end: 0, 1, 2, … where nothing scatters."""
        if self.kind == "constant":
            return (float(k) for k in count())
        return accumulate(self._steps(rng))

    def _steps(self, rng: Random) -> Iterator[float]:
        if self.kind == "poisson":
            return (rng.expovariate(1.0) for _ in repeat(None))
        shape = self.cv**-2
        return (rng.gammavariate(shape, 1 / shape) for _ in repeat(None))


CONSTANT = Process("constant", 0.0)
POISSON = Process("poisson", 1.0)


def offsets(process: Process, stages: Sequence[Stage], seed: int) -> Iterator[float]:
    """The arrivals of these stages, ascending, each less than the stages' end."""
    areas = list(accumulate((stage.area for stage in stages), initial=0.0))
    starts = list(accumulate((stage.seconds for stage in stages), initial=0.0))

    def when(point: float) -> float:
        number = min(bisect_right(areas, point), len(stages)) - 1
        return starts[number] + stages[number].reached(point - areas[number])

    points = takewhile(lambda p: p < areas[-1], process.points(Random(f"{seed}:arrivals")))
    return accumulate(map(when, points), max)  # the last bits of two roots may cross


def steady(rate: float, seconds: float) -> tuple[Stage, ...]:
    """One rate all the time."""
    return (Stage(rate, rate, seconds),)


def schedule(
    process: Process,
    stages: Sequence[Stage],
    seed: int,
    most: int | None = None,
) -> tuple[float, ...]:
    """The offsets, the first `most` of them. Raises UsageError where they are none or too many."""
    bound = MOST_ARRIVALS + 1 if most is None else most
    found = tuple(islice(offsets(process, stages, seed), bound))
    if len(found) > MOST_ARRIVALS:
        raise UsageError(f"expected at most {MOST_ARRIVALS} requests; lower the rate or the time")
    if not found:
        raise UsageError("no request would be sent: raise the rate or the time")
    return found


def for_requests(process: Process, rate: float, requests: int, seed: int) -> tuple[float, ...]:
    """That many arrivals at one rate, for as long as it takes."""
    if requests > MOST_ARRIVALS:
        raise UsageError(f"expected at most {MOST_ARRIVALS} requests")
    points = islice(process.points(Random(f"{seed}:arrivals")), requests)
    return tuple(point / rate for point in points)


_NUMBER = r"[0-9]+(?:\.[0-9]+)?"
_STAGE = re.compile(rf"({_NUMBER})(?:\.\.({_NUMBER}))?:({_NUMBER})")


def parse_process(text: str) -> Process:
    """`constant`, `poisson`, `gamma:CV`. Raises UsageError."""
    named = {"constant": CONSTANT, "poisson": POISSON}
    if text in named:
        return named[text]
    kind, _, number = text.partition(":")
    cv = _float(number)
    if kind != "gamma" or not 0.01 <= cv <= 100:
        raise UsageError(
            f"--arrivals {text}: expected constant, poisson or gamma:CV with a CV from 0.01 to 100"
        )
    return Process("gamma", cv)


def parse_stages(text: str) -> tuple[Stage, ...]:
    """`5:30,5..20:60`: 5 requests a second for 30 s, then from 5 to 20 over 60 s."""
    return tuple(_stage(part.strip()) for part in text.split(","))


def _stage(text: str) -> Stage:
    found = _STAGE.fullmatch(text)
    if found is None:
        raise UsageError(f"--stages {text}: expected RATE:SECONDS or FROM..TO:SECONDS")
    first = float(found[1])
    stage = Stage(first, float(found[2] or first), float(found[3]))
    if not (0 < stage.seconds <= MOST_SECONDS and max(stage.first, stage.last) <= MOST_RATE):
        limits = f"more than 0 and at most {MOST_SECONDS:.0f} s, at most {MOST_RATE:.0f}/s"
        raise UsageError(f"--stages {text}: expected {limits}")
    return stage


def _float(text: str) -> float:
    parse: Callable[[str], float] = float
    try:
        return parse(text)
    except ValueError:
        return math.nan
