"""The objectives of a run held against its rows. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from loadgen.formulas import METRICS
from loadgen.measure import Row
from loadgen.quantiles import quantile
from loadgen.slo import SHARES, Judged, Slo, decide
from loadgen.summary import Distribution, Summary, adjusted_values, counted_rows, described


def judged_slos(
    slos: Iterable[Slo], rows: Sequence[Row], summary: Summary, broken: frozenset[int]
) -> tuple[Judged, ...]:
    """`rows`: those of the window, and what they come to; `broken`: as for `summarise`."""
    return tuple(
        replace(
            judge_slo(slo, rows, summary.good, broken),
            is_open=slo.metric not in SHARES and summary.leaves_open(slo.metric, slo.stat),
        )
        for slo in slos
    )


def judge_slo(slo: Slo, rows: Sequence[Row], good: int, broken: frozenset[int]) -> Judged:
    """By the times as they were read. `good`: how many of `rows` are."""
    counted = counted_rows(rows)
    n = len(counted)
    if slo.metric == "goodput":
        return decide(slo, good / n if n else None, None, n)
    if slo.metric == "failed":
        failed = sum(not row.success or row.index in broken for row in counted)
        return decide(slo, failed / n if n else None, None, n)
    values = sorted(_values(slo, counted))
    if slo.q is None:
        return decide(slo, _stat(described(values), slo.stat), None, len(values))
    told = quantile(values, slo.q)
    return decide(slo, told.value, told.low, len(values))


def _values(slo: Slo, counted: Sequence[Row]) -> list[float]:
    metric = METRICS[slo.metric]
    if metric.adjusts:
        return list(adjusted_values(metric, counted))
    rows = counted if metric.clients else [row for row in counted if row.success]
    return [value for row in rows for value in metric.values(row)]


def _stat(found: Distribution, stat: str) -> float | None:
    return {"mean": found.mean, "min": found.least, "max": found.most}[stat]
