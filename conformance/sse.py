"""Event streams, read from the WHATWG text alone: HTML Living Standard, section 9.2.5 and 9.2.6.

Bytes go in, in any pieces; events come out, the moment the byte that closes them is there.
Whatever is legal but breaks somebody, and whatever is not legal, is noted as an anomaly with its
place and is otherwise read as the standard says. Nothing here raises on any bytes.

Offsets count bytes from the first byte fed, lines count from 1, events from 0.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import NamedTuple

MAX_EVENT = 64 * 1024 * 1024
KEPT = 100  # anomalies of one kind that are kept; all are counted
EXCERPT = 64
KINDS = (
    "invalid-utf8", "bom", "mixed-endings", "bare-cr", "empty-data-event", "dataless-block",
    "sticky-id", "id-field", "retry-field", "event-field", "bad-retry", "id-nul",
    "unprefixed-line", "unknown-field", "multi-line-data", "no-space", "raw-line-separator",
    "unterminated-event", "leading-noise", "event-too-long",
)  # fmt: skip

_LF = 10
_COLON = 58
_SPACE = 32
_BOM = b"\xef\xbb\xbf"
_FIELDS = (b"data", b"event", b"id", b"retry")
_RETRY_MAX = 2**63 - 1  # a larger delay (292 million years in ms) is reported as this one
_RETRY_DIGITS = 18
_new = tuple.__new__
# What somebody meant as a field: a name and a colon, or one lower-case word alone.
_FIELD_LIKE = re.compile(rb"[A-Za-z][A-Za-z0-9_-]{0,31}:|[a-z][a-z0-9_-]{0,31}\Z")
# Line ends to Unicode and to splitters built on it, but not to the standard. No other character's
# UTF-8 contains these bytes, so a search in the raw line is exact.
_SEPARATOR = re.compile(rb"\xe2\x80[\xa8\xa9]|\xc2\x85")
# Unicode 3.9, table 3-7, which the Encoding standard's UTF-8 decoder walks; then, where that fails,
# the "maximal subpart" that one U+FFFD stands for.
_WELL_FORMED = re.compile(
    rb"(?:[\x00-\x7f]|[\xc2-\xdf][\x80-\xbf]|\xe0[\xa0-\xbf][\x80-\xbf]"
    rb"|[\xe1-\xec\xee\xef][\x80-\xbf]{2}|\xed[\x80-\x9f][\x80-\xbf]"
    rb"|\xf0[\x90-\xbf][\x80-\xbf]{2}|[\xf1-\xf3][\x80-\xbf]{3}|\xf4[\x80-\x8f][\x80-\xbf]{2})*+"
)
_ILL_FORMED = re.compile(
    rb"\xe0[\xa0-\xbf]|[\xe1-\xec\xee\xef][\x80-\xbf]|\xed[\x80-\x9f]"
    rb"|\xf0[\x90-\xbf][\x80-\xbf]?|[\xf1-\xf3][\x80-\xbf]{1,2}|\xf4[\x80-\x8f][\x80-\xbf]?"
    rb"|[\x80-\xff]"
)


class Event(NamedTuple):
    """One dispatched event.

    `offset` is the first byte of its block (comments included), `end` is just after the byte that
    closed it: its blank line's LF, or CR; a LF that completes a CRLF comes after `end`, because
    the standard dispatches at the CR. `retry` is the valid reconnection time (ms) that this block
    set. `data_offset` is the first byte of the first data line's value.
    """

    # A named tuple: a frozen dataclass of ten fields takes longer to build than the rest of
    # reading a small event does.
    data: str
    type: str
    last_id: str
    retry: int | None
    ordinal: int
    offset: int
    end: int
    line: int
    data_lines: int
    data_offset: int


@dataclass(frozen=True, slots=True)
class Anomaly:
    """One place where the stream is wrong, or right and a trap. `kind` is a member of KINDS.

    `event` is the ordinal of the event that it belongs to, or of the next one. `excerpt` are the
    bytes from `offset`, at most 64 and at most to the end of that line, except for pending bytes.
    """

    kind: str
    offset: int
    line: int
    event: int
    excerpt: bytes


class _Place(NamedTuple):
    """A line: where it starts, its number, and its first bytes."""

    offset: int
    line: int
    excerpt: bytes


@dataclass(slots=True)
class _Block:
    """What has been read of the block that no blank line has closed yet."""

    start: _Place
    data: bytearray = field(default_factory=bytearray)  # the standard's "data buffer", as bytes
    data_lines: int = 0
    first_data: _Place | None = None
    data_offset: int = 0
    type: str = ""
    retry: int | None = None
    known: _Place | None = None  # its first line with a field of the standard


class Reader:
    """An event stream, fed in any pieces; any split gives equal events, anomalies and counts.

    A block that is not closed within `max_event` bytes is noted as `event-too-long`; from there on
    the reader is `dead`: it ignores what it is fed. `plain` switches the shortcut for plain blocks
    off: for the test that holds both ways equal.
    """

    def __init__(self, max_event: int = MAX_EVENT, *, plain: bool = False) -> None:
        self.max_event = max_event
        self.dead = False
        self.fed = 0  # bytes, those after the end of reading included
        self.last_id = ""  # the standard's "last event ID string": as of the last blank line
        self.comments = 0
        self.counts: dict[str, int] = {}
        self.terminators = {"LF": 0, "CRLF": 0, "CR": 0}
        self._plain = plain
        self._at_ease = not plain  # `_between_plain_blocks`, as of the end of the last feed
        self._closed = False
        self._kept: list[Anomaly] = []
        self._style: str | None = None  # the first line's terminator
        self._begun = False  # a line that is not blank has been seen
        self._ordinal = 0
        self._number = 1  # of the line being read
        self._line_at = 0
        self._partial = bytearray()  # the line being read, as far as earlier feeds brought it
        self._cr: tuple[_Place, int] | None = None  # a CR, and its event's ordinal; LF may follow
        self._id = ""  # the standard's "last event ID buffer"
        self._block: _Block | None = None
        self._head = b""  # the first bytes of what is pending, enough for an excerpt
        self._head_at = 0

    @property
    def anomalies(self) -> list[Anomaly]:
        """The kept ones by offset: at most 100 of a kind; `counts` has the true numbers."""
        return sorted(self._kept, key=lambda a: (a.offset, a.kind))

    @property
    def pending_data(self) -> str | None:
        """The data of the block that is not closed, an unfinished line included; None: no data."""
        data = b"" if self._block is None else bytes(self._block.data)
        if self._partial.startswith(b"data:"):
            data += self._partial[5 + self._partial.startswith(b"data: ") :] + b"\n"
        return data[:-1].decode("utf-8", "replace") if data else None

    # -- bytes to lines ----------------------------------------------------------------------------

    def feed(self, data: bytes) -> list[Event]:
        """Read on; returns the events that these bytes closed."""
        base, pos = self.fed, 0
        self.fed += len(data)
        events: list[Event] = []
        if self._at_ease:
            pos = self._skim(data, 0, _find(data, b"\r", 0), events)
        if pos < len(data) and not (self.dead or self._closed):
            self._read(data, pos, base, events)
            self._keep_head(data, base)
            self._at_ease = self._between_plain_blocks() and self._cr is None and not self.dead
        return events

    def _read(self, data: bytes, pos: int, base: int, events: list[Event]) -> None:
        """Cut `data` from `pos` into lines. `base` is the offset of its first byte."""
        # `lf` and `cr` are the next of their kind at or after `pos`, or the end: each byte is
        # searched once for either, however the lines fall.
        size, lf, cr = len(data), -1, -1
        while pos < size:
            if self._cr is not None:
                pos += self._settle_cr(data[pos] == _LF)
                continue
            if cr < pos:
                cr = _find(data, b"\r", pos)
            if self._between_plain_blocks():
                pos = self._skim(data, pos, cr, events)
            if lf < pos:
                lf = _find(data, b"\n", pos)
            cut = min(lf, cr)
            if cut == size:
                self._partial += memoryview(data)[pos:]
                return
            end = base + cut + 1
            if end - self._pending_from() > self.max_event:
                return
            self._line(data[pos:cut], end, cut == cr, events)
            pos = cut + 1

    def close(self) -> None:
        """The end of the stream: "any pending data must be discarded" (9.2.6)."""
        if self.dead or self._closed:
            return
        self._closed, self._at_ease = True, False
        if self._cr is not None:
            self._settle_cr(False)
        line, at = self._unmarked(bytes(self._partial), self._line_at)
        place = _Place(at, self._number, line[:EXCERPT])
        if line:
            self._check_text(line, place, cut=True)
        lost = self._block is not None and self._block.known is not None
        if _may_be_field(line):
            lost = True
        elif line and line[0] != _COLON:
            self._stray(line, place)
        if lost:
            start = place if self._block is None else self._block.start
            excerpt = self._head[:EXCERPT]
            self._note("unterminated-event", start._replace(excerpt=excerpt))

    def _pending_from(self) -> int:
        """The offset of the first byte of what no blank line has closed."""
        return self._line_at if self._block is None else self._block.start.offset

    def _keep_head(self, data: bytes, base: int) -> None:
        """Remember how the pending bytes begin; give up on a block that is too long."""
        start = self._pending_from()
        if start == self.fed:
            return
        if start != self._head_at:
            self._head, self._head_at = b"", start
        missing = EXCERPT + len(_BOM) - len(self._head)
        if missing:
            at = start + len(self._head) - base
            self._head += data[at : at + missing]
        if self.fed - start > self.max_event:
            line = self._number if self._block is None else self._block.start.line
            self._note("event-too-long", _Place(start, line, self._head[:EXCERPT]))
            self.dead = True
            self._block, self._partial = None, bytearray()

    def _settle_cr(self, lf_follows: bool) -> int:
        """Say what ended the last line, now that the byte after its CR is known.

        The line itself "can end" at the CR (9.2.6) and was taken then; returns how many bytes the
        rest of its terminator has.
        """
        assert self._cr is not None
        place, event = self._cr
        self._cr = None
        if not lf_follows:
            self._note("bare-cr", place, event)
            self._count_terminator("CR", place, event)
            return 0
        self._count_terminator("CRLF", place._replace(excerpt=b"\r\n"), event)
        self._line_at += 1
        return 1

    def _count_terminator(self, style: str, place: _Place, event: int) -> None:
        self.terminators[style] += 1
        if self._style is None:
            self._style = style
        elif style != self._style:
            self._note("mixed-endings", place, event)

    def _unmarked(self, line: bytes, at: int) -> tuple[bytes, int]:
        """The first line without its byte-order mark: UTF-8 decode "strips one leading" (9.2.6)."""
        if at or not line.startswith(_BOM):
            return line, at
        self._note("bom", _Place(0, self._number, _BOM))
        if self._head:
            self._head, self._head_at = self._head[len(_BOM) :], len(_BOM)
        return line[len(_BOM) :], len(_BOM)

    # -- lines to events ---------------------------------------------------------------------------

    def _between_plain_blocks(self) -> bool:
        """Nothing is pending, in a stream whose lines end in LF, as far as there are any."""
        return (
            self._block is None
            and not self._partial
            and self._style in (None, "LF")
            and not self._plain
        )

    def _skim(self, data: bytes, pos: int, stop: int, events: list[Event]) -> int:
        """The shortcut: blocks `data: …` LF LF without anything to note, before the CR at `stop`.

        Returns where the first other block begins; `_line` reads that one.
        """
        base, before, last_id = self._line_at - pos, self._ordinal, self.last_id
        ordinal, number, longest = before, self._number, self.max_event - 2
        while data[pos : pos + 6] == b"data: ":
            cut = data.find(b"\n", pos, stop)
            if not (pos + 6 < cut < stop - 1 and data[cut + 1] == _LF and cut - pos <= longest):
                break
            value = data[pos + 6 : cut]
            try:
                text = value.decode()
            except UnicodeDecodeError:
                break
            if not text.isascii() and _SEPARATOR.search(value):
                break
            at = base + pos
            pos = cut + 2
            # `tuple.__new__` is what `Event(…)` comes to, without a call of its own.
            made = (text, "message", last_id, None, ordinal, at, base + pos, number, 1, at + 6)
            events.append(_new(Event, made))
            ordinal += 1
            number += 2
        if ordinal != before:
            self._begun, self._style = True, "LF"
            self.terminators["LF"] += number - self._number
            self._ordinal, self._number, self._line_at = ordinal, number, base + pos
        return pos

    def _line(self, rest: bytes, end: int, by_cr: bool, events: list[Event]) -> None:
        """One line: what is partial and `rest`; `end` is the offset after its LF or CR."""
        line, at = rest, self._line_at
        if self._partial:
            self._partial += rest
            line, self._partial = bytes(self._partial), bytearray()
        line, at = self._unmarked(line, at)
        terminator = _Place(end - 1, self._number, b"\r" if by_cr else b"\n")
        if by_cr:
            self._cr = (terminator, self._ordinal)
        else:
            self._count_terminator("LF", terminator, self._ordinal)
        if line:
            self._content(line, _Place(at, self._number, line[:EXCERPT]))
        else:
            self._blank(at, end, events)
        self._line_at = end
        self._number += 1

    def _content(self, line: bytes, place: _Place) -> None:
        """A line that is not blank: a comment, a field, or something that should not be there."""
        if self._block is None:
            self._block = _Block(place)
        if not line.isascii():
            self._check_text(line, place)
        colon = line.find(b":")
        name = line if colon < 0 else line[:colon]
        if name in _FIELDS:
            self._begun = True
            # "If value starts with a U+0020 SPACE character, remove it from value."
            value = len(name) + 1
            value += line[value : value + 1] == b" "
            self._known(self._block, name, line, value, place)
        elif colon == 0:
            self._begun = True
            self.comments += 1
        else:
            self._stray(line, place)

    def _known(self, block: _Block, name: bytes, line: bytes, value: int, place: _Place) -> None:
        """A field of the standard; `value` is where its value starts in the line."""
        if block.known is None:
            block.known = place
        if name == b"data":
            self._data(block, line, value, place)
        elif name == b"event":
            self._event(block, line[value:], place)
        elif name == b"id":
            self._last_id(line[value:], place)
        else:
            self._retry(block, line[value:], place)

    def _data(self, block: _Block, line: bytes, value: int, place: _Place) -> None:
        """ "Append the field value to the data buffer, then append a single LF" """
        block.data += memoryview(line)[value:]
        block.data.append(_LF)
        block.data_lines += 1
        if block.data_lines == 1:
            block.first_data = place
            block.data_offset = place.offset + min(value, len(line))
        elif block.data_lines == 2:
            self._note("multi-line-data", place)
        if len(line) > 5 and line[5] != _SPACE:
            self._note("no-space", place)
        if not line.isascii():
            for found in _SEPARATOR.finditer(line):
                self._note("raw-line-separator", _within(place, found.start(), found[0]))

    def _event(self, block: _Block, value: bytes, place: _Place) -> None:
        block.type = value.decode("utf-8", "replace")
        if block.type not in ("", "message"):
            self._note("event-field", place)

    def _last_id(self, value: bytes, place: _Place) -> None:
        """ "If the field value does not contain U+0000 NULL, then set the last event ID buffer" """
        self._note("id-field", place)
        if 0 in value:
            self._note("id-nul", place)
        else:
            self._id = value.decode("utf-8", "replace")

    def _retry(self, block: _Block, value: bytes, place: _Place) -> None:
        """ "If the field value consists of only ASCII digits, then interpret […] in base ten" """
        self._note("retry-field", place)
        if not value.isdigit():  # of bytes: ASCII digits, at least one
            self._note("bad-retry", place)
            return
        digits = value.lstrip(b"0")
        block.retry = int(digits or b"0") if len(digits) <= _RETRY_DIGITS else _RETRY_MAX

    def _stray(self, line: bytes, place: _Place) -> None:
        """Neither comment nor field of the standard: "The field is ignored." """
        if line.startswith(_BOM):
            self._note("bom", place._replace(excerpt=_BOM))
        if _FIELD_LIKE.match(line):
            self._note("unknown-field", place)
        else:
            self._note("unprefixed-line", place)
            if not self._begun:
                self._note("leading-noise", place)
        self._begun = True

    def _blank(self, at: int, end: int, events: list[Event]) -> None:
        """A blank line: "Dispatch the event" (9.2.6); without a data line there is none."""
        block, self._block = self._block, None
        self.last_id = self._id
        if block is not None and block.first_data is not None:
            events.append(self._dispatch(block, block.first_data, end))
        elif block is not None and block.known is not None:
            self._note("dataless-block", block.known)
        elif self.last_id:
            self._note("sticky-id", _Place(at, self._number, b"") if block is None else block.start)

    def _dispatch(self, block: _Block, first_data: _Place, end: int) -> Event:
        # "If the data buffer's last character is a […] LF […], then remove the last character"
        del block.data[-1:]
        if not block.data:
            self._note("empty-data-event", first_data)
        event = Event(
            data=block.data.decode("utf-8", "replace"),
            type=block.type or "message",
            last_id=self.last_id,
            retry=block.retry,
            ordinal=self._ordinal,
            offset=block.start.offset,
            end=end,
            line=block.start.line,
            data_lines=block.data_lines,
            data_offset=block.data_offset,
        )
        self._ordinal += 1
        return event

    # -- anomalies ---------------------------------------------------------------------------------

    def _note(self, kind: str, place: _Place, event: int | None = None) -> None:
        count = self.counts[kind] = self.counts.get(kind, 0) + 1
        if count <= KEPT:
            ordinal = self._ordinal if event is None else event
            self._kept.append(Anomaly(kind, place.offset, place.line, ordinal, place.excerpt))

    def _check_text(self, line: bytes, place: _Place, *, cut: bool = False) -> None:
        """Note what is not UTF-8. `cut`: the stream ended here, perhaps inside a character."""
        pos = _well_formed_until(line, 0)
        while pos < len(line):
            found = _ILL_FORMED.match(line, pos)
            assert found is not None
            if not (cut and found.end() == len(line) and 0xC2 <= line[pos] <= 0xF4):
                self._note("invalid-utf8", _within(place, pos, found[0]))
            pos = _well_formed_until(line, found.end())


def parse(body: bytes) -> tuple[list[Event], list[Anomaly]]:
    """A whole stream at once: its events and its anomalies, as `Reader` gives them."""
    reader = Reader()
    events = reader.feed(body)
    reader.close()
    return events, reader.anomalies


def _find(data: bytes, byte: bytes, pos: int) -> int:
    found = data.find(byte, pos)
    return len(data) if found < 0 else found


def _within(place: _Place, start: int, excerpt: bytes) -> _Place:
    return _Place(place.offset + start, place.line, excerpt)


def _well_formed_until(line: bytes, pos: int) -> int:
    found = _WELL_FORMED.match(line, pos)
    assert found is not None
    return found.end()


def _may_be_field(partial: bytes) -> bool:
    """Whether an unfinished line is, or could have become, a field of the standard."""
    name, colon, _ = partial.partition(b":")
    return name in _FIELDS if colon else bool(name) and any(f.startswith(name) for f in _FIELDS)
