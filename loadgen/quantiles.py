"""Percentiles by one stated definition, with bounds, or nothing where a sample is too small. Pure.

The q-quantile of n values is the ceil(q·n)-th smallest (nearest rank), so it is always a value that
was measured, and infinite ones are ordered with the rest. It is None below `least(q)` values: there
no value is expected beyond it. `low` and `high` are the order statistics that hold the true
quantile with 95 %, as if the values were independent; None where the sample is too small for one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

TAIL = 0.025  # on either side
Z = 1.959964
EXACT_AT_MOST = 2000  # values expected beyond the quantile; then the normal approximation
ROUNDING = 1e-9
FAR = 8  # standard deviations


@dataclass(frozen=True, slots=True)
class Quantile:
    """`value` may be infinite; None: too few values for it."""

    q: float
    value: float | None
    low: float | None
    high: float | None


def least(q: float) -> int:
    """The fewest values that can tell this quantile: 2 for the median, 100 for p99."""
    return math.ceil(1 / min(q, 1 - q) - ROUNDING)


def quantile(ordered: Sequence[float], q: float) -> Quantile:
    """`ordered` ascends; 0 < q < 1."""
    n = len(ordered)
    low, high = _ranks(n, q)
    enough = n >= least(q)
    return Quantile(
        q,
        ordered[math.ceil(q * n - ROUNDING) - 1] if enough else None,
        ordered[low - 1] if low is not None else None,
        ordered[high - 1] if high is not None else None,
    )


def _ranks(n: int, q: float) -> tuple[int | None, int | None]:
    """The greatest r with P(B < r) ≤ 2.5 % and the smallest s with P(B < s) ≥ 97.5 %.

    B, the number of values below the quantile, is binomial (n, q); ranks count from 1.
    """
    if n == 0:
        return None, None
    if n * min(q, 1 - q) > EXACT_AT_MOST:
        half = Z * math.sqrt(n * q * (1 - q))
        return math.floor(n * q - half), math.ceil(n * q + half) + 1
    return _exact_ranks(n, q)


def _exact_ranks(n: int, q: float) -> tuple[int | None, int | None]:
    low: int | None = None
    first = max(1, math.floor(n * q - FAR * math.sqrt(n * q * (1 - q))) - FAR)
    below = 0.0  # P(B < r), but for what lies too far below to count
    for r in range(first, n + 1):
        below += _binomial(n, r - 1, q)
        if below <= TAIL:
            low = r
        elif below >= 1 - TAIL - ROUNDING:
            return low, r
    return low, None


def _binomial(n: int, k: int, q: float) -> float:
    chosen = math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)
    return math.exp(chosen + k * math.log(q) + (n - k) * math.log1p(-q))


def label(q: float) -> str:
    """0.999 as p99.9."""
    return f"p{q * 100:.10g}"
