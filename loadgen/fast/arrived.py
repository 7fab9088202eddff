"""When each byte of one direction of a TCP connection had arrived, by its sequence numbers. Pure.

A byte has arrived when it and all before it are there: from then on a reader could have had it. Of
what is sent twice the first arrival counts.
"""

from __future__ import annotations

from bisect import insort
from collections import deque

AHEAD_AT_MOST = 4096  # segments that wait for a lost one
_RING = 1 << 32  # RFC 9293 section 3.4: "sequence number space is finite ... modulo 2**32"
_HALF = 1 << 31


class Arrivals:
    """Offsets count from the byte after the SYN, and go on where sequence numbers wrap.

    `end`: all bytes before it have arrived. `closed_at`: when the peer said that no more follow,
    or reset.
    """

    __slots__ = ("_ahead", "_first", "_known", "closed_at", "end")

    def __init__(self, syn: int) -> None:
        self._first = syn + 1
        self._known: deque[tuple[int, float]] = deque()  # (end, when), both ascending
        self._ahead: list[tuple[int, int, float]] = []  # (start, end, when): behind a hole
        self.end = 0
        self.closed_at: float | None = None

    def add(self, sequence: int, length: int, at: float) -> None:
        """A segment that arrived."""
        # RFC 9293: the numbers say where only modulo 2**32; it is the place nearest to the last.
        near = (sequence - self._first - self.end) % _RING
        start = self.end + (near - _RING if near >= _HALF else near)
        end = start + length
        if end <= self.end:
            return  # sent again
        if start > self.end:
            if len(self._ahead) < AHEAD_AT_MOST:
                insort(self._ahead, (start, end, at))
            return
        self._reach(end, at)

    def _reach(self, end: int, at: float) -> None:
        while self._ahead and self._ahead[0][0] <= end:
            end = max(end, self._ahead.pop(0)[1])
        self.end = end
        self._known.append((end, at))

    def close(self, at: float) -> None:
        """A segment with FIN or RST arrived."""
        if self.closed_at is None:
            self.closed_at = at

    def between(self, start: int, end: int) -> list[tuple[int, float]] | None:
        """(end, when) for every step in which these bytes arrived, ends counted from `start`.

        None where that is not known of all of them. What is before `end` is forgotten.
        """
        is_known = end <= self.end
        found = [(upto, at) for upto, at in self._known if upto > start]
        self._forget(end)
        if not is_known:
            return None
        steps = []
        for upto, at in found:
            steps.append((min(upto, end) - start, at))
            if upto >= end:
                break
        return steps

    def _forget(self, end: int) -> None:
        while self._known and self._known[0][0] <= end:
            self._known.popleft()
        if self.end >= end:
            return
        self.end = end  # somebody read what we never saw
        waiting, self._ahead = self._ahead, []
        for start, upto, at in waiting:
            self.add(self._first + start, upto - start, at)
