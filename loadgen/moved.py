"""Rows of several clocks on one: seconds from the start of the load. Pure.

Only instants move. What lies between two of them was measured on one clock and stays as it is.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from loadgen.measure import Row

INSTANTS = (
    *("intended", "started", "sent", "first_byte", "first_event", "first_answer", "first_choice"),
    *("last_choice", "last_event", "token_times", "earliest", "ended", "wanted"),
)
DURATIONS = ("lateness", "connecting")


def moved(row: Row, zero: float) -> Row:
    """`zero`: the start of the load, on the row's clock."""
    return replace(row, **{name: _moved(getattr(row, name), zero) for name in INSTANTS})


def _moved(value: Any, zero: float) -> Any:
    if isinstance(value, tuple):
        return tuple(at - zero for at in value)
    return None if value is None else value - zero
