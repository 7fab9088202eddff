"""A run as data: JSON for the whole, JSON lines and CSV for its requests. Pure.

Numbers are seconds, counts and shares; null is unknown. JSON has no infinity: such a value is null
with `"infinite": true` beside it. What a server said is text in JSON, where it can do no harm; in
CSV it is printable, and no cell begins like a formula.
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence

from conformance.capture import Json
from conformance.report.escape import excerpt, terminal
from loadgen import asked, crew, strata
from loadgen.bounds import SAID, Limits, by_reads
from loadgen.crosstalk import Solo
from loadgen.formulas import METRICS
from loadgen.groups import Band, bands
from loadgen.looking import Told, judged_failures
from loadgen.measure import Row
from loadgen.outcome import Sums
from loadgen.quantiles import Quantile, label
from loadgen.recovered import Recovery
from loadgen.result import Failure, Result
from loadgen.server_metrics import MEANS, Served, reconcile
from loadgen.slo import Judged
from loadgen.summary import GOODPUT, RATES, UNITS, WINDOW, Distribution, Summary
from loadgen.trust import REASONS

SCHEMA = 1
TOOL = "streamproof"
QUANTILE = (
    "the ceil(q·n)-th smallest of n values; null below 1/(1 − q) values; low and high are the "
    "order statistics that hold the true quantile with 95 %, were the values independent"
)
ADJUSTED = "the same over every measured request, a failed or dropped one infinitely slow"


def document(result: Result, version: str) -> dict[str, Json]:
    """The whole run."""
    figures = _figures_by_reads if result.summary.is_by_reads else _figures_as_told
    return {
        "schema": SCHEMA,
        "tool": {"name": TOOL, "version": version},
        "command": "run",
        **_asked(result),
        **_trust(result),
        **_books(result),
        **_figures(result.summary),
        "selftest": result.selftest,
        "workers": None if result.crew is None else crew.document(result.crew),
        "server": None if result.served is None else _served(result.served, result.rows),
        "solo": None if result.solo is None else _solo(result.solo),
        "clients": [_band(each, figures) for each in bands(result.measured)],
        "input_tokens": asked.document(result.lengths, result.load.get("input_tokens_by")),
        "strata": strata.document(result.strata, _sums, figures),
        "recovery": None if result.recovery is None else _recovery(result.recovery),
        "slo": [_objective(each) for each in result.judged],
        "checks": _checks(result),
    }


def _asked(result: Result) -> dict[str, Json]:
    target = result.target
    return {
        "target": {"url": target.url, "api": target.api, "model": target.model},
        "load": dict(result.load),
        "clock": result.load.get("clock"),
    }


def _trust(result: Result) -> dict[str, Json]:
    reasons: list[Json] = [
        {"reason": doubt.reason, "detail": doubt.detail, "formula": REASONS[doubt.reason]}
        for doubt in result.doubts
    ]
    return {
        "complete": result.complete,
        "valid": result.valid,
        "reasons": reasons,
        "exit": result.exit,
    }


def _books(result: Result) -> dict[str, Json]:
    failed, window = result.failed, result.summary.window
    return {
        "window": {
            "start": window.start,
            "end": window.end,
            "seconds": window.seconds,
            "formula": WINDOW,
        },
        "requests": _sums(result.summary.books),
        "measured": _sums(result.summary.measured),
        "failures": [_failure(each) for each in result.failures],
        "failed": {"count": failed, "allowed": result.allowed, "met": not result.too_many},
    }


def _figures(summary: Summary) -> dict[str, Json]:
    return {
        "quantile": QUANTILE,
        "adjusted": ADJUSTED,
        "metrics": {name: _metric(name, summary) for name in METRICS},
        "rates": {
            name: {"value": summary.rates[name], "unit": UNITS[name], "formula": formula}
            for name, formula in RATES.items()
        },
        "chunks": {"count": summary.chunks, "clumped": summary.clumped},
        "times": {
            "chunks": summary.times.chunks,
            "bounds": summary.times.bounds,
            "first": summary.times.first,
            "first_bounds": summary.times.first_bounds,
            "formula": SAID,
        },
        "goodput": {
            "good": summary.good,
            "counted": summary.counted,
            "share": summary.goodput,
            "rate": summary.goodput_rate,
            "formula": GOODPUT,
        },
    }


def _objective(each: Judged) -> dict[str, Json]:
    return {
        "objective": each.slo.text,
        "met": each.met.value,
        "n": each.n,
        **_number(each.value),
        "by_bounds": each.is_open,
    }


Figures = Callable[[str, Distribution], dict[str, Json]]


def _figures_as_told(metric: str, found: Distribution) -> dict[str, Json]:
    return _distribution(found)


def _figures_by_reads(metric: str, found: Distribution) -> dict[str, Json]:
    return _distribution(found, by_reads(metric, found.statistics))


def _band(band: Band, figures: Figures) -> dict[str, Json]:
    metrics: dict[str, Json] = {name: figures(name, each) for name, each in band.metrics.items()}
    return {"client": band.name, "requests": _sums(band.books), "metrics": metrics}


def _served(served: Served, rows: Sequence[Row]) -> dict[str, Json]:
    found, own = reconcile(served, rows), served.first_token
    return {
        "names": served.server,
        "tokens": {
            "generated": served.tokens,
            "usage": found.usage,
            "without_usage": found.unsaid,
            "agree": found.agrees,
        },
        "ttft": {
            "client_mean": found.client_mean,
            "client_median": found.client_median,
            "server_mean": found.server_mean,
            "server_median_within": None if own is None else _bounds(found.server_within),
            "means": MEANS,
        },
        "first_token": None
        if own is None
        else {
            "buckets": [[_finite(bound), count] for bound, count in own.buckets],
            "sum": own.sum,
            "count": own.count,
        },
        "samples": [{"at": each.at, **each.values} for each in served.samples],
    }


def _bounds(within: tuple[float, float] | None) -> list[Json] | None:
    """No upper bound, as of the last bucket: null."""
    return None if within is None else [_finite(bound) for bound in within]


def _solo(found: Solo) -> dict[str, Json]:
    return {"asked": found.asked, "repeats": found.repeats, "differs": [*found.differs]}


def _recovery(found: Recovery) -> dict[str, Json]:
    """As the record has it, and what it means."""
    return {
        "recovered": found.recovered,
        "gauges_before": None if found.gauges_before is None else dict(found.gauges_before),
        "gauges_after": None if found.gauges_after is None else dict(found.gauges_after),
        "took": found.took,
        "within": found.within,
        "probe_before": found.probe_before,
        "probe_after": found.probe_after,
    }


def _sums(sums: Sums) -> dict[str, Json]:
    return {
        "scheduled": sums.scheduled,
        "sent": sums.sent,
        "dropped": sums.dropped,
        "cancelled": sums.cancelled,
        "succeeded": sums.succeeded,
        "failed": sums.failed,
        "outcomes": {fate.value: count for fate, count in sums.of.items()},
    }


def _failure(failure: Failure) -> dict[str, Json]:
    return {
        "outcome": failure.fate.value,
        "status": failure.status,
        "detail": failure.detail,
        "count": failure.count,
        "told": excerpt(failure.told),
    }


def _metric(name: str, summary: Summary) -> dict[str, Json]:
    adjusted = summary.adjusted.get(name)
    between, adjusted_between = summary.between.get(name), summary.adjusted_between.get(name)
    return {
        "unit": "s",
        "formula": METRICS[name].formula,
        **_distribution(summary.metrics[name], between),
        "adjusted": None if adjusted is None else _distribution(adjusted, adjusted_between),
    }


def _distribution(
    found: Distribution, between: Mapping[str, Limits] | None = None
) -> dict[str, Json]:
    """`between`: what the times leave open, which is null."""
    limits = between or {}
    open_ = frozenset(limits)
    return {
        "n": found.n,
        "missing": found.missing,
        "mean": None if "mean" in open_ else _finite(found.mean),
        "deviation": None if "mean" in open_ else found.deviation,
        "min": None if "min" in open_ else _finite(found.least),
        "max": None if "max" in open_ else _finite(found.most),
        "quantiles": {
            label(each.q): _number(None) | {"low": None, "high": None}
            if label(each.q) in open_
            else _quantile(each)
            for each in found.quantiles
        },
        "between": {name: _bounds(each) for name, each in limits.items()},
        "as_read": {name: _finite(found.statistics[name]) for name in limits},
    }


def _quantile(found: Quantile) -> dict[str, Json]:
    return {**_number(found.value), "low": _finite(found.low), "high": _finite(found.high)}


def _number(value: float | None) -> dict[str, Json]:
    return {"value": _finite(value), **({"infinite": True} if value == math.inf else {})}


def _finite(value: float | None) -> float | None:
    return None if value is None or math.isinf(value) else value


def _checks(result: Result) -> dict[str, Json]:
    tally = result.tally
    return {
        "gates": list(result.gates),
        "judged": tally.judged,
        "unjudged": tally.unjudged,
        "broken": len(tally.broken),
        "requests": [*sorted(tally.broken)],
        "cross_talk": [{"request": each.index, "of": each.other} for each in tally.crossed],
        "results": [_told(each, tally.judged) for each in judged_failures(tally)],
    }


def _told(told: Told, judged: int) -> dict[str, Json]:
    return {
        "id": told.breach.id,
        "level": told.breach.level.value,
        "verdict": told.breach.verdict.value,
        "bad": told.bad,
        "of": judged,
        "first": {"request": told.index, "message": told.breach.message},
    }


# -- one request -----------------------------------------------------------------------------------

_PLAIN = (
    "index",
    "prompt_hash",
    "intended",
    "started",
    "sent",
    "lateness",
    "connecting",
    "reused",
    "status",
    "finish",
    "input_asked",
    "output_asked",
    "prompt_tokens",
    "completion_tokens",
    "first_chunk_tokens",
    "first_byte",
    "first_event",
    "first_token",
    "first_answer",
    "last_event",
    "ended",
    "stall",
    "tpot",
    "bounds",
    *("client", "part", "turn", "group", "streams", "attempt", "wanted"),
)


def record(row: Row) -> dict[str, Json]:
    """A row as JSON; `token_times` are the instants of its chunks with text; see `Row`."""
    return {
        **{name: getattr(row, name) for name in _PLAIN},
        "outcome": row.fate.value,
        "detail": row.detail,
        "told": excerpt(row.told),
        "token_times": list(row.token_times),
        "earliest": list(row.earliest),
    }


def json_lines(*results: Result) -> Iterator[str]:
    """A line a request; `run` counts the runs from 1."""
    for run, result in enumerate(results, 1):
        for row in result.rows:
            fields = {"run": run, **record(row)}
            yield json.dumps(fields, separators=(",", ":"), allow_nan=False) + "\n"


COLUMNS = ("run", *_PLAIN, "outcome", "detail", "told", "chunks")


def csv_lines(*results: Result) -> Iterator[str]:
    """A header, then a line a request; an empty cell is unknown."""
    yield _csv_line(dict(zip(COLUMNS, COLUMNS, strict=True)))
    for run, result in enumerate(results, 1):
        for row in result.rows:
            fields = {"run": run, **record(row), "chunks": len(row.token_times)}
            yield _csv_line(fields)


def _csv_line(fields: Mapping[str, Json]) -> str:
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerow(_cell(fields[name]) for name in COLUMNS)
    return out.getvalue()


def _cell(value: Json) -> str:
    """Text that a spreadsheet would take for a formula gets an apostrophe before it."""
    if value is None:
        return ""
    if not isinstance(value, str):
        return repr(value)
    text = terminal(value)
    return f"'{text}" if text[:1] in ("=", "+", "-", "@") else text
