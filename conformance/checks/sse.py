"""Framing as emitted (rules F): what the SSE reader noted, turned into findings.

The reader keeps an anomaly for whatever a named client is known to lose; each check below is one
kind of them. One finding a kind and stream, at the first place, with the count.
"""

from __future__ import annotations

from conformance import sse
from conformance.capture import Layer
from conformance.checks import Findings
from conformance.checks.place import at_chunk
from conformance.chunks import Kind
from conformance.findings import Abstain, Finding, Level
from conformance.outline import outlined
from conformance.reading import Reading

_LARGE_EVENT = 64 * 1024  # bytes: the line limit of common Go scanners
_REWRITTEN = Abstain("not-recorded", "the record holds decoded text, not bytes")


def sse_invalid_utf8(reading: Reading) -> Findings:
    """F01: "Event streams … must always be encoded as UTF-8" (WHATWG HTML 9.2.5)."""
    yield from _first(reading, "invalid-utf8", "F01", "the body is not valid UTF-8")


def sse_unterminated_event(reading: Reading) -> Findings:
    """F02: "If the file ends … the incomplete event is not dispatched" (9.2.6)."""
    lost = Level.SHOULD if (reading.pending or "").strip() == "[DONE]" else None
    said = "the body ends inside an event, which no client gets"
    yield from _first(reading, "unterminated-event", "F02", said, lost)


def sse_bom(reading: Reading) -> Findings:
    """F03: a byte-order mark is allowed once, and most clients lose the first event by it."""
    yield from _first(reading, "bom", "F03", "a byte-order mark stands outside the JSON")


def sse_mixed_endings(reading: Reading) -> Findings:
    """F04: one kind of line ending a stream."""
    yield from _first(reading, "mixed-endings", "F04", "line endings of several kinds")


def sse_bare_cr(reading: Reading) -> Findings:
    """F05: lines end in LF or CRLF."""
    yield from _first(reading, "bare-cr", "F05", "lines end in CR alone")


def sse_empty_data_event(reading: Reading) -> Findings:
    """F10: an event with empty data reaches JSON decoders as nothing."""
    yield from _first(reading, "empty-data-event", "F10", "an event has empty data")


def sse_dataless_block(reading: Reading) -> Findings:
    """F10: a block that sets event, id or retry but brings no data."""
    yield from _first(reading, "dataless-block", "F10", "a block has fields but no data")


def sse_sticky_id(reading: Reading) -> Findings:
    """F11: once an id is set, some clients dispatch at every blank line."""
    yield from _first(reading, "sticky-id", "F11", "a blank line without data after an id was set")


def sse_id_retry_event(reading: Reading) -> Findings:
    """F12, F17: no id, no retry, and no event name but error, in chat and completions."""
    yield from _first(reading, "id-field", "F12", "the field `id` is used")
    yield from _first(reading, "retry-field", "F12", "the field `retry` is used")
    named = [e for e in reading.events if e.type not in ("message", "error")]
    if named:
        event = named[0]
        said = f"events are named {event.type!r}{_more(len(named))}"
        start, end = event.offset, min(event.end, event.offset + 120)
        excerpt = reading.body[start:end]
        yield Finding("F17", said, reading.place(start), event.ordinal, excerpt)


def sse_unprefixed_line(reading: Reading) -> Findings:
    """F13, X15: "The field is ignored.": a bare line is silently lost."""
    yield from _first(
        reading, "unprefixed-line", "F13", "a line is no field: every client drops it"
    )


def sse_unknown_field(reading: Reading) -> Findings:
    """F13: a field that the standard does not know is ignored."""
    yield from _first(reading, "unknown-field", "F13", "a field name that no client knows")


@outlined
def sse_multi_line_data(reading: Reading) -> Findings:
    """F14: one `data:` line an event."""
    several = [
        c for c in reading.chunks if c.event.data_lines > 1 and c.kind is not Kind.UNREADABLE
    ]
    if several:
        said = f"the data stands in {several[0].event.data_lines} lines{_more(len(several))}"
        yield at_chunk(reading, several[0], "F14", said)


def sse_no_space(reading: Reading) -> Findings:
    """F15: the space after the colon is optional, and line splitters need it."""
    yield from _first(reading, "no-space", "F15", "no space after `data:`")


def sse_raw_line_separator(reading: Reading) -> Findings:
    """F16: U+2028, U+2029 and U+0085 raw in the data: some readers split there."""
    said = "U+2028, U+2029 or U+0085 stands unescaped in the data"
    yield from _first(reading, "raw-line-separator", "F16", said)


@outlined
def sse_missing_blank_line(reading: Reading) -> Findings:
    """F06: each event's data is exactly one JSON text, or exactly the sentinel."""
    for chunk in reading.chunks:
        if chunk.kind is Kind.UNREADABLE and any(f.kind == "several" for f in chunk.flaws):
            said = "two texts share one event: the blank line between them is missing"
            yield at_chunk(reading, chunk, "F06", said)
            return


def sse_event_size(reading: Reading) -> Findings:
    """F21: events over 64 KiB overrun the line limit of common readers."""
    events = reading.events if len(reading.body) > _LARGE_EVENT else ()
    large = [e for e in events if e.end - e.offset > _LARGE_EVENT]
    if large:
        size = max(e.end - e.offset for e in large)
        yield Finding(
            "F21",
            f"the largest event has {size} bytes{_more(len(large))}",
            reading.place(large[0].offset),
            large[0].ordinal,
        )
    yield from _first(reading, "event-too-long", "F21", "an event exceeds our bound", Level.MUST)


def _first(
    reading: Reading, kind: str, rule: str, message: str, level: Level | None = None
) -> Findings:
    if reading.capture.layer is Layer.TEXT:
        yield _REWRITTEN
        return
    found = next((a for a in reading.sse_anomalies if a.kind == kind), None)
    if found is not None:
        yield _of_anomaly(reading, found, rule, message, level)


def _of_anomaly(
    reading: Reading, anomaly: sse.Anomaly, rule: str, message: str, level: Level | None
) -> Finding:
    count = (reading.sse_counts or {}).get(anomaly.kind, 1)
    return Finding(
        rule,
        message + _more(count),
        offset=reading.place(anomaly.offset),
        event=None if anomaly.kind == "unterminated-event" else anomaly.event,
        excerpt=anomaly.excerpt,
        level=level,
    )


def _more(count: int) -> str:
    return f" ({count} times)" if count > 1 else ""
