"""Rows → what a run amounts to: distributions, throughput, goodput; formulas beside them. Pure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from loadgen.bounds import WITHIN, Known, Limits, allowed, by_reads, known, open_to_doubt
from loadgen.formulas import METRICS, Metric
from loadgen.measure import Row
from loadgen.outcome import OURS, Sums, sums
from loadgen.quantiles import Quantile, label, quantile
from loadgen.slo import Slo

QUANTILES = (0.5, 0.9, 0.95, 0.99, 0.999)


@dataclass(frozen=True, slots=True)
class Window:
    """The steady part of a run, in seconds on the rows' clock: from the end of the warm-up to the
    end of the schedule. Requests belong to it by their intended start, tokens by their arrival."""

    start: float
    end: float

    @property
    def seconds(self) -> float:
        return max(0.0, self.end - self.start)

    def holds(self, at: float | None) -> bool:
        return at is not None and self.start <= at <= self.end

    def overlap(self, start: float, end: float) -> float:
        return max(0.0, min(self.end, end) - max(self.start, start))


@dataclass(frozen=True, slots=True)
class Distribution:
    """`missing`: requests that gave no value. Everything else None where `n` is too small."""

    n: int
    missing: int
    mean: float | None
    deviation: float | None
    least: float | None
    most: float | None
    quantiles: tuple[Quantile, ...]

    @property
    def statistics(self) -> dict[str, float | None]:
        """By the names of reports."""
        named = {"mean": self.mean, "min": self.least, "max": self.most}
        return {**named, **{label(each.q): each.value for each in self.quantiles}}


@dataclass(frozen=True, slots=True)
class Summary:
    """`adjusted`: the metric over every measured request, a failed one infinitely slow.

    `between`, `adjusted_between`: metric → statistic → between what it lies, only where bounds
    among the times leave it open. `is_by_reads`: they all are, by the user clock.
    """

    window: Window
    books: Sums  # of all scheduled requests
    measured: Sums  # of those whose intended start lies in the window
    metrics: Mapping[str, Distribution]
    adjusted: Mapping[str, Distribution]
    rates: Mapping[str, float | None]
    counted: int  # measured requests, those that we took back apart
    good: int
    goodput: float | None  # good / counted
    goodput_rate: float | None  # a second
    chunks: int  # with text
    clumped: float | None  # share of the gaps that are 0: one read brought both chunks
    times: Known
    between: Mapping[str, Mapping[str, Limits]]
    adjusted_between: Mapping[str, Mapping[str, Limits]]
    is_by_reads: bool = False

    def leaves_open(self, metric: str, statistic: str) -> bool:
        """Do the times leave an objective on it open? One of a percentile that no report has:
        where they do for another."""
        between = self.adjusted_between if metric in self.adjusted else self.between
        limits = between.get(metric, {})
        return statistic in limits or (
            bool(limits) and statistic not in self.metrics[metric].statistics
        )


# Rate → its formula; all within the window.
RATES = {
    "offered": "scheduled requests / seconds",
    "sent": "requests sent / seconds, by the end of their last byte",
    "succeeded": "succeeded requests / seconds, by their last event",
    "output-tokens": "completion_tokens of usage, spread evenly over the request's chunks with "
    "text, as far as these arrived, of a plain answer at its end / seconds; none where usage is "
    "missing",
    "prompt-tokens": "prompt_tokens of usage of requests whose first token (a plain answer's end) "
    "arrived / seconds",
    "chunks": "chunks with text that arrived / seconds",
    "in-flight": "mean number of requests between sending and their end",
}
UNITS = {**dict.fromkeys(RATES, "1/s"), "in-flight": "requests"}
GOODPUT = (
    "requests that succeeded, broke no MUST of the checks and kept every bound that --slo puts on "
    "a request / all scheduled requests of ordinary clients but those that an interruption took"
)
WINDOW = "from the end of the warm-up to the end of the schedule; what comes while draining is out"


def summarise(
    rows: Sequence[Row],
    window: Window,
    slos: Sequence[Slo] = (),
    broken: frozenset[int] = frozenset(),
    *,
    is_by_reads: bool = False,
) -> Summary:
    """`broken`: indices of rows whose stream breaks a MUST."""
    measured = [row for row in rows if window.holds(row.intended)]
    counted = counted_rows(measured)
    succeeded = [row for row in measured if row.success and row.client is None]
    good = sum(row.index not in broken and is_good(row, slos) for row in counted)
    gaps = [gap for row in succeeded for gap in row.gaps]
    metrics = {m.name: distribution(m, succeeded) for m in METRICS.values()}
    adjusted = {
        m.name: described(adjusted_values(m, counted)) for m in METRICS.values() if m.adjusts
    }
    return Summary(
        window=window,
        books=sums(row.fate for row in rows),
        measured=sums(row.fate for row in measured),
        metrics=metrics,
        adjusted=adjusted,
        rates=rates(rows, window),
        counted=len(counted),
        good=good,
        goodput=good / len(counted) if counted else None,
        goodput_rate=_per(good, window.seconds),
        chunks=sum(len(row.token_times) for row in measured),
        clumped=sum(gap == 0 for gap in gaps) / len(gaps) if gaps else None,
        times=known(succeeded),
        between=_between(succeeded, metrics, is_by_reads),
        adjusted_between=_between(succeeded, adjusted, is_by_reads),
        is_by_reads=is_by_reads,
    )


def _between(
    succeeded: Sequence[Row], found: Mapping[str, Distribution], is_by_reads: bool
) -> dict[str, dict[str, Limits]]:
    """Of each of these distributions: its statistics that the times leave open."""
    if is_by_reads:
        told = {name: by_reads(name, each.statistics) for name, each in found.items()}
        return {name: limits for name, limits in told.items() if limits}
    if not open_to_doubt(succeeded):
        return {}
    told = {name: _limits(name, succeeded, found[name].n) for name in WITHIN if name in found}
    return {name: limits for name, limits in told.items() if limits}


def _limits(name: str, succeeded: Sequence[Row], n: int) -> dict[str, Limits]:
    """`n`: values in all; those that the succeeded ones do not give are infinite."""
    limits = [each for row in succeeded for each in WITHIN[name](row)]
    lost = [math.inf] * (n - len(limits))
    least = described([*(low for low, _ in limits), *lost]).statistics
    most = described([*(high for _, high in limits), *lost]).statistics
    pairs = ((key, low, most[key]) for key, low in least.items())
    return {
        key: (low, high)
        for key, low, high in pairs
        if low is not None and high is not None and high - low > allowed(name, key, high)
    }


def counted_rows(rows: Iterable[Row]) -> list[Row]:
    """All but those that we took back, and those of clients that are not ordinary."""
    return [row for row in rows if row.fate not in OURS and row.client is None]


def distribution(metric: Metric, rows: Sequence[Row]) -> Distribution:
    """The metric over these rows, whatever became of them."""
    found = [metric.values(row) for row in rows]
    return described((value for values in found for value in values), found.count(()))


def adjusted_values(metric: Metric, rows: Iterable[Row]) -> Iterator[float]:
    """A row that is no success, or lacks the value, counts as infinite."""
    for row in rows:
        found = metric.values(row) if row.success else ()
        if found or not _has_nothing_to_miss(metric, row):
            yield found[0] if found else math.inf


def described(values: Iterable[float], missing: int = 0) -> Distribution:
    """Values may be infinite."""
    ordered = sorted(values)
    n = len(ordered)
    finite = n > 0 and math.isfinite(ordered[-1])
    return Distribution(
        n=n,
        missing=missing,
        mean=statistics.fmean(ordered) if finite else (math.inf if n else None),
        deviation=statistics.stdev(ordered) if finite and n > 1 else None,
        least=ordered[0] if n else None,
        most=ordered[-1] if n else None,
        quantiles=tuple(quantile(ordered, q) for q in QUANTILES),
    )


def _has_nothing_to_miss(metric: Metric, row: Row) -> bool:
    if metric.clients or (metric.streams and not row.streams):
        return True
    return metric.between and row.success and len(row.token_times) < 2


def is_good(row: Row, slos: Sequence[Slo]) -> bool:
    """Did it succeed, with every value within every bound that is one for a request?"""
    if not row.success:
        return False
    for slo in slos:
        metric = METRICS.get(slo.metric)
        if metric is None or not slo.is_upper:
            continue
        values = metric.values(row)
        if not values and not _has_nothing_to_miss(metric, row):
            return False
        if not all(slo.holds(value) for value in values):
            return False
    return True


def rates(rows: Sequence[Row], window: Window) -> dict[str, float | None]:
    """Every member of RATES; None where the window has no length."""
    seconds = window.seconds
    succeeded = [row for row in rows if row.success]
    tokens = [_tokens_within(row, window) for row in rows if row.token_times or not row.streams]
    known = [each for each in tokens if each is not None]
    prompts = [row.prompt_tokens for row in rows if window.holds(_first(row))]
    told = [each for each in prompts if each is not None]
    return {
        "offered": _per(sum(window.holds(row.intended) for row in rows), seconds),
        "sent": _per(sum(window.holds(row.sent) for row in rows), seconds),
        "succeeded": _per(sum(window.holds(row.last_event) for row in succeeded), seconds),
        "output-tokens": _per(sum(known), seconds) if known else None,
        "prompt-tokens": _per(sum(told), seconds) if told else None,
        "chunks": _per(sum(window.holds(at) for row in rows for at in row.token_times), seconds),
        "in-flight": _per(sum(_in_flight(row, window) for row in rows), seconds),
    }


def _tokens_within(row: Row, window: Window) -> float | None:
    if row.completion_tokens is None:
        return None
    if not row.streams:
        return row.completion_tokens * window.holds(row.last_event)
    inside = sum(window.holds(at) for at in row.token_times)
    return row.completion_tokens * inside / len(row.token_times)


def _first(row: Row) -> float | None:
    return row.first_token if row.streams else row.last_event


def _in_flight(row: Row, window: Window) -> float:
    if row.sent is None or row.ended is None:
        return 0.0
    return window.overlap(row.sent, row.ended)


def _per(amount: float, seconds: float) -> float | None:
    return amount / seconds if seconds > 0 else None
