"""Is the second of two loads worse than the first, or is that noise? Pure and seeded.

Every measure is a ratio of sums over units (see `blocks`): a mean, a rate, a share, or for a
percentile the share of values above the one of both sides together. What is asked of each: how
often does a random split of the same units into two sides differ at least as much (a permutation
test, two-sided; Holm's correction over the measures)?
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from random import Random

from loadgen.blocks import Unit, Units
from loadgen.formulas import METRICS
from loadgen.measure import Row
from loadgen.quantiles import quantile

SPLITS = 1999
LEVEL = 0.05
THRESHOLD = 0.05  # of the first side's value, or
POINTS = 0.01  # for a share
BEYOND = 10  # values that must lie beyond a percentile, on either side

Pair = tuple[float, float]  # numerator and denominator of one unit


class Change(Enum):
    """What became of one measure."""

    WORSE = "worse"
    BETTER = "better"
    SAME = "no difference"  # within the noise, or too small to matter
    UNKNOWN = "unknown"  # a side has too few values


@dataclass(frozen=True, slots=True)
class Measure:
    """`pairs`: the sums of each unit, `cut` being the percentile's value of both sides together.

    `more_is_worse`: the direction; `is_share`: differences are points, not parts of the first.
    """

    name: str
    unit: str
    pairs: Callable[[Unit, float], Pair]
    more_is_worse: bool = True
    is_share: bool = False
    metric: str | None = None
    q: float | None = None


@dataclass(frozen=True, slots=True)
class Difference:
    """One measure on both sides. `first`, `second`: its values, None where too few.

    `difference`: second − first, in parts of the first or, for a share, in points. `noise`: what
    95 % of the random splits stay below, the same way; None for percentiles. `p`: corrected.
    """

    measure: Measure
    first: float | None
    second: float | None
    difference: float | None = None
    noise: float | None = None
    p: float | None = None
    change: Change = Change.UNKNOWN


def _mean(name: str) -> Measure:
    def pairs(unit: Unit, cut: float) -> Pair:
        values = list(_values(name, unit.rows))
        return sum(values), len(values)

    return Measure(f"{name} mean", "s", pairs, metric=name)


def _tail(name: str, q: float) -> Measure:
    def pairs(unit: Unit, cut: float) -> Pair:
        values = list(_values(name, unit.rows))
        return sum(value > cut for value in values), len(values)

    return Measure(f"{name} p{q * 100:g}", "s", pairs, metric=name, q=q)


def _tokens(unit: Unit, cut: float) -> Pair:
    return sum(row.completion_tokens or 0 for row in unit.rows if row.success), unit.seconds


def _failed(unit: Unit, cut: float) -> Pair:
    return sum(not row.success for row in unit.rows), len(unit.rows)


MEASURES = (
    _mean("ttft"),
    _tail("ttft", 0.9),
    _tail("ttft", 0.99),
    _mean("tpot"),
    _tail("gap", 0.99),
    _mean("e2e"),
    _tail("e2e", 0.99),
    Measure("output tokens a second", "1/s", _tokens, more_is_worse=False),
    Measure("failed", "share", _failed, is_share=True),
)


def _values(name: str, rows: Sequence[Row]) -> Iterator[float]:
    return (value for row in rows if row.success for value in METRICS[name].values(row))


def differences(
    units: Units, seed: int, threshold: float = THRESHOLD, splits: int = SPLITS
) -> tuple[Difference, ...]:
    """Every measure, in order. `threshold`: what is too small to matter, in parts of the first."""
    found = [_difference(measure, units, seed, splits) for measure in MEASURES]
    return tuple(_judged(each, threshold) for each in _corrected(found))


def _difference(measure: Measure, units: Units, seed: int, splits: int) -> Difference:
    cut, values = _quantiles(measure, units)
    first, second = ([measure.pairs(u, cut) for u in side] for side in (units.first, units.second))
    means = (_ratio(first), _ratio(second))
    levels = values if measure.q is not None else means
    if None in levels or None in means:
        return Difference(measure, *levels)
    a, b = (level or 0.0 for level in levels)
    base = 1.0 if measure.is_share else a
    if base == 0:
        return Difference(measure, a, b)
    p, noise = _permuted(first, second, Random(f"{seed}:{measure.name}"), splits)
    relative = None if measure.q is not None else noise / base
    return Difference(measure, a, b, (b - a) / base, relative, p)


def _quantiles(measure: Measure, units: Units) -> tuple[float, tuple[float | None, float | None]]:
    """Of both sides together, and of each; None with fewer than BEYOND values beyond."""
    if measure.q is None or measure.metric is None:
        return 0.0, (None, None)
    name, q = measure.metric, measure.q
    sides = [
        sorted(v for unit in side for v in _values(name, unit.rows))
        for side in (units.first, units.second)
    ]
    if min(map(len, sides)) * min(q, 1 - q) < BEYOND - 1e-9:
        return 0.0, (None, None)
    together = quantile(sorted([*sides[0], *sides[1]]), q).value
    return together or 0.0, (quantile(sides[0], q).value, quantile(sides[1], q).value)


def _ratio(pairs: Sequence[Pair]) -> float | None:
    below = sum(d for _, d in pairs)
    return sum(n for n, _ in pairs) / below if below else None


def _permuted(
    first: Sequence[Pair], second: Sequence[Pair], rng: Random, splits: int
) -> tuple[float, float]:
    """The p-value, and what 95 % of the splits stay below."""
    pairs = [*first, *second]
    total_n, total_d = sum(n for n, _ in pairs), sum(d for _, d in pairs)

    def apart(chosen: Sequence[Pair]) -> float:
        n, d = sum(n for n, _ in chosen), sum(d for _, d in chosen)
        return abs((total_n - n) / (total_d - d) - n / d) if 0 < d < total_d else 0.0

    seen = apart(first)
    drawn = sorted(apart(rng.sample(pairs, len(first))) for _ in range(splits))
    extreme = sum(each >= seen * (1 - 1e-12) for each in drawn)
    return (extreme + 1) / (splits + 1), drawn[math.ceil(0.95 * splits) - 1]


def _corrected(found: Sequence[Difference]) -> list[Difference]:
    """Holm: the smallest of m p-values times m, the next times m − 1, …, never descending."""
    known = sorted((each.p, n) for n, each in enumerate(found) if each.p is not None)
    out, floor = list(found), 0.0
    for rank, (p, number) in enumerate(known):
        floor = max(floor, min(1.0, p * (len(known) - rank)))
        out[number] = replace(found[number], p=floor)
    return out


def _judged(found: Difference, threshold: float) -> Difference:
    if found.p is None or found.difference is None:
        return found
    matters = POINTS if found.measure.is_share else threshold
    if found.p > LEVEL or abs(found.difference) <= matters:
        return replace(found, change=Change.SAME)
    worse = (found.difference > 0) is found.measure.more_is_worse
    return replace(found, change=Change.WORSE if worse else Change.BETTER)
