"""Faults of the event stream: lines, blocks, JSON texts, the sentinel, the end."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable

from reference_server.faults.fault import Fault, Place, Sent
from reference_server.seams import Act, Part
from reference_server.wire import sse_writer
from reference_server.wire.sse_writer import END, FIELD, SENTINEL

Block = Callable[[Place, bytes], Iterable[Sent]]
BOM = b"\xef\xbb\xbf"
_OPENINGS = (b'"content":"', b'"text":"', b'"arguments":"')


def _every(change: Callable[[bytes], bytes]) -> Block:
    return lambda place, block: (change(block),)


def _at(part: Part, nth: int, change: Callable[[bytes], Iterable[Sent]]) -> Block:
    """Changes the nth block of a kind."""

    def block(place: Place, raw: bytes) -> Iterable[Sent]:
        return change(raw) if place.part is part and place.nth == nth else (raw,)

    return block


def _first(change: Callable[[bytes], Iterable[Sent]]) -> Block:
    """Changes the very first block."""
    return lambda place, raw: change(raw) if place.n == 0 else (raw,)


def _chunk(change: Callable[[bytes], Iterable[Sent]]) -> Block:
    """Changes the first block that carries text or tool arguments."""

    def block(place: Place, raw: bytes) -> Iterable[Sent]:
        if place.part not in (Part.CONTENT, Part.TOOL) or "changed" in place.memory:
            return (raw,)
        place.memory["changed"] = True
        return change(raw)

    return block


def _in_text(extra: bytes) -> Block:
    """Writes bytes into the first piece of text."""

    def change(raw: bytes) -> Iterable[Sent]:
        for opening in _OPENINGS:
            if opening in raw:
                return (raw.replace(opening, opening + extra, 1),)
        return (raw,)

    return _chunk(change)


def _member(member: bytes) -> Block:
    """Writes one more member into the first chunk that carries text."""
    return _chunk(lambda raw: (raw.replace(b"{", b"{" + member + b",", 1),))


def _pretty(raw: bytes) -> Iterable[Sent]:
    document = json.loads(raw.removeprefix(FIELD))
    lines = json.dumps(document, ensure_ascii=False, indent=1).encode().split(b"\n")
    yield b"\n".join(FIELD + line for line in lines) + END


def _numbered(place: Place, raw: bytes) -> Iterable[Sent]:
    """An id on each event, and a comment between two: with an id each blank line dispatches."""
    yield b"id: %d\n" % place.n + raw
    if place.part is not Part.DONE:
        yield sse_writer.comment("ping")


def _late_chunk(place: Place, raw: bytes) -> Iterable[Sent]:
    if place.part is Part.CONTENT:
        place.memory["content"] = raw
    if place.part is not Part.DONE:
        return (raw,)
    return (raw, place.memory.get("content", sse_writer.event({})))


def _after(count: int, *acts: Sent) -> Block:
    """What happens instead of the rest, after some blocks with text."""

    def block(place: Place, raw: bytes) -> Iterable[Sent]:
        carries = place.part in (Part.CONTENT, Part.TOOL)
        return (raw, *acts) if carries and place.nth == count else (raw,)

    return block


def _mid_event(place: Place, raw: bytes) -> Iterable[Sent]:
    if place.part in (Part.CONTENT, Part.TOOL) and place.nth == 2:
        return (raw[: len(raw) // 2], Act.CLOSE)
    return (raw,)


def _only(*parts: Part) -> Block:
    return lambda place, raw: (raw,) if place.part in parts else ()


def _sentinel(data: bytes) -> Block:
    return _at(Part.DONE, 0, lambda raw: (FIELD + data + END,))


def _mixed(ending: bytes) -> Block:
    return lambda place, raw: (raw.removesuffix(END) + ending if place.n % 2 else raw,)


LINES = (
    Fault("sse.invalid-utf8", "a byte of the text is no UTF-8", block=_in_text(b"\xff")),
    Fault("sse.invalid-utf8", "a character is cut in two", "half", block=_in_text(b"\xf0\x9f\xab")),
    Fault(
        "sse.unterminated-event",
        "no blank line after the sentinel",
        block=_at(Part.DONE, 0, lambda raw: (raw.removesuffix(END),)),
    ),
    Fault(
        "sse.unterminated-event",
        "the stream ends in the middle of the finish chunk's block",
        "chunk",
        block=_at(Part.FINISH, 0, lambda raw: (raw.removesuffix(b"\n"), Act.FINISH)),
    ),
    Fault("sse.bom", "a byte-order mark opens the stream", block=_first(lambda raw: (BOM + raw,))),
    Fault("sse.mixed-endings", "LF and CRLF in turns", block=_mixed(b"\r\n\r\n")),
    Fault("sse.mixed-endings", "blank lines of LF and CRLF", "blank", block=_mixed(b"\n\r\n")),
    Fault(
        "sse.bare-cr",
        "lines end with CR alone",
        block=_every(lambda raw: raw.removesuffix(END) + b"\r\r"),
    ),
    Fault(
        "sse.empty-data-event",
        "an event with empty data",
        block=_chunk(lambda raw: (FIELD.rstrip() + END, raw)),
    ),
    Fault(
        "sse.dataless-block",
        "a block with a type and no data",
        block=_chunk(lambda raw: (b"event: message" + END, raw)),
    ),
    Fault("sse.sticky-id", "ids, and comments between the events", block=_numbered),
    Fault(
        "sse.id-retry-event",
        "events carry a retry time",
        block=_every(lambda raw: b"retry: 3000\n" + raw),
    ),
    Fault(
        "sse.id-retry-event", "events carry an id", "id", block=_every(lambda raw: b"id: 7\n" + raw)
    ),
    Fault(
        "sse.id-retry-event",
        "events carry a type",
        "event",
        block=_every(lambda raw: b"event: chunk\n" + raw),
    ),
    Fault(
        "sse.unprefixed-line",
        "a bare line of text in the stream",
        block=_chunk(lambda raw: (b"Internal Server Error\n" + raw,)),
    ),
    Fault(
        "sse.unprefixed-line",
        "a chunk without its field name",
        "json",
        block=_chunk(lambda raw: (raw.removeprefix(FIELD),)),
    ),
    Fault(
        "sse.unprefixed-line",
        "text opens the stream",
        "leading",
        block=_first(lambda raw: (b"<html>\n\n" + raw,)),
    ),
    Fault(
        "sse.unknown-field",
        "a field that is not the standard's",
        block=_chunk(lambda raw: (b"meta: 1\n" + raw,)),
    ),
    Fault("sse.multi-line-data", "pretty-printed JSON", block=_chunk(_pretty)),
    Fault(
        "sse.no-space",
        "no space after the colon",
        block=_every(lambda raw: raw.replace(FIELD, FIELD.rstrip(), 1)),
    ),
    Fault(
        "sse.raw-line-separator",
        "U+2028 stands raw in a string",
        block=_member(b'"note":"\xe2\x80\xa8"'),
    ),
    Fault(
        "sse.missing-blank-line",
        "no blank line between two events",
        block=_chunk(lambda raw: (raw.removesuffix(b"\n"),)),
    ),
    Fault(
        "sse.missing-blank-line",
        "no blank line before the sentinel",
        "done",
        block=_at(Part.FINISH, 0, lambda raw: (raw.removesuffix(b"\n"),)),
    ),
    Fault(
        "sse.event-size",
        "one event of 70 kB",
        block=_member(b'"note":"' + b"x" * 70_000 + b'"'),
    ),
)

TEXTS = (
    Fault(
        "json.invalid",
        "a JSON text lacks its last brace",
        block=_chunk(lambda raw: (raw.removesuffix(END)[:-1] + END,)),
    ),
    Fault(
        "json.invalid",
        "a chunk is a Python literal",
        "python",
        block=_chunk(
            lambda raw: (FIELD + repr(json.loads(raw.removeprefix(FIELD))).encode() + END,)
        ),
    ),
    Fault("json.nonfinite", "a number is NaN", block=_member(b'"note":NaN')),
    Fault("json.duplicate-key", "a key stands twice", block=_member(b'"model":"other"')),
    Fault("json.control-character", "a raw tab in a string", block=_member(b'"note":"\t"')),
    Fault(
        "json.not-object",
        "an event is null",
        block=_chunk(lambda raw: (FIELD + b"null" + END, raw)),
    ),
    Fault(
        "json.not-object",
        "a chunk comes in an array",
        "array",
        block=_chunk(
            lambda raw: (FIELD + b"[" + raw.removeprefix(FIELD).removesuffix(END) + b"]" + END,)
        ),
    ),
    Fault("json.lone-surrogate", "half a surrogate pair", block=_in_text(b"\\ud83e")),
)

ENDS = (
    Fault("done.missing", "no sentinel", block=_at(Part.DONE, 0, lambda raw: ())),
    Fault("done.malformed", "a space after the sentinel", block=_sentinel(SENTINEL + b" ")),
    Fault("done.malformed", "the sentinel in quotes", "quoted", block=_sentinel(b'"[DONE]"')),
    Fault("done.malformed", "the sentinel in lower case", "lower", block=_sentinel(b"[done]")),
    Fault("done.duplicate", "the sentinel twice", block=_at(Part.DONE, 0, lambda raw: (raw, raw))),
    Fault("done.data-after", "a chunk after the sentinel", block=_late_chunk),
    Fault("stream.empty", "a 200 without a single event", block=_only()),
    Fault("stream.empty", "nothing but the sentinel", "sentinel", block=_only(Part.DONE)),
    Fault(
        "stream.truncated", "the connection closes in the middle", block=_after(2, Act.CLOSE)
    ),
    Fault(
        "stream.truncated", "the connection is reset in the middle", "reset",
        block=_after(2, Act.RESET),
    ),
    Fault(
        "stream.truncated", "the body ends in the middle, rightly framed", "framed",
        block=_after(2, Act.FINISH),
    ),
    Fault("stream.truncated", "the connection closes within an event", "event", block=_mid_event),
    Fault("stream.no-progress", "silence in the middle", block=_after(2, Act.STALL)),
    Fault("stream.no-progress", "only comments from the middle on", "beat",
          block=_after(2, Act.BEAT)),
    Fault(
        "stream.not-closed",
        "the body stays open after the sentinel",
        block=_at(Part.DONE, 0, lambda raw: (raw, Act.STALL)),
    ),
)  # fmt: skip

FAULTS = LINES + TEXTS + ENDS
