"""Does the server still work on a request that its client gave up? Pure; from samples and gaps.

Two witnesses. The server's own metrics: a gauge above its level before, a counter of tokens that
grows. And contrast: what a neighbour of the request feels of it, learnt from a control that nobody
hung up on. A witness that showed nothing in the control says nothing here either.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from conformance.arrivals import Arrival, arrivals, gaps, share
from conformance.dossier import Sample
from conformance.reading import Reading

PATIENCE = 2.0  # seconds within which work has to stop
SLACK = 0.5  # what a scrape, or an event that was on its way, may blur
EDGE = 0.15  # seconds around a neighbour's coming and going in which samples say nothing
GAUGE, COUNTER, WAITING = "running", "generated_tokens", "waiting"
LEAST_GAPS, CLEAR = 10, 0.9
LEAST_RATIO = 1.25  # of a neighbour's gaps, in company to alone

Span = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Other:
    """Another request of ours: when it was sent, first answered with text, and over."""

    sent: float
    first: float
    end: float

    def at(self, time: float) -> int | None:
        """How many it counts for in the gauge; None: it may wait, or be coming or going."""
        if not self.sent - EDGE <= time <= self.end + EDGE:
            return 0
        return 1 if self.first + EDGE < time < self.end - EDGE else None


def other(reading: Reading) -> Other:
    """From its record."""
    capture, found = reading.capture, arrivals(reading)
    end = capture.end.at or 0.0
    return Other(capture.connected_at or 0.0, found[0].at if found else end, end)


@dataclass(frozen=True, slots=True)
class Base:
    """The server's level before anything was sent; `steady`: it did nothing then."""

    values: Mapping[str, float]
    steady: bool


def baseline(samples: Sequence[Sample], before: float) -> Base | None:
    """From the last two samples before that time; None if there are none of the last second."""
    early = [sample.values for sample in samples if before - 1 <= sample.at <= before][-2:]
    if len(early) < 2:
        return None
    steady = all(early[0].get(name) == early[1].get(name) for name in (GAUGE, COUNTER))
    return Base(early[1], steady)


def live(samples: Sequence[Sample], base: Base, span: Span) -> tuple[str, ...]:
    """Which of gauge and counter showed an answer that was streamed during `span`."""
    start, end = span
    during = [each.values for each in samples if start <= each.at <= end]
    later = [each.values for each in samples if each.at > end + EDGE]
    found: list[str] = []
    level = base.values.get(GAUGE)
    if level is not None and len(during) > 2 and later:
        up = sum(values.get(GAUGE, level) > level for values in during)
        if up >= CLEAR * len(during) and later[-1].get(GAUGE, math.inf) <= level:
            found.append(GAUGE)
    counted = [values[COUNTER] for values in during if COUNTER in values]
    steps = sum(b > a for a, b in pairwise(counted))
    if len(counted) > 3 and steps >= CLEAR * (len(counted) - 1):
        found.append(COUNTER)
    return tuple(found)


def each(samples: Sequence[Sample], base: Base, span: Span) -> float:
    """What one running request adds to the gauge, as a control alone showed it."""
    level = base.values.get(GAUGE, 0.0)
    during = [
        one.values.get(GAUGE, level) - level for one in samples if span[0] <= one.at <= span[1]
    ]
    return median(during) if during else 0.0


def activity(
    samples: Iterable[Sample],
    base: Base,
    alive: Sequence[str],
    others: Sequence[Other],
    after: float,
    each: float = 1.0,
) -> list[tuple[float, bool]]:
    """(time, is there work?) of each sample after `after` that can tell.

    While another request of ours runs the gauge alone can, which then has to be higher by `each`.
    """
    out: list[tuple[float, bool]] = []
    last: float | None = None
    for sample in samples:
        counts = [one.at(sample.at) for one in others]
        company = sum(count or 0 for count in counts)
        if sample.at <= after or None in counts:
            last = None
            continue
        count, level = sample.values.get(COUNTER), sample.values.get(GAUGE)
        quiet = company == 0
        grown = quiet and COUNTER in alive and None not in (count, last) and count != last
        gauge = level if GAUGE in alive else None
        held = gauge is not None and gauge > base.values[GAUGE] + company * each
        if gauge is not None or (quiet and last is not None):
            out.append((sample.at, grown or held))
        last = count if quiet else None
    return out


def stopped_at(seen: Sequence[tuple[float, bool]]) -> float | None:
    """The first time from which there is no work any more; None: there is, or nothing is known."""
    stop: float | None = None
    for at, works in seen:
        stop = None if works else at if stop is None else stop
    return stop


# -- contrast -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Contrast:
    """What a neighbour feels: it waits for its turn (`serial`), or its gaps cross `gap`."""

    serial: bool = False
    gap: float | None = None


def contrast(neighbour: Sequence[Arrival], control: Span, sent: Span) -> Contrast | None:
    """From a neighbour that was sent while the control ran, and outlived it; None: it felt nothing.

    `control`: first event and end of the control. `sent`: when the requests of control and
    neighbour had left. What is held back and comes at once tells nothing.
    """
    first, end = control
    times = {each.at for each in neighbour}
    if 2 * len(times) < len(neighbour) or not neighbour or first - sent[0] > (end - sent[0]) / 2:
        return None
    if neighbour[0].at >= end - 0.1 * (end - first) and sent[1] <= first + EDGE:
        return Contrast(serial=True)
    company = gaps(neighbour, first, end)
    alone = gaps(neighbour, end + EDGE, math.inf)
    if min(len(company), len(alone)) < LEAST_GAPS:
        return None
    slow, fast = median(company), median(alone)
    if fast <= 0 or slow < LEAST_RATIO * fast:
        return None
    middle = math.sqrt(slow * fast)
    apart = share(company, middle) >= CLEAR and share(alone, middle) <= 1 - CLEAR
    return Contrast(gap=middle) if apart else None


def relieved(
    neighbour: Sequence[Arrival], known: Contrast, left: float, natural: float
) -> tuple[bool, float] | None:
    """(did the work stop in time?, a time that shows it); None: the neighbour does not tell.

    `natural`: when the answer would have ended had nobody hung up.
    """
    if not neighbour:
        return None
    if known.serial:
        return _turn(neighbour[0].at, left, natural)
    assert known.gap is not None
    until = natural - EDGE
    after = gaps(neighbour, left + PATIENCE / 4, until)
    if len(after) >= LEAST_GAPS and share(after, known.gap) <= 1 - CLEAR:
        return True, left + PATIENCE / 4
    late = gaps(neighbour, left + PATIENCE + SLACK / 2, until)
    if len(late) >= LEAST_GAPS and share(late, known.gap) >= CLEAR:
        return False, min(until, neighbour[-1].at)
    return None


def _turn(first: float, left: float, natural: float) -> tuple[bool, float] | None:
    waited, rest = first - left, natural - left
    if waited <= PATIENCE and rest >= max(2 * waited, waited + SLACK):
        return True, first
    if waited >= PATIENCE + SLACK and waited <= 1.5 * rest + PATIENCE:
        return False, first
    return None
