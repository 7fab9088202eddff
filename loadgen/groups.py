"""Ordinary clients, and beside them those that leave or read slowly, each way apart. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from loadgen.formulas import METRICS
from loadgen.measure import Row
from loadgen.outcome import Sums, sums
from loadgen.summary import Distribution, distribution

ORDINARY = "ordinary"
SHOWN = ("ttft", "stall", "e2e")


@dataclass(frozen=True, slots=True)
class Band:
    """The requests of one kind of client; `metrics`: of those that came whole."""

    name: str
    books: Sums
    metrics: dict[str, Distribution]


def bands(rows: Sequence[Row]) -> tuple[Band, ...]:
    """Ordinary ones first; empty where all are ordinary. `rows`: those of the window."""
    names = sorted({row.client for row in rows if row.client is not None})
    if not names:
        return ()
    return tuple(_band(name, rows) for name in (None, *names))


def _band(name: str | None, rows: Sequence[Row]) -> Band:
    own = [row for row in rows if row.client == name]
    whole = [row for row in own if row.success]
    metrics = {metric: distribution(METRICS[metric], whole) for metric in SHOWN}
    return Band(name or ORDINARY, sums(row.fate for row in own), metrics)
