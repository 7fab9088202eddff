"""Objectives as text, `ttft:p99<500ms`, and whether a run meets them. Pure.

A request that failed counts as infinitely slow, so an endpoint cannot meet an objective by refusing
work. A percentile that the sample cannot tell is undecided, never met. Times that are only bounds
are taken as they were read: what is met by "at most" is met, and what is missed by it is missed, as
it was not shown to be met; `Judged.is_open` says so.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum

from conformance.errors import UsageError
from loadgen.formulas import METRICS

SHARES = ("goodput", "failed")
STATS = ("mean", "min", "max")
_OPERATORS: Mapping[str, Callable[[float, float], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_UNITS = {"us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0}
_FORM = re.compile(
    r"\s*([a-z0-9@-]+)\s*:\s*([a-z0-9.]+)\s*(<=|>=|<|>)\s*([0-9]+(?:\.[0-9]+)?)\s*([a-zµ%]*)\s*"
)


class Met(Enum):
    """How an objective fared."""

    YES = "met"
    NO = "missed"
    UNDECIDED = "undecided"  # too few samples


@dataclass(frozen=True, slots=True)
class Slo:
    """`stat`: a member of STATS, "share", or e.g. "p99"; `value` in seconds or a share."""

    text: str
    metric: str
    stat: str
    op: str
    value: float

    @property
    def q(self) -> float | None:
        """0.99 for p99; None for another statistic."""
        return round(float(self.stat[1:]) / 100, 9) if self.stat.startswith("p") else None

    @property
    def is_upper(self) -> bool:
        """Is it a bound from above, as a single request can keep it?"""
        return self.op in ("<", "<=")

    def holds(self, value: float) -> bool:
        return _OPERATORS[self.op](value, self.value)


@dataclass(frozen=True, slots=True)
class Judged:
    """One objective on one run; `value` None where the sample could not tell.

    `is_open`: the times that it is of are bounds and leave it open; it is judged as they were read.
    """

    slo: Slo
    met: Met
    value: float | None
    n: int
    is_open: bool = False


def parse_slo(text: str) -> Slo:
    """Raises UsageError in one line that says what is expected."""
    found = _FORM.fullmatch(text)
    if found is None:
        raise UsageError(f"--slo {text}: expected METRIC:STAT OP VALUE, e.g. ttft:p99<500ms")
    metric, stat, op, number, unit = found.groups()
    if metric in SHARES:
        value = _share(text, stat, float(number), unit)
    elif metric in METRICS:
        value = _seconds(text, stat, float(number), unit)
    else:
        known = ", ".join([*METRICS, *SHARES])
        raise UsageError(f"--slo {text}: no metric is named {metric}; there are {known}")
    return Slo(text.strip(), metric, stat, op, value)


def _share(text: str, stat: str, number: float, unit: str) -> float:
    value = number / 100 if unit == "%" else number
    if stat != "share" or unit not in ("", "%") or value > 1:
        raise UsageError(f"--slo {text}: expected a share, e.g. goodput:share>=95%")
    return value


def _seconds(text: str, stat: str, number: float, unit: str) -> float:
    if stat not in STATS and not _is_percentile(stat):
        known = ", ".join(STATS)
        raise UsageError(f"--slo {text}: expected a percentile such as p99, or one of {known}")
    if unit not in _UNITS:
        raise UsageError(f"--slo {text}: expected a unit: us, ms or s")
    return number * _UNITS[unit]


def _is_percentile(stat: str) -> bool:
    found = re.fullmatch(r"p([0-9]{1,2}(?:\.[0-9]{1,3})?)", stat)
    return found is not None and 0 < float(found[1]) < 100


def decide(slo: Slo, value: float | None, low: float | None, n: int) -> Judged:
    """`low`: what the value is at least; it can miss a bound where `value` is not known."""
    if value is not None:
        return Judged(slo, Met.YES if slo.holds(value) else Met.NO, value, n)
    if low is not None and slo.is_upper and not slo.holds(low):
        return Judged(slo, Met.NO, None, n)
    return Judged(slo, Met.UNDECIDED, None, n)
