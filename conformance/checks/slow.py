"""A client that does not read for a while: nobody else waits, and it loses nothing (A08, A09)."""

from __future__ import annotations

import math
from statistics import median

from conformance.arrivals import arrivals, gaps
from conformance.checks import Findings, Trial
from conformance.checks.live import ENDED, is_legible
from conformance.checks.unharmed import missing
from conformance.findings import Abstain, Finding
from conformance.lifecycle import Outcome
from conformance.reading import Reading

STALL, TIMES = 0.6, 10  # seconds, and so many usual gaps: that is more than bad luck
SOON = 0.2  # seconds after the client has begun to read again
LEAST = 5  # gaps that say what is usual


def slow_others_unharmed(trial: Trial) -> Findings:
    """A08: the other's text does not wait for the client that does not read.

    The sign is a silence that lasts until the client reads again, and ends then.
    """
    known = _known(trial)
    if isinstance(known, Abstain):
        yield known
        return
    _, other, pause, resume = known
    found = arrivals(other)
    usual = gaps(found, 0, pause)
    if len(usual) < LEAST or found[-1].at < pause + STALL:
        yield Abstain("fast", "the other answer was over when the pause began")
        return
    last = max(each.at for each in found if each.at <= resume)
    then = min((each.at for each in found if each.at > resume), default=math.inf)
    silence, normal = resume - last, median(usual)
    if silence >= max(STALL, TIMES * normal) and then - resume <= SOON + normal:
        said = f"{silence:.2f} s without text for the other client until this one read again"
        yield Finding("A08", f"{said}; {normal:.3f} s is usual", role="other")


def slow_intact(trial: Trial) -> Findings:
    """A09: a slow reader gets the whole stream, or sees that it does not.

    RFC 9112 section 8: "A client that receives an incomplete response message … MUST record the
    message as incomplete": so it has to be one that shows it.
    """
    known = _known(trial)
    if isinstance(known, Abstain):
        yield known
        return
    slow, other = known[:2]
    if slow.outcome is Outcome.STALLED:
        yield Finding("A09", "after the pause nothing came any more, and no end", role="slow")
    elif slow.outcome not in ENDED and slow.complete:
        yield Finding("A09", "the body ends as if it were whole, the answer is not", role="slow")
    elif slow.outcome in ENDED and not is_legible(slow):
        yield Finding("A09", "a part of the stream cannot be read", role="slow")
    elif slow.outcome not in ENDED or slow.text == other.text:
        return  # whole, or visibly cut off
    elif (hole := missing(other.text, slow.text)) is not None:
        said = f"{len(other.text) - len(slow.text)} characters are missing in {hole!r:.60}"
        yield Finding("A09", said, role="slow")
    else:
        yield Abstain("det", "the two texts differ, and neither lacks a piece")


def _known(trial: Trial) -> tuple[Reading, Reading, float, float] | Abstain:
    """The slow answer, the other one, and when the slow one's client paused and read again."""
    slow, other = (trial.readings.get(role, ()) for role in ("slow", "other"))
    if not slow or not other:
        return trial.abstain or Abstain("not-seen")
    for reading in (slow[0], other[0]):
        if reading.status is not None and reading.status >= 400:
            return Abstain("rate", f"refused with {reading.status}")
    if other[0].outcome not in ENDED:
        return Abstain("net", "the other answer did not end well")
    at = {action.what: action.at for action in trial.dossier.actions if action.role == "slow"}
    if "pause" not in at or "resume" not in at:
        return Abstain("fast", "the answer was over before the pause")
    return slow[0], other[0], at["pause"], at["resume"]
