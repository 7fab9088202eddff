"""What is offered: a load that comes when it comes, or clients that take turns. Pure records."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Open:
    """A load that comes whether or not the server keeps up. `seconds`: how long it is offered."""

    offsets: Sequence[float]
    seconds: float


@dataclass(frozen=True, slots=True)
class Closed:
    """So many clients, each with its next request as soon as the last one ended."""

    clients: int
    requests: int | None = None
    seconds: float | None = None

    @property
    def most(self) -> float:
        return math.inf if self.requests is None else self.requests


@dataclass(frozen=True, slots=True)
class Limits:
    """Ours. `in_flight`: requests at once; `requests`: in all; `index`: of the first that is never
    sent. What exceeds them is dropped."""

    in_flight: float = math.inf
    requests: float = math.inf
    index: float = math.inf
