"""What is offered: a load that comes when it comes, or clients that take turns. Pure records."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Open:
    """A load that comes whether or not the server keeps up. `seconds`: how long it is offered.

    `indices`: of the requests at these offsets, where they are a share of a load; None: 0, 1, 2, …
    `counted`: it ends with its last request, also where that is a later turn of a session.
    """

    offsets: Sequence[float]
    seconds: float
    indices: Sequence[int] | None = None
    counted: bool = False

    @property
    def numbered(self) -> list[tuple[int, float]]:
        """Index and offset of every request."""
        indices = range(len(self.offsets)) if self.indices is None else self.indices
        return list(zip(indices, self.offsets, strict=True))


@dataclass(frozen=True, slots=True)
class Closed:
    """So many clients, each with its next request as soon as the last one ended.

    `first`, `step`: its requests are number first, first + step, …: a share of a load has a step.
    """

    clients: int
    requests: int | None = None
    seconds: float | None = None
    first: int = 0
    step: int = 1

    def index(self, number: int) -> int:
        """Of its own request `number`, counted from 0."""
        return self.first + number * self.step

    def below(self, index: float) -> float:
        """How many of its requests have a lower index."""
        if math.isinf(index):
            return index
        return max(0, -(-(int(index) - self.first) // self.step))

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
