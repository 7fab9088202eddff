"""Figures that several reports take of rows. Pure; None where there is nothing to tell."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from conformance.capture import Capture
from loadgen.experiments.spec import ORDINARY_ROLE
from loadgen.experiments.staging import Turn
from loadgen.measure import Row
from loadgen.quantiles import quantile
from loadgen.result import Result
from loadgen.server_metrics import Sample

GAUGES = ("running", "waiting")
Sizes = Mapping[str, int]  # of an experiment, by name


@dataclass(frozen=True, slots=True)
class Shot:
    """One load that was played. `captures`: index → what was recorded, where a report asks.

    `tries`: how often it was, as our own client was the limit of the others, or it broke.
    """

    turn: Turn
    result: Result
    captures: dict[int, Capture]
    tries: int = 1


def level(sample: Sample) -> float | None:
    """Requests that the server has, by its gauges; None where it shows none."""
    known = [sample.values[name] for name in GAUGES if name in sample.values]
    return sum(known) if known else None


def of(shots: Iterable[Shot], load: str) -> list[Shot]:
    """Those of one load."""
    return [shot for shot in shots if shot.turn.load.name == load]


def role(rows: Iterable[Row], name: str = ORDINARY_ROLE) -> list[Row]:
    """The requests of one role, in order."""
    return [row for row in rows if (row.client or ORDINARY_ROLE) == name]


def time_of(row: Row) -> float | None:
    """Seconds from its send to its last event."""
    return None if row.last_event is None or row.sent is None else row.last_event - row.sent


def pooled(values: Iterable[float], q: float) -> float | None:
    """A percentile, None where there are too few values."""
    ordered = sorted(values)
    return quantile(ordered, q).value if ordered else None


def middle(values: Iterable[float | None]) -> float | None:
    """The median of what is known."""
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


def gaps(rows: Iterable[Row], start: float | None = None, end: float | None = None) -> list[float]:
    """Between neighbouring chunks with text; only those that end within the span, if one is
    given."""
    return [
        b - a
        for row in rows
        for a, b in pairwise(row.token_times)
        if (start is None or b > start) and (end is None or b <= end)
    ]


def waits(rows: Iterable[Row]) -> list[float]:
    """From the last byte of a request to its first chunk with text."""
    pairs = [(row.sent, row.first_token) for row in rows]
    return [token - sent for sent, token in pairs if sent is not None and token is not None]


def took(rows: Sequence[Row]) -> float | None:
    """From the first send to the last event of any; None where not all came whole."""
    sends = [row.sent for row in rows if row.sent is not None]
    ends = [row.last_event for row in rows if row.success and row.last_event is not None]
    return max(ends) - min(sends) if rows and len(ends) == len(rows) else None


def throughput(rows: Sequence[Row]) -> float | None:
    """Tokens of usage a second, from the first send to the last chunk with text."""
    sends = [row.sent for row in rows if row.sent is not None]
    ends = [row.token_times[-1] for row in rows if row.token_times]
    tokens = [row.completion_tokens for row in rows if row.completion_tokens is not None]
    if not sends or not ends or len(tokens) < len(rows) or max(ends) <= min(sends):
        return None
    return sum(tokens) / (max(ends) - min(sends))


def tokens_each(rows: Sequence[Row]) -> float | None:
    """Mean completion tokens by usage."""
    known = [row.completion_tokens for row in rows if row.completion_tokens is not None]
    return statistics.fmean(known) if known else None


def over(value: float | None, base: float | None) -> float | None:
    """How many times as much."""
    return value / base if value is not None and base else None
