"""What was played waits for its look until the load is over, within a bound."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from conformance.capture import Capture
from loadgen.lookers import Job, looks
from loadgen.looking import NO_CHECKS, Checks, Look
from loadgen.played import Played
from loadgen.workload import Workload

HELD_AT_MOST = 256 << 20  # bytes of answers kept until the load is over
A_READ, A_CAPTURE = 100, 2000  # bytes of the records themselves


class Kept:
    """What one process played. `held_at_most`: bytes; what is more is measured at once, unjudged.

    `waiting`: what was not looked at yet. `unjudged`: answers that never will be.
    """

    def __init__(self, workload: Workload, held_at_most: int = HELD_AT_MOST) -> None:
        self._workload = workload
        self._most = held_at_most
        self.waiting: list[Played] = []
        self._done: list[Look] = []
        self._held = 0
        self.unjudged = 0

    def take(self, played: Played) -> None:
        self._held += 0 if played.capture is None else _size(played.capture)
        self.waiting.append(played)
        if self._held > self._most:
            self._done += map(self._measured, self.waiting)
            self.waiting, self._held = [], 0

    def _measured(self, played: Played) -> Look:
        """Without the checks: there is a load to be kept up, or somebody waits."""
        self.unjudged += bool(played.capture and played.capture.received)
        return Job(self._workload, NO_CHECKS).look(played)

    def looks(
        self, checks: Checks, processes: int, hurried: Callable[[], bool] = lambda: False
    ) -> list[Look]:
        """Every request."""
        return list(self.told(checks, hurried, processes))

    def told(
        self, checks: Checks, hurried: Callable[[], bool], processes: int = 1
    ) -> Iterator[Look]:
        """The same one by one; none is judged once it is `hurried`, all are measured."""
        yield from self._done
        job = Job(self._workload, checks)
        looked = 0
        if not hurried():
            for found in looks(job, self.waiting, processes):
                looked += 1
                yield found
                if hurried():
                    break
        yield from map(self._measured, self.waiting[looked:])


def _size(capture: Capture) -> int:
    """About the memory that it takes."""
    request = sum(len(segment.data) for segment in capture.request)
    return len(capture.received) + request + A_READ * len(capture.reads) + A_CAPTURE
