"""A stream's outline: of chunks that are alike, the first two and the last. Pure.

A check that looks at the shape of chunks, at what comes before what, and at what changes, finds
nothing in a stream if it finds nothing in its outline: a chunk that is left out differs from those
that stay for it in its text alone, and stands between them. Such a check is marked `@outlined`; one
that looks at texts, or counts what it finds right, is not. What is found in an outline is looked
for again in the stream: where and how often is never the outline's word.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import wraps

from conformance.chunks import Chunk
from conformance.findings import Abstain, Finding
from conformance.lifecycle import Machine, close_from_capture
from conformance.reading import Reading, once

Check = Callable[[Reading], Iterable[Finding | Abstain]]


def outlined(check: Check) -> Check:
    """The check, asked of the outline first, and of the stream where it finds anything there."""

    @wraps(check)
    def asked(reading: Reading) -> Iterable[Finding | Abstain]:
        short = outline(reading)
        if short is reading:
            return check(reading)
        said = [*check(short)]
        for each in said:
            if isinstance(each, Finding):
                return check(reading)
        return said

    return asked


@once
def outline(reading: Reading) -> Reading:
    """The reading without what is between; itself, where that is nothing."""
    kept = tuple(reading.chunks[at] for at in _telling(reading.chunks))
    if len(kept) == len(reading.chunks):
        return reading
    machine = Machine(reading.n or 1)
    for chunk in kept:
        machine.feed(chunk)
    life = machine.close(close_from_capture(reading.capture, reading.complete))
    return replace(reading, chunks=kept, life=life)


def _telling(chunks: Sequence[Chunk]) -> list[int]:
    """In each stretch of chunks with patterns, the first two of a pattern and its last; all others.

    Of the second on, nothing that a chunk of its pattern does to the stretch is new: its choice has
    begun, has or has not had its end, and has said what it says every time.
    """
    kept: set[int] = set()
    seen: dict[str, list[int]] = {}
    for at, chunk in enumerate(chunks):
        if chunk.pattern is None:
            kept.update(*seen.values(), (at,))
            seen = {}
        elif len(places := seen.setdefault(chunk.pattern, [])) < 3:
            places.append(at)
        else:
            places[2] = at
    kept.update(*seen.values())
    return sorted(kept)
