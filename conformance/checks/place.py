"""From a place in a reading to a finding there: offsets on the wire, excerpts of bounded size."""

from __future__ import annotations

from conformance.chunks import Chunk
from conformance.findings import Finding, Level
from conformance.http1 import Field
from conformance.reading import Reading

EXCERPT = 120


def at_chunk(
    reading: Reading, chunk: Chunk, rule: str, message: str, level: Level | None = None
) -> Finding:
    """A finding at one event of a stream; the excerpt is the start of its data as sent."""
    start = chunk.event.data_offset
    end = min(chunk.event.end, start + EXCERPT)
    return Finding(
        rule,
        message,
        offset=reading.place(start),
        event=chunk.event.ordinal,
        excerpt=reading.body[start:end].rstrip(b"\r\n"),
        level=level,
    )


def at_field(field: Field, rule: str, message: str, level: Level | None = None) -> Finding:
    """A finding at one field line of the head."""
    excerpt = (field.name + b": " + field.value)[:EXCERPT]
    return Finding(rule, message, offset=field.offset, excerpt=excerpt, level=level)


def at_body(
    reading: Reading, offset: int, rule: str, message: str, level: Level | None = None
) -> Finding:
    """A finding at a body offset, not tied to one event."""
    excerpt = reading.body[offset : offset + EXCERPT]
    return Finding(rule, message, offset=reading.place(offset), excerpt=excerpt, level=level)
