"""Where a server stops keeping its objectives: doubling, then bisection, repeated trials. Pure.

    search = Search(start=1.0, most=1000.0, resolution=0.05, trials=3)
    while (rate := search.rate) is not None:
        search.tell(Trial(rate, Outcome.MET))

A rate is decided by the majority of its trials. From the first rate it doubles until one is missed
(or halves until one is met), then cuts the interval in the geometric middle until its ends are
within the resolution.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum

LEAST_RATE = 0.01  # requests a second; below, the search gives up
SAMPLES_AT_LEAST = 12
STILL = 0.25  # of the growth must lie in the later half of it
GROWTH, MORE = 1.5, 16  # the last third's median in flight over the first's: so many times, so many


class Outcome(Enum):
    """Of one trial."""

    MET = "met"
    MISSED = "missed"
    SATURATED = "over-saturated"  # stopped early: what was in flight only grew
    UNTOLD = "cannot be told"  # the client was the limit, or too few samples


@dataclass(frozen=True, slots=True)
class Trial:
    """One load at one rate; `detail`: which objective was missed, or why it cannot be told."""

    rate: float
    outcome: Outcome
    detail: str = ""


@dataclass(slots=True)
class Search:
    """`most`: no rate above it is tried. `trials`: of each rate at most; odd, for a majority."""

    start: float
    most: float
    resolution: float
    trials: int = 3
    told: list[Trial] = field(default_factory=list)
    met: float | None = None  # the highest rate that was met
    missed: float | None = None  # the lowest that was missed
    untold: Trial | None = None  # ended the search
    rate: float | None = None  # to be tried next; None: the search is over

    def __post_init__(self) -> None:
        self.rate = min(self.start, self.most)

    def tell(self, trial: Trial) -> None:
        """What came of one trial at `rate`."""
        self.told.append(trial)
        if trial.outcome is Outcome.UNTOLD:
            self.untold, self.rate = trial, None
            return
        decided = self._decided(trial.rate)
        if decided is None:
            return
        if decided:
            self.met = trial.rate
        else:
            self.missed = trial.rate
        self.rate = self._next()

    def _decided(self, rate: float) -> bool | None:
        """Was it met? None: one more trial. A saturated one needs no second."""
        found = [trial.outcome for trial in self.told if trial.rate == rate]
        met = found.count(Outcome.MET)
        missed = len(found) - met
        need = self.trials // 2 + 1
        if met >= need:
            return True
        return False if missed >= need or Outcome.SATURATED in found else None

    def _next(self) -> float | None:
        if self.missed is None:
            assert self.met is not None
            return None if self.met >= self.most else min(self.most, 2 * self.met)
        if self.met is None:
            below = self.missed / 2
            return None if below < LEAST_RATE else below
        if self.missed / self.met <= 1 + self.resolution:
            return None
        return math.sqrt(self.met * self.missed)

    @property
    def why(self) -> tuple[str, ...]:
        """What was missed at the lowest rate that was, each once."""
        lost = [t for t in self.told if t.rate == self.missed and t.outcome is not Outcome.MET]
        return tuple(dict.fromkeys(trial.detail for trial in lost if trial.detail))

    @property
    def disagreed(self) -> tuple[float, ...]:
        """Rates whose trials did not all end alike."""
        rates = dict.fromkeys(trial.rate for trial in self.told)
        met = {r: {t.outcome is Outcome.MET for t in self.told if t.rate == r} for r in rates}
        return tuple(rate for rate, outcomes in met.items() if len(outcomes) > 1)


def is_saturated(in_flight: Sequence[int]) -> bool:
    """Has what is in flight only grown? `in_flight`: looked at in equal steps of time."""
    third = len(in_flight) // 3
    if len(in_flight) < SAMPLES_AT_LEAST:
        return False
    parts = (in_flight[:third], in_flight[third : 2 * third], in_flight[2 * third :])
    first, second, last = (statistics.median(part) for part in parts)
    grown = last - first
    return last >= GROWTH * first and grown >= MORE and last - second >= STILL * grown
