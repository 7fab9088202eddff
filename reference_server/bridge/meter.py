"""How long things take, as the usual servers tell it: histograms over the server's life. Pure."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from reference_server.engine.interface import Delta

_FIRST = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80)  # fmt: skip  # noqa: E501
_TOKEN = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5, 5)  # fmt: skip  # noqa: E501
_WHOLE = (0.05, 0.1, 0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240)
_WINDOW = 0.5  # seconds over which the pace is measured


class Histogram:
    """Counts of values up to each bound, as Prometheus wants them: cumulative, `+Inf` last."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = tuple(bounds)
        self._counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    @property
    def count(self) -> int:
        return sum(self._counts)

    def observe(self, value: float) -> None:
        self._counts[bisect_left(self._bounds, value)] += 1
        self.sum += value

    def rows(self) -> Iterator[tuple[str, int]]:
        """(bound, how many values were at most that)."""
        total = 0
        for bound, count in zip((*map(str, self._bounds), "+Inf"), self._counts, strict=True):
            total += count
            yield bound, total


@dataclass(slots=True)
class Meter:
    """In seconds, on the server's side of the engine: from a request's acceptance on."""

    queue: Histogram = field(default_factory=lambda: Histogram(_FIRST))
    first: Histogram = field(default_factory=lambda: Histogram(_FIRST))
    between: Histogram = field(default_factory=lambda: Histogram(_TOKEN))
    per_token: Histogram = field(default_factory=lambda: Histogram(_TOKEN))  # mean of a request
    whole: Histogram = field(default_factory=lambda: Histogram(_WHOLE))
    tokens_per_second: float | None = None
    _window: tuple[float, int] | None = None
    _last: float = 0.0

    def pace(self, now: float, tokens: int) -> None:
        """`tokens` were generated up to now. Silences count for nothing."""
        begun, last = self._window, self._last
        self._last = now
        if begun is None or now - last > _WINDOW:
            self._window = (now, tokens)
        elif now - begun[0] >= _WINDOW:
            self.tokens_per_second = (tokens - begun[1]) / (now - begun[0])
            self._window = (now, tokens)


@dataclass(slots=True)
class Watch:
    """The times of one request. `opened` is when it was accepted."""

    meter: Meter
    opened: float
    first: float | None = None
    tokens: int = 0
    last: dict[int, float] = field(default_factory=dict)  # choice → its latest text

    def started(self, now: float) -> None:
        self.meter.queue.observe(now - self.opened)

    def delta(self, delta: Delta, now: float) -> None:
        """Text is there; a delta without tokens (an echo, a mere end) is none."""
        if not delta.tokens:
            return
        if self.first is None:
            self.first = now
            self.meter.first.observe(now - self.opened)
        before = self.last.get(delta.choice)
        if before is not None:
            self.meter.between.observe(now - before)
        self.last[delta.choice] = now
        self.tokens += delta.tokens

    def done(self, now: float) -> None:
        self.meter.whole.observe(now - self.opened)
        if self.first is not None and self.tokens > 1:
            self.meter.per_token.observe((now - self.first) / (self.tokens - 1))
