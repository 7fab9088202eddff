"""From lines to events: section 9.2.6, "Interpreting an event stream"."""

from __future__ import annotations

import re
from collections.abc import Callable

from conformance.sse.records import EXCERPT, KEPT, Anomaly, Event, Place
from conformance.sse.utf8 import ill_formed, is_cut_character

BOM = b"\xef\xbb\xbf"
# Line ends to Unicode and to splitters built on it, but not to the standard. No other character's
# UTF-8 has these bytes in it, so a search in the raw bytes is exact.
_SEPARATOR = re.compile(rb"\xe2\x80[\xa8\xa9]|\xc2\x85")
# What somebody meant as a field: a name and a colon, or one lower-case word alone.
_FIELD_LIKE = re.compile(rb"[A-Za-z][A-Za-z0-9_-]{0,31}:|[a-z][a-z0-9_-]{0,31}\Z")
_RETRY_MAX = 2**63 - 1  # 292 million years in ms; a longer delay is reported as this one
_RETRY_DIGITS = 18  # what surely fits
_new = tuple.__new__


class Block:
    """What has been read since the last blank line."""

    # Class attributes as defaults: most blocks set few of them, and there is one to every event.
    data_lines = 0
    data_offset = 0
    first_data: Place | None = None
    known: Place | None = None  # the first line with a field of the standard
    type = ""
    retry: int | None = None

    def __init__(self, start: Place) -> None:
        self.start = start
        self.data = bytearray()  # the standard's "data buffer", as bytes


class Interpreter:
    """Takes a stream's lines in order, without their terminators."""

    def __init__(self) -> None:
        self.block: Block | None = None
        self.last_id = ""  # the "last event ID string": as of the last blank line
        self.ordinal = 0  # of the next event
        self.comments = 0
        self.begun = False  # a line that is not blank has been seen
        self.counts: dict[str, int] = {}
        self.kept: list[Anomaly] = []
        self._id = ""  # the "last event ID buffer": as of the last `id` line

    def content(self, line: bytes, at: int, number: int) -> None:
        """A line that is not blank: a comment, a field, or something that should not be there."""
        place = _new(Place, (at, number, line[:EXCERPT]))
        block = self.block
        if block is None:
            block = self.block = Block(place)
        if not line.isascii():
            self.check_text(line, place)
        colon = line.find(b":")
        name = line if colon < 0 else line[:colon]
        if name in _FIELDS:
            # "If value starts with a U+0020 SPACE character, remove it from value."
            value = len(name) + 1
            if line[value : value + 1] == b" ":
                value += 1
            if block.known is None:
                block.known = place
            _FIELDS[name](self, block, line, value, place)
        elif colon == 0:
            self.comments += 1  # "Ignore the line."
        else:
            self.stray(line, place)
        self.begun = True

    def _data(self, block: Block, line: bytes, value: int, place: Place) -> None:
        # "Append the field value to the data buffer, then append a single […] LF […]." As bytes,
        # and decoded once: a string for each line would take many times their memory.
        block.data += memoryview(line)[value:]
        block.data += b"\n"
        block.data_lines += 1
        if block.data_lines == 1:
            block.first_data = place
            block.data_offset = place.offset + min(value, len(line))
        elif block.data_lines == 2:
            self.note("multi-line-data", place)
        if len(line) > value == 5:
            self.note("no-space", place)
        if not line.isascii():
            for found in _SEPARATOR.finditer(line):
                self.note("raw-line-separator", place.within(found.start(), found[0]))

    def _event(self, block: Block, line: bytes, value: int, place: Place) -> None:
        block.type = line[value:].decode("utf-8", "replace")
        if block.type not in ("", "message"):
            self.note("event-field", place)

    def _last_id(self, block: Block, line: bytes, value: int, place: Place) -> None:
        # "If the field value does not contain U+0000 NULL, then set the last event ID buffer to
        # the field value. Otherwise, ignore the field."
        self.note("id-field", place)
        if 0 in line:
            self.note("id-nul", place)
        else:
            self._id = line[value:].decode("utf-8", "replace")

    def _retry(self, block: Block, line: bytes, value: int, place: Place) -> None:
        # "If the field value consists of only ASCII digits, then interpret the field value as an
        # integer in base ten": what bytes.isdigit() says, and int() alone does not.
        self.note("retry-field", place)
        if not line[value:].isdigit():
            self.note("bad-retry", place)
            return
        digits = line[value:].lstrip(b"0") or b"0"
        block.retry = int(digits) if len(digits) <= _RETRY_DIGITS else _RETRY_MAX

    def stray(self, line: bytes, place: Place) -> None:
        """Neither a comment nor a field of the standard: "Otherwise: The field is ignored." """
        if line.startswith(BOM):
            self.note("bom", place.within(0, BOM))
        if _FIELD_LIKE.match(line):
            self.note("unknown-field", place)
            return
        self.note("unprefixed-line", place)
        if not self.begun:
            self.note("leading-noise", place)

    def blank(self, at: int, end: int, number: int) -> Event | None:
        """A blank line: "Dispatch the event". `end` is the offset after its LF or CR."""
        block, self.block = self.block, None
        self.last_id = self._id
        if block is not None and block.first_data is not None:
            return self._dispatch(block, block.first_data, end)
        # "If the data buffer is an empty string, set the data buffer and the event type buffer to
        # the empty string and return." The block is gone, and its type with it.
        if block is not None and block.known is not None:
            self.note("dataless-block", block.known)
        elif self.last_id:
            self.note("sticky-id", Place(at, number, b"") if block is None else block.start)
        return None

    def _dispatch(self, block: Block, first_data: Place, end: int) -> Event:
        # "If the data buffer's last character is a […] LF […], then remove the last character".
        del block.data[-1:]
        if not block.data:
            self.note("empty-data-event", first_data)
        self.ordinal += 1
        return Event(
            block.data.decode("utf-8", "replace"),
            block.type or "message",
            self.last_id,
            block.retry,
            self.ordinal - 1,
            block.start.offset,
            end,
            block.start.line,
            block.data_lines,
            block.data_offset,
        )

    def unfinished(self, line: bytes, at: int, number: int, head: bytes) -> None:
        """The end of the stream, perhaps within `line`: "any pending data must be discarded".

        `head` is how the pending bytes begin.
        """
        place = Place(at, number, line[:EXCERPT])
        self.check_text(line, place, cut=True)
        lost = self.block is not None and self.block.known is not None
        if _may_be_field(line):
            lost = True
        elif line and not line.startswith(b":"):
            self.stray(line, place)
        if lost:
            start = place if self.block is None else self.block.start
            self.note("unterminated-event", start.within(0, head))

    def check_text(self, line: bytes, place: Place, *, cut: bool = False) -> None:
        """Note what is not UTF-8. `cut`: the stream ended here, perhaps inside a character."""
        try:
            line.decode()
            return
        except UnicodeDecodeError:
            pass  # it knows the first place only
        for start, subpart in ill_formed(line):
            if not (cut and start + len(subpart) == len(line) and is_cut_character(subpart)):
                self.note("invalid-utf8", place.within(start, subpart))

    def note(self, kind: str, place: Place, event: int | None = None) -> None:
        """Count an anomaly, and keep it if there are few of its kind."""
        count = self.counts[kind] = self.counts.get(kind, 0) + 1
        if count <= KEPT:
            ordinal = self.ordinal if event is None else event
            self.kept.append(Anomaly(kind, place.offset, place.line, ordinal, place.excerpt))


# "Process the field using the steps described below": name → what to do with a line, where its
# value begins, and where it stands.
_FIELDS: dict[bytes, Callable[[Interpreter, Block, bytes, int, Place], None]] = {
    b"data": Interpreter._data,
    b"event": Interpreter._event,
    b"id": Interpreter._last_id,
    b"retry": Interpreter._retry,
}


def _may_be_field(partial: bytes) -> bool:
    """Whether an unfinished line is, or could have become, a field of the standard."""
    name, colon, _ = partial.partition(b":")
    if colon:
        return name in _FIELDS
    return bool(name) and any(known.startswith(name) for known in _FIELDS)
