"""Played: one scheduled request as the load left it; what crosses from sending to measuring."""

from __future__ import annotations

from dataclasses import dataclass

from conformance.capture import Capture
from loadgen.outcome import Fate


@dataclass(frozen=True, slots=True)
class Played:
    """Times are seconds on the recorder's clock, the one of `capture`.

    `intended`: when it should have begun; in a closed loop when the client was free for it.
    `started`: when the client took it up, None where it never did. `capture`: None where nothing
    was sent, and where an interruption cut it off. `unsent`: DROPPED, CANCELLED or UNREACHED.
    `wanted`: of a retry, when the first attempt should have begun; else None.
    """

    index: int
    intended: float
    started: float | None = None
    capture: Capture | None = None
    unsent: Fate | None = None
    wanted: float | None = None
