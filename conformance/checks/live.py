"""The part of a stream that shape checks judge: its chunks up to the sentinel or an in-band error.

What stands behind either is one finding of its own: done.data-after, err.followed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from conformance.capture import Json
from conformance.checks.place import at_chunk
from conformance.chunks import Chunk, Kind
from conformance.dialects import DIALECTS, Dialect
from conformance.dossier import CHAT
from conformance.findings import Finding, Level
from conformance.lifecycle import ChoiceLife, Close, Outcome, close_from_capture
from conformance.reading import Reading, once

MOST_KINDS = 5  # findings of one check on one stream
MOST_CHOICES = 1024
ASKING = ("messages", "prompt", "response_format")  # where a request says what it wants

ENDED = (Outcome.COMPLETE, Outcome.COMPLETE_UNTERMINATED)


def dialect_of(reading: Reading) -> Dialect:
    """The dialect that the events were read with."""
    return reading.dialect or DIALECTS[CHAT]


@once
def stop_at(reading: Reading) -> int:
    """Index of the sentinel or in-band error, else the number of chunks."""
    ends = (at for at, c in enumerate(reading.chunks) if c.kind in (Kind.DONE, Kind.ERROR))
    return next(ends, len(reading.chunks))


@once
def events(reading: Reading) -> tuple[Chunk, ...]:
    """Every event before the end, whatever its kind."""
    return reading.chunks[: stop_at(reading)]


@once
def chunks(reading: Reading) -> tuple[Chunk, ...]:
    """The chunks before the end."""
    return tuple(chunk for chunk in events(reading) if chunk.kind is Kind.CHUNK)


# Each of these means that some client, ours too, did not get a part of the stream.
_LOSSES = ("unprefixed-line", "invalid-utf8", "unterminated-event")
_LOST = (Kind.UNREADABLE, Kind.SCALAR, Kind.BAD_DONE)


@once
def is_legible(reading: Reading) -> bool:
    """Did every part of the stream arrive? What is joined from parts cannot be judged otherwise."""
    lost = any(anomaly.kind in _LOSSES for anomaly in reading.sse_anomalies)
    return not lost and not any(chunk.kind in _LOST for chunk in events(reading))


def asks_for(reading: Reading, piece: str, *members: str) -> bool:
    """Does one of these members of the request hold this piece, in any string of it?"""
    stack = [reading.asked(member) for member in members]
    while stack:
        item = stack.pop()
        if isinstance(item, str) and piece in item:
            return True
        if isinstance(item, list):
            stack += item
        elif isinstance(item, dict):
            stack += item.values()
    return False


def choices(reading: Reading) -> tuple[ChoiceLife, ...]:
    """Each choice's life, in order of first appearance."""
    return () if reading.life is None else reading.life.choices


@once
def expected(reading: Reading) -> tuple[ChoiceLife, ...]:
    """The choices whose index the request allows: the others are choice.index-range's."""
    n = reading.n
    return tuple(c for c in choices(reading) if c.index >= 0 and (n is None or c.index < n))


@once
def undelivered(reading: Reading) -> tuple[int, ...]:
    """Choices that were asked for and never began, where the body is whole and the others ended.

    Such a server does not know of them: nothing was cut off.
    """
    life = reading.life
    whole = close_from_capture(reading.capture, reading.complete) is Close.WHOLE
    if life is None or reading.outcome is not Outcome.TRUNCATED or not whole:
        return ()
    begun = {choice.index for choice in life.choices}
    return life.unfinished if begun and begun.isdisjoint(life.unfinished) else ()


@once
def last_finish(reading: Reading) -> int | None:
    """Index of the chunk with which the last choice finished."""
    return max((at for life in choices(reading) for at, _ in life.finishes), default=None)


def finish_of(life: ChoiceLife) -> Json:
    """The first finish reason, None if there is none."""
    return life.finishes[0][1] if life.finishes else None


def grouped(
    reading: Reading, rule: str, hits: Iterable[tuple[Chunk, str]], level: Level | None = None
) -> Iterator[Finding]:
    """One finding per message, at its first event, with the number of events that repeat it."""
    seen: dict[str, list[Chunk]] = {}
    for chunk, message in hits:
        if message in seen or len(seen) < MOST_KINDS:
            seen.setdefault(message, []).append(chunk)
    for message, places in seen.items():
        more = len({chunk.event.ordinal for chunk in places}) - 1
        count = f" (and in {more} more event{'s' * (more > 1)})" if more else ""
        yield at_chunk(reading, places[0], rule, message + count, level)


def type_name(value: object) -> str:
    """JSON's name of a value's type; ABSENT is "missing"."""
    if value is None:
        return "null"
    names = {bool: "a boolean", int: "a number", float: "a number", str: "a string"}
    names |= {list: "an array", dict: "an object"}
    return names.get(type(value), "missing")


def is_int(value: object) -> bool:
    """An integer as JSON means it: true and false are none."""
    return type(value) is int
