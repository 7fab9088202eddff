"""How long the reader may rest between two looks at its sockets. Pure: times in, a pause out.

The kernel's stamps say when bytes came, so nobody has to be there just then, and one wake-up that
serves several sockets costs little more than one that serves a single event. But two events of one
stream that lie in its queue together have one stamp, and their times are bounds only. So the pause
follows what the streams bring: it stays well below the time that nearly all of them leave between
two reads, goes down as soon as they come closer, and up again slowly. And an answer's end
is seen half a pause late on average, which holds up whoever waits for it to ask again: so the pause
stays below a small part of what answers last.
"""

from __future__ import annotations

MOST = 0.012  # seconds
PART = 1 / 160  # of what answers last: their ends are seen 0.3 % late on average
UNTOLD = 0.004  # seconds, while none has ended
LEAST = 0.00025  # seconds; a shorter pause saves nothing
MARGIN = 1.6  # pauses that lie between two reads of one stream, at least
SHARE = 0.04  # of the reads may come closer
APART = 0.0002  # seconds; what comes closer is read at one go even by who reads at once
WINDOW = 256  # reads after which the pause may grow
GROWTH = 1.5
WORTH = 1.0  # reads that a pause must be expected to gather
FIRST = 3  # reads of an answer that nothing delays, such as the head, the role and the first token;
LONG = 40  # but only the first, where answers have so many: their end comes no sooner for it
_FADE = 0.875  # of what is known of the rate at each look
_KEPT = 0.97  # of what is known of the answers at each end


class Pause:
    """`seconds`: the pause as it stands, 0.0 for none; never above `most`, which follows from what
    answers last.

    `heeds`: is it to follow the streams? Not where packets tell what reads do not.
    `first`: so many reads of an answer come before its first pause. `near`: a gap between two reads
    of one stream that lies between APART and this is to be told.
    """

    __slots__ = (
        "_close",
        "_heeds",
        "_last",
        "_lasting",
        "_nearly",
        "_reads",
        "_recent",
        "_span",
        "_usual",
        "first",
        "most",
        "near",
        "seconds",
    )

    def __init__(self, *, heeds: bool = True) -> None:
        self.most, self._heeds = UNTOLD, heeds
        self.first = FIRST
        self._usual = 0.0  # reads of an answer
        self._lasting: float | None = None  # seconds
        self._last: float | None = None
        self._recent = self._span = 0.0
        self._settle(0.0)

    def tell(self, gap: float) -> None:
        """Two reads of one stream brought what came that many seconds apart."""
        self._nearly += 1
        if gap < MARGIN * self.seconds:
            self._close += 1

    def ended(self, reads: int, seconds: float) -> None:
        """An answer of so many reads that took so long: those of one load are much alike."""
        if self._lasting is None:
            self._usual, self._lasting = reads, seconds
        self._usual = _KEPT * self._usual + (1 - _KEPT) * reads
        self._lasting = _KEPT * self._lasting + (1 - _KEPT) * seconds
        self.first = 1 if self._usual >= LONG else FIRST
        self.most = min(MOST, PART * self._lasting)
        if self.seconds > self.most:
            self._settle(self.most)

    def after(self, now: float, reads: int) -> float:
        """A look at that moment brought so many reads. Until the next one; 0.0: when something
        comes.
        """
        self._reads += reads
        if self._close > SHARE * WINDOW:
            self._settle(self.seconds / 2)
        elif self._reads >= WINDOW:
            self._settle(self._longer if self._nearly <= SHARE * self._reads else self.seconds)
        expected = self._rate(now, reads) * self.seconds
        return self.seconds if reads and expected >= WORTH else 0.0

    @property
    def _longer(self) -> float:
        return min(self.most, max(LEAST, GROWTH * self.seconds))

    def _settle(self, seconds: float) -> None:
        self.seconds = seconds if seconds >= LEAST else 0.0
        self.near = MARGIN * self._longer if self._heeds else 0.0
        self._reads = self._nearly = self._close = 0

    def _rate(self, now: float, reads: int) -> float:
        """Reads a second, lately."""
        span = 0.0 if self._last is None else now - self._last
        self._last = now
        self._recent = _FADE * self._recent + reads
        self._span = _FADE * self._span + span
        return self._recent / self._span if self._span > 0 else 0.0
