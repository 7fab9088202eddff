"""Requests made before their time comes, so that several that are due at once need only be sent."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from loadgen.courses import Step

STEPS = 64
BYTES = 4 << 20  # of requests that wait


class Ahead:
    """The first steps of units, in order. `now`: the clock of the moments."""

    def __init__(
        self, make: Callable[[int], Step], units: Sequence[int], now: Callable[[], float]
    ) -> None:
        self._make, self._units, self._now = make, units, now
        self._made = 0
        self._held = 0  # bytes
        self._waiting: deque[Step] = deque()

    def fill(self, until: float) -> None:
        """As many as may wait, and begin none after that moment."""
        while self._may(until):
            self._add()

    def one_more(self, until: float) -> None:
        """One alone, unless that moment is over: whoever reads the answers must have a turn."""
        if self._may(until):
            self._add()

    def next(self) -> Step:
        if not self._waiting:
            self._add()
        step = self._waiting.popleft()
        self._held -= _size(step)
        return step

    def _may(self, until: float) -> bool:
        more = self._made < len(self._units) and len(self._waiting) < STEPS
        return more and self._held < BYTES and self._now() < until

    def _add(self) -> None:
        step = self._make(self._units[self._made])
        self._made += 1
        self._held += _size(step)
        self._waiting.append(step)


def _size(step: Step) -> int:
    return sum(map(len, step.script.request))
