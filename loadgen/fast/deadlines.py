"""When each stream is to be asked whether one of its clocks has run out: a heap."""

from __future__ import annotations

import heapq
import itertools
import weakref
from collections.abc import Iterator

from .stream import FOREVER
from .watched import Watched

SPARE = 1024  # entries of ended streams that the heap may hold besides


class Deadlines:
    """Of each stream only the entry that its `armed` names counts; all others are stale.

    An entry keeps no stream: its clock runs out long after most have ended, with all their bytes.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, weakref.ref[Watched]]] = []
        self._serial = itertools.count()

    @property
    def due(self) -> float:
        """The earliest, which may be stale."""
        return self._heap[0][0] if self._heap else FOREVER

    def arm(self, watched: Watched, alive: int) -> bool:
        """Ask it when its next clock could run out; `alive`: streams there are. Is it the first?"""
        stream = watched.stream
        deadline = stream.deadline()
        if deadline >= stream.armed:
            return False
        stream.armed = deadline
        heapq.heappush(self._heap, (deadline, next(self._serial), weakref.ref(watched)))
        if len(self._heap) > 4 * alive + SPARE:
            self._heap = [each for each in self._heap if _counts(each[2](), each[0])]
            heapq.heapify(self._heap)
        return deadline <= self.due

    def up(self, now: float) -> Iterator[Watched]:
        """Those whose entry has come up; they are armed no longer."""
        while self._heap and self._heap[0][0] <= now:
            when, _, entry = heapq.heappop(self._heap)
            watched = entry()
            if watched is not None and when == watched.stream.armed:
                watched.stream.armed = FOREVER
                yield watched


def _counts(watched: Watched | None, when: float) -> bool:
    return watched is not None and watched.stream.armed == when
