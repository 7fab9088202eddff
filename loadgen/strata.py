"""Kinds of ordinary requests side by side: parts of a mix, first and later turns, first and later
of a shared prefix, streamed and plain, first attempts and retries. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from conformance.capture import Json
from conformance.report.escape import terminal
from loadgen.formulas import METRICS
from loadgen.measure import Row
from loadgen.outcome import Sums, sums
from loadgen.summary import Distribution, distribution

SHOWN = ("ttft", "ttft@first", "tpot", "e2e")
TURNS_APART = 10  # what comes later is only told of together


@dataclass(frozen=True, slots=True)
class Stratum:
    """`kind`: what tells it from its neighbours; `metrics`: of those that came whole."""

    kind: str
    name: str
    books: Sums
    metrics: dict[str, Distribution]


def strata(rows: Sequence[Row], measured: Sequence[Row]) -> tuple[Stratum, ...]:
    """Only kinds that tell something apart. `rows`: all; `measured`: those of the window."""
    first = _first_of_groups(rows)
    ordinary = [row for row in measured if row.client is None]
    impatient = {row.client for row in rows if row.attempt}
    found = [
        *_of("part", ordinary, lambda row: row.part),
        *_of("turn", ordinary, _turn),
        *_of("turn number", ordinary, _turn_number),
        *_of("prefix", [r for r in ordinary if not r.turn], lambda row: _place(row, first)),
        *_of("answer", ordinary, lambda row: "streamed" if row.streams else "plain"),
        # Only clients that leave ask again, and they are no ordinary ones.
        *_of("attempt", [r for r in measured if r.client in impatient], _attempt),
    ]
    kinds = [each.kind for each in found]
    return tuple(each for each in found if kinds.count(each.kind) > 1)


def _of(kind: str, rows: Sequence[Row], name: Callable[[Row], str | None]) -> Iterator[Stratum]:
    """By name; turn 2 before turn 10."""
    named: dict[str, list[Row]] = {}
    for row in rows:
        if (own := name(row)) is not None:
            named.setdefault(own, []).append(row)
    for own, those in sorted(named.items(), key=lambda item: _order(item[0])):
        whole = [row for row in those if row.success]
        metrics = {metric: distribution(METRICS[metric], whole) for metric in SHOWN}
        yield Stratum(kind, own, sums(row.fate for row in those), metrics)


def _order(name: str) -> tuple[str, int]:
    word, _, number = name.rpartition(" ")
    counted = number.isascii() and number.isdigit() and len(number) < 10
    return (word, int(number)) if counted else (name, 0)


def _turn(row: Row) -> str | None:
    return None if row.turn is None else ("later turns" if row.turn else "first turn")


def _turn_number(row: Row) -> str | None:
    if row.turn is None or row.turn >= TURNS_APART:
        return None
    return f"turn {row.turn + 1}"


def _attempt(row: Row) -> str:
    return f"attempt {row.attempt + 1}"


_NONE, _FIRST, _LATER = "no shared prefix", "first of its prefix", "later of its prefix"


def _place(row: Row, first: set[int]) -> str:
    if row.group is None:
        return _NONE
    return _FIRST if row.index in first else _LATER


def _first_of_groups(rows: Sequence[Row]) -> set[int]:
    """Indices of those of each group that were sent before the others: new to every cache."""
    found: dict[tuple[str | None, int], Row] = {}
    for row in rows:
        if row.group is None or row.sent is None:
            continue
        known = found.get((row.part, row.group))
        if known is None or known.sent is None or row.sent < known.sent:
            found[row.part, row.group] = row
    return {row.index for row in found.values()}


Told = Callable[[str, float | None], str]  # a metric, seconds → milliseconds


def lines(found: Sequence[Stratum], ms: Told) -> Iterator[str]:
    """A line each, for a terminal."""
    for each in found:
        if each.kind == "turn number":
            continue
        books, felt = each.books, each.kind == "attempt"
        metric = "ttft@first" if felt else "ttft"
        told = [f"{metric} p50 {_at(each, metric, 0.5, ms)} p99 {_at(each, metric, 0.99, ms)}"]
        told += [f"tpot p50 {_at(each, 'tpot', 0.5, ms)}", f"e2e p50 {_at(each, 'e2e', 0.5, ms)}"]
        counts = f"{books.scheduled} scheduled, {books.succeeded} whole, {books.failed} failed"
        yield f"{each.kind}, {terminal(each.name)}: {counts}, {', '.join(told)} ms"


HEAD = ("ms", "scheduled", "whole", "failed", "ttft p50", "ttft p99", "tpot p50", "e2e p50")


def table(found: Sequence[Stratum], ms: Told) -> list[list[str]]:
    """A row each, under HEAD, for a page."""
    shown = (("ttft", 0.5), ("ttft", 0.99), ("tpot", 0.5), ("e2e", 0.5))
    return [
        [
            f"{each.kind}: {each.name}",
            *map(str, (each.books.scheduled, each.books.succeeded, each.books.failed)),
            *(_at(each, metric, q, ms) for metric, q in shown),
        ]
        for each in found
    ]


def _at(each: Stratum, metric: str, q: float, ms: Told) -> str:
    return next((ms(metric, one.value) for one in each.metrics[metric].quantiles if one.q == q), "")


def document(
    found: Sequence[Stratum],
    books: Callable[[Sums], dict[str, Json]],
    figures: Callable[[str, Distribution], dict[str, Json]],
) -> list[Json]:
    """The same for JSON."""
    return [
        {
            "kind": each.kind,
            "name": each.name,
            "requests": books(each.books),
            "metrics": {name: figures(name, one) for name, one in each.metrics.items()},
        }
        for each in found
    ]
