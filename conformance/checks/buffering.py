"""Text arrives as it is made, and silence is filled with comments alone (H01, H02, H04).

The long answer that nothing of ours disturbs is the control of the hang-ups: its time is decoding.
"""

from __future__ import annotations

from conformance.arrivals import Arrival, arrivals
from conformance.checks import Findings, Trial
from conformance.checks.live import ENDED, events
from conformance.checks.place import at_chunk
from conformance.chunks import Chunk, Kind
from conformance.findings import Abstain, Finding
from conformance.reading import Reading

LONG = 2.0  # seconds below which nothing can be said
LEAST_TIMES, LEAST_SHARE, FIRST = 8, 0.2, 0.5


def buffering_progressive(trial: Trial) -> Findings:
    """H01: at least 8 arrival times, and one for every fifth event."""
    long = _long(trial)
    if isinstance(long, Abstain):
        yield long
        return
    reading, found, _ = long
    times = len({each.at for each in found})
    if len(found) < LEAST_TIMES and len(reading.text) < 20 * LEAST_TIMES:
        yield Abstain("mat", f"{len(found)} events in all")
    elif times < LEAST_TIMES or times < LEAST_SHARE * len(found):
        said = f"{len(found)} events arrived at {times} times"
        yield Finding("H01", said, role="control")


def buffering_first_content(trial: Trial) -> Findings:
    """H02: the first text comes in the first half of the time that the answer takes."""
    long = _long(trial)
    if isinstance(long, Abstain):
        yield long
        return
    _, found, sent = long
    first, last = found[0].at - sent, found[-1].at - sent
    if first > FIRST * last:
        yield Finding(
            "H02", f"the first text came after {first:.2f} of {last:.2f} s", role="control"
        )


def _long(trial: Trial) -> tuple[Reading, tuple[Arrival, ...], float] | Abstain:
    takes = trial.readings.get("control", ())
    if not takes:
        return trial.abstain or Abstain("not-seen", "no long answer")
    reading = takes[-1]
    found, sent = arrivals(reading), reading.capture.sent_at
    if reading.head is not None and reading.head.get(b"via") is not None:
        return Abstain("proxy", "an intermediary names itself in Via")
    if reading.outcome not in ENDED or not found:
        return Abstain("mat", "no whole answer with text")
    if sent is None:
        return Abstain("not-recorded", "no times")
    if found[-1].at - sent < LONG:
        return Abstain("fast", f"the long answer took {found[-1].at - sent:.2f} s")
    return reading, found, sent


def heartbeat_comments(reading: Reading) -> Findings:
    """H04: what fills the silence is a comment; an event with nothing in it reaches the client.

    WHATWG HTML 9.2.7: "authors can include a comment line (one starting with a ':' character)".
    """
    beats = [chunk for chunk in events(reading) if _is_beat(chunk)]
    if len(beats) > 1:
        said = f"{len(beats)} events carry nothing: {beats[0].event.data!r:.30}"
        yield at_chunk(reading, beats[0], "H04", said)
    elif not (reading.body.startswith(b":") or b"\n:" in reading.body):
        yield Abstain("not-seen", "no silence was filled")


def _is_beat(chunk: Chunk) -> bool:
    return chunk.kind is Kind.EMPTY or chunk.event.data.strip() in ("{}", "[]", "null", '""')
