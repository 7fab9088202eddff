"""The objectives of a run held against its rows. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from loadgen.formulas import METRICS
from loadgen.measure import Row
from loadgen.quantiles import quantile
from loadgen.slo import Judged, Slo, decide
from loadgen.summary import Distribution, adjusted_values, counted_rows, described


def judge_slo(slo: Slo, rows: Sequence[Row], good: int, broken: frozenset[int]) -> Judged:
    """`rows`: those of the window; `good`: how many of them are; `broken`: as for `summarise`."""
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
