"""The run for a terminal: what was asked, what came of it, the figures, what gates. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence

from tabulate import tabulate

from conformance.capture import Json
from conformance.report.escape import excerpt, terminal
from loadgen import asked, crew, provenance, strata
from loadgen.bounds import AS_READ, AT_MOST, Limits, mark
from loadgen.groups import bands
from loadgen.looking import judged_failures
from loadgen.outcome import Fate, Sums
from loadgen.quantiles import least
from loadgen.result import Failure, Result
from loadgen.server_metrics import Served
from loadgen.server_metrics import told as told_by_server
from loadgen.slo import Judged, Met
from loadgen.summary import Distribution, Summary

SHOWN = ("ttft", "ttft@sent", "first-answer", "e2e", "e2e@sent", "tpot", "gap", "stall", "lateness")
STATISTICS = ("mean", "p50", "p90", "p99", "max")
CHECKS_SHOWN = 8
CROSSED_SHOWN = 3
TOLD = 100  # characters of what a failed request was told


def render(result: Result) -> str:
    """Ends with one line: the verdict and the exit code."""
    lines = [
        head(result),
        _books(result.summary.books),
        "",
        _latencies(result),
        *signs(result, SHOWN, STATISTICS),
        "",
        *_clients(result),
        *strata.lines(result.strata, marked(result)),
        *asked.lines(result.lengths, result.load.get("input_tokens_by")),
        *provenance.lines(result),
        *rates(result),
        *_failures(result),
        *_checks(result),
        *(objective(each) for each in result.judged),
        *_verdict(result),
    ]
    return "\n".join(lines) + "\n"


def head(result: Result) -> str:
    """Who was asked, and for what load."""
    target, load = result.target, result.load
    name = f"{terminal(target.model)} at {terminal(target.url)} ({terminal(target.api)})"
    how = {key: value for key, value in load.items() if value and key in _HOW}
    offered = ", ".join(
        f"{key} {terminal(_amount(value))}{_HOW[key]}" for key, value in how.items()
    )
    return f"{name}\n{offered}"


# What is said of a load, in the order in which it describes itself, and the unit.
_HOW = {
    **dict.fromkeys(("arrivals", "stages", "trace", "concurrency", "requests"), ""),
    "rate": "/s",
    **dict.fromkeys(("duration", "warmup"), " s"),
}


def _amount(value: Json) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _books(books: Sums) -> str:
    sums = f"scheduled {books.scheduled} = sent {books.sent}"
    sums += f" + dropped {books.dropped} + cancelled {books.cancelled}"
    outcomes = ", ".join(f"{fate.value} {count}" for fate, count in books.of.items())
    return f"{sums}\n{outcomes}"


def _latencies(result: Result) -> str:
    rows = [_latency(name, result) for name in SHOWN]
    head = ["ms", "n", *STATISTICS, "p99, failures as ∞"]
    align = ("left", *("right",) * (len(head) - 1))
    return tabulate(rows, headers=head, colalign=align, disable_numparse=True)


def signs(result: Result, metrics: Sequence[str], statistics: Sequence[str]) -> Iterator[str]:
    """What the signs in a table of these mean, of those that are there."""
    summary = result.summary
    shown = [summary.between.get(name, {}) for name in metrics]
    if not summary.is_by_reads and any(name in statistics for each in shown for name in each):
        yield f"{AT_MOST}: at most; the times of some chunks are bounds, which leave it open"
    known = [summary.metrics[name].statistics for name in metrics if summary.metrics[name].n]
    few = [name for name in statistics if any(each[name] is None for each in known)]
    if few:
        needs = ", ".join(f"{name} {least(float(name[1:]) / 100)}" for name in few)
        yield f"–: too few values to tell ({needs})"


def _latency(name: str, result: Result) -> list[str]:
    summary = result.summary
    found = summary.metrics[name]
    cells = [cell(found, each, summary.between.get(name)) for each in STATISTICS]
    return [name, str(found.n), *cells, _worst(name, summary)]


def _worst(name: str, summary: Summary) -> str:
    adjusted = summary.adjusted.get(name)
    return "" if adjusted is None else cell(adjusted, "p99", summary.adjusted_between.get(name))


def cell(found: Distribution, statistic: str, between: Mapping[str, Limits] | None) -> str:
    """Milliseconds; where the times do not tell it the most that it can be, or as it was read."""
    limits = (between or {}).get(statistic)
    if limits is None:
        return ms(found.statistics[statistic])
    if math.isinf(limits[1]):
        return f"{AS_READ} {ms(found.statistics[statistic])}"
    return f"{AT_MOST} {ms(limits[1])}"


def marked(result: Result) -> Callable[[str, float | None], str]:
    """From a metric and seconds to milliseconds, by how the times of this run were made."""

    def told(metric: str, seconds: float | None) -> str:
        is_told = seconds is not None and math.isfinite(seconds)
        sign = mark(metric) if result.summary.is_by_reads and is_told else ""
        return f"{sign} {ms(seconds)}".lstrip()

    return told


def _at(found: Distribution, q: float) -> float | None:
    return next((each.value for each in found.quantiles if each.q == q), None)


def ms(seconds: float | None) -> str:
    """A dash where nobody knows."""
    if seconds is None:
        return "–"
    return "∞" if math.isinf(seconds) else f"{seconds * 1e3:.2f}"


def _clients(result: Result) -> Iterator[str]:
    """A line for each kind of client, where not all are ordinary."""
    found, told = bands(result.measured), marked(result)
    for each in found:
        books, ttft = each.books, each.metrics["ttft"]
        p50, p99 = told("ttft", _at(ttft, 0.5)), told("ttft", _at(ttft, 0.99))
        stall = told("stall", _at(each.metrics["stall"], 0.5))
        known = f"ttft p50 {p50} p99 {p99}, stall p50 {stall} ms"
        left = books.sent - books.succeeded - books.failed
        counts = f"{books.sent} sent, {books.succeeded} whole, {left} left, {books.failed} failed"
        yield f"clients, {terminal(each.name)}: {counts}, {known}"
    if found:
        yield "figures above are of ordinary clients alone"
    if result.recovery is not None:
        yield str(result.recovery)


def rates(result: Result) -> Iterator[str]:
    summary = result.summary
    known = {name: rate for name, rate in summary.rates.items() if rate is not None}
    flying = known.pop("in-flight", None)
    told = ", ".join(f"{name} {_rate(rate)}" for name, rate in known.items()) or "nothing"
    mean = "" if flying is None else f"; in flight {_rate(flying)} (mean)"
    yield f"per second, over {summary.window.seconds:.3f} s: {told}{mean}"
    share = "–" if summary.goodput is None else f"{summary.goodput:.2%}"
    yield f"goodput: {summary.good} of {summary.counted} requests ({share})"


def _rate(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.4g}"


def _failures(result: Result) -> Iterator[str]:
    for each in result.failures:
        why = " · ".join(map(str, reasons(each)))
        told = f": {excerpt(each.told)[:TOLD]}" if each.told else ""
        yield f"failed: {each.count} × {each.fate.value} ({terminal(why)}){told}"


def by_server(result: Result, served: Served) -> list[str]:
    """What its own metrics say, beside ours."""
    return told_by_server(served, result.rows, f"{AT_MOST} " * result.summary.is_by_reads)


def reasons(failure: Failure) -> list[str | int]:
    """Its status, and how it ended: of a refusal the status says all."""
    detail = None if failure.fate is Fate.REFUSED else failure.detail
    return [part for part in (failure.status, detail) if part is not None]


def _checks(result: Result) -> Iterator[str]:
    tally = result.tally
    if result.crew is not None:
        yield from crew.lines(result.crew)
    if result.served is not None:
        yield from by_server(result, result.served)
    for each in tally.crossed[:CROSSED_SHOWN]:
        yield f"cross-talk: request {each.index} was answered with the mark of request {each.other}"
    if len(tally.crossed) > CROSSED_SHOWN:
        yield f"  and {len(tally.crossed) - CROSSED_SHOWN} more (--json)"
    if result.solo is not None:
        yield str(result.solo)
    if not result.gates:
        yield "checks: none asked for"
        return
    unjudged = f", {tally.unjudged} not looked at" if tally.unjudged else ""
    broken = f"{len(tally.broken)} break a MUST"
    gates = terminal(", ".join(result.gates))
    yield f"checks ({gates}): {tally.judged} answers judged{unjudged}, {broken}"
    found = list(judged_failures(tally))
    for told in found[:CHECKS_SHOWN]:
        yield (
            f"  {told.breach.verdict.value} {terminal(told.breach.id)} in {told.bad}: "
            f"{terminal(told.breach.message)[:TOLD]} (request {told.index})"
        )
    if len(found) > CHECKS_SHOWN:
        yield f"  and {len(found) - CHECKS_SHOWN} more checks (--json)"


def objective(each: Judged) -> str:
    share = each.slo.stat == "share" and each.value is not None
    value = f"{each.value:.2%}" if share else f"{ms(each.value)} ms"
    return f"slo {each.met.value}: {terminal(each.slo.text)} ({_known(each, value)}, n {each.n})"


def _known(each: Judged, value: str) -> str:
    """What is missed by a bound was not shown to be met, nor that it is not."""
    if not each.is_open or each.value is None or math.isinf(each.value):
        return value
    sign = mark(each.slo.metric)
    unsure = each.met is Met.NO or sign == AS_READ
    return f"{sign} {value}{': by times that are bounds' if unsure else ''}"


def _verdict(result: Result) -> Sequence[str]:
    reasons = [f"not valid: {each.reason}: {terminal(each.detail)}" for each in result.doubts]
    return [*reasons, "", verdict(result)]


def verdict(result: Result) -> str:
    """One line: is it valid, what failed, the exit code."""
    why = ", ".join(each.reason for each in result.doubts)
    word = "valid" if result.valid else f"not valid ({why})"
    failed = f"{result.failed} failed, {terminal(result.allowed)} allowed"
    complete = "" if result.complete else " · not complete"
    return f"{word} · {failed}{complete} · exit {result.exit}"
