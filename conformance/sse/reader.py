"""From bytes to lines: section 9.2.5, in any pieces, with a shortcut for the usual block."""

from __future__ import annotations

from collections.abc import Mapping

from conformance.sse.interpreter import BOM, Interpreter
from conformance.sse.records import EXCERPT, Anomaly, Event, Place

MAX_EVENT = 64 * 1024 * 1024

# How a block ends that the shortcut knows, by the stream's terminator: the byte to search; what
# must stand there; the same with the next block's start; their lengths; what must not stand in the
# text; how much of the end comes after the byte that dispatches.
_ENDS = {
    "LF": (b"\n", b"\n\n", b"\n\ndata: ", 2, 8, "\r", 0),
    "CRLF": (b"\r", b"\r\n\r\n", b"\r\n\r\ndata: ", 4, 10, "\n", 1),
}
_new = tuple.__new__


class Reader:
    """An event stream, fed in any pieces; any split gives equal events, anomalies and counts.

    A block that is not closed within `max_event` bytes is noted as `event-too-long`; from there on
    the reader is `dead`: it ignores what it is fed, and goes on counting it. What is fed after
    `close` is ignored as well. `shortcut` is for the test that holds both ways equal.
    """

    def __init__(self, max_event: int = MAX_EVENT, *, shortcut: bool = True) -> None:
        self.max_event = max_event
        self.dead = False
        self.fed = 0  # bytes
        self._shortcut = shortcut
        self._closed = False
        self._inside = Interpreter()
        self._partial = bytearray()  # the line being read, as far as earlier feeds brought it
        self._line_at = 0
        self._number = 1  # of the line being read
        self._cr: tuple[int, int, int] | None = None  # the last byte, if a CR: offset, line, event
        self._style: str | None = None  # the first line's terminator
        self._crlf = 0  # lines that ended so
        self._bare_cr = 0
        self._head = b""  # the first bytes of what is pending, enough for an excerpt
        self._head_at = 0
        self._at_ease = shortcut  # the next byte may begin a block for the shortcut
        self._ends = _ENDS["LF"]  # as long as no line has said otherwise

    @property
    def last_id(self) -> str:
        """The last event ID string, as of the last blank line."""
        return self._inside.last_id

    @property
    def comments(self) -> int:
        return self._inside.comments

    @property
    def counts(self) -> Mapping[str, int]:
        """How often each kind of anomaly was noted; a kind that never was is not there."""
        return self._inside.counts

    @property
    def anomalies(self) -> list[Anomaly]:
        """By offset; the first hundred of each kind."""
        return sorted(self._inside.kept, key=lambda anomaly: (anomaly.offset, anomaly.kind))

    @property
    def terminators(self) -> dict[str, int]:
        """How many lines ended in "LF", "CRLF", "CR"; a CR at the end of a read is not yet in."""
        others = self._crlf + self._bare_cr + (self._cr is not None)
        return {"LF": self._number - 1 - others, "CRLF": self._crlf, "CR": self._bare_cr}

    @property
    def pending_data(self) -> str | None:
        """The data of the block that is not closed, an unfinished line included; None: no data."""
        block = self._inside.block
        data = b"" if block is None else bytes(block.data)
        line = bytes(self._partial)
        if not self._line_at:
            line = line.removeprefix(BOM)
        if line.startswith(b"data:"):
            data += line[5:].removeprefix(b" ") + b"\n"
        return data[:-1].decode("utf-8", "replace") if data else None

    def feed(self, data: bytes) -> list[Event]:
        """Read on; returns the events that these bytes closed."""
        base, size, pos = self.fed, len(data), 0
        self.fed = base + size
        events: list[Event] = []
        if self._at_ease:
            pos = self._skim(data, 0, events)
        if pos < size and not (self.dead or self._closed):
            self._read(data, pos, base, events)
            self._keep_head(data, base)
            self._at_ease = self._between_blocks() and self._cr is None
        return events

    def close(self) -> None:
        """The end of the stream."""
        if self.dead or self._closed:
            return
        self._closed, self._at_ease = True, False
        if self._cr is not None:
            self._settle_cr(self._cr, lf_follows=False)
        line, at = self._unmarked(bytes(self._partial), self._line_at)
        self._inside.unfinished(line, at, self._number, self._head[:EXCERPT])

    def _read(self, data: bytes, pos: int, base: int, events: list[Event]) -> None:
        """The obvious way: cut `data` from `pos` into lines. `base` is its first byte's offset."""
        # `lf` and `cr` are the next of their kind at or after `pos`, or the end: each byte is
        # searched once for either, however the lines fall.
        size, lf, cr = len(data), -1, -1
        while pos < size:
            if self._cr is not None:
                pos += self._settle_cr(self._cr, lf_follows=data[pos : pos + 1] == b"\n")
                continue
            lf = lf if lf >= pos else _find(data, b"\n", pos)
            cr = cr if cr >= pos else _find(data, b"\r", pos)
            cut = min(lf, cr)
            if cut == size:
                self._partial += data[pos:]
                return
            # The next terminator must suit, or the shortcut would search the same bytes again.
            if self._between_blocks() and (lf < cr if self._style != "CRLF" else cr + 1 == lf):
                start, pos = pos, self._skim(data, pos, events)
                if pos > start:
                    continue
            end = base + cut + 1
            if end - self._pending_from() > self.max_event:
                return
            self._line(data[pos:cut], end, cut == cr, events)
            pos = cut + 1

    def _line(self, rest: bytes, end: int, by_cr: bool, events: list[Event]) -> None:
        """One line: what is partial and `rest`; `end` is the offset after its LF or CR."""
        inside, line, at, number = self._inside, rest, self._line_at, self._number
        if self._partial:
            self._partial += rest
            line, self._partial = bytes(self._partial), bytearray()
        if not at:
            line, at = self._unmarked(line, at)
        if by_cr:
            self._cr = (end - 1, number, inside.ordinal)
        elif self._style != "LF":
            self._ended("LF", Place(end - 1, number, b"\n"), inside.ordinal)
        if line:
            inside.content(line, at, number)
        elif event := inside.blank(at, end, number):
            events.append(event)
        self._line_at = end
        self._number = number + 1

    def _settle_cr(self, cr: tuple[int, int, int], *, lf_follows: bool) -> int:
        """Say what ended the last line, now that the byte after its CR is known.

        The line was taken at the CR, which is one of "the ways in which a line can end". Returns
        how many bytes of its terminator follow.
        """
        offset, number, event = cr
        self._cr = None
        if lf_follows:
            self._crlf += 1
            self._line_at += 1
            if self._style != "CRLF":
                self._ended("CRLF", Place(offset, number, b"\r\n"), event)
            return 1
        self._bare_cr += 1
        place = Place(offset, number, b"\r")
        self._inside.note("bare-cr", place, event)
        self._ended("CR", place, event)
        return 0

    def _ended(self, style: str, place: Place, event: int) -> None:
        if self._style is None:
            self._style = style
            self._ends = _ENDS.get(style, self._ends)
        elif style != self._style:
            self._inside.note("mixed-endings", place, event)

    def _unmarked(self, line: bytes, at: int) -> tuple[bytes, int]:
        """The first line without its byte-order mark: UTF-8 decode strips one (9.2.6)."""
        if at or not line.startswith(BOM):
            return line, at
        self._inside.note("bom", Place(0, self._number, BOM))
        if self._head:
            self._head, self._head_at = self._head[len(BOM) :], len(BOM)
        return line[len(BOM) :], len(BOM)

    def _pending_from(self) -> int:
        """The offset of the first byte that no blank line has closed."""
        block = self._inside.block
        return self._line_at if block is None else block.start.offset

    def _keep_head(self, data: bytes, base: int) -> None:
        """Remember how the pending bytes begin; give up on a block that is too long."""
        start = self._pending_from()
        if start == self.fed:
            return
        if start != self._head_at:
            self._head, self._head_at = b"", start
        missing = EXCERPT + len(BOM) - len(self._head)
        if missing:
            at = start + len(self._head) - base
            self._head += data[at : at + missing]
        if self.fed - start > self.max_event:
            self._give_up(start)

    def _give_up(self, start: int) -> None:
        block = self._inside.block
        number = self._number if block is None else block.start.line
        # The byte over the bound is the last that this was decided by, whatever came with it.
        excerpt = self._head[: min(EXCERPT, self.max_event + 1)]
        self._inside.note("event-too-long", Place(start, number, excerpt))
        self.dead, self._cr = True, None
        self._inside.block, self._partial = None, bytearray()

    # -- the shortcut ------------------------------------------------------------------------------

    def _between_blocks(self) -> bool:
        """Nothing is pending, and the stream's lines end in a way that the shortcut knows."""
        return (
            self._shortcut
            and self._inside.block is None
            and not self._partial
            and self._style != "CR"
            and not self.dead
        )

    def _skim(self, data: bytes, pos: int, events: list[Event]) -> int:
        """Blocks of one line `data: …` with nothing to note, from `pos`, where a block begins.

        Returns where the first other block begins; `_read` takes that one. One long function,
        because a call for each event would cost what the shortcut saves.
        """
        start = pos + 6
        if data[pos:start] != b"data: ":
            return pos
        mark, gap, ahead, width, reach, never, after = self._ends
        inside, at, number = self._inside, self._line_at, self._number
        base, ordinal, last_id = at - pos, inside.ordinal, inside.last_id
        longest = self.max_event - width
        while True:
            cut = data.find(mark, start)
            tail = data[cut : cut + reach]
            if tail != ahead and tail != gap and tail[:width] != gap:
                break
            try:
                text = data[start:cut].decode()
            except UnicodeDecodeError:
                break
            if not text or never in text or cut - pos > longest:
                break
            if not text.isascii() and ("\u2028" in text or "\u2029" in text or "\x85" in text):
                break
            pos = cut + width
            end = base + pos
            events.append(  # what `Event(…)` comes to, without its call
                _new(
                    Event,
                    (text, "message", last_id, None, ordinal, at, end - after, number, 1, at + 6),
                )
            )
            at = end
            ordinal += 1
            number += 2
            if tail != ahead:
                break
            start = pos + 6
        if at > self._line_at:
            if not inside.begun:
                inside.begun, self._style = True, self._style or "LF"
            if after:
                self._crlf += number - self._number
            inside.ordinal, self._number, self._line_at = ordinal, number, at
        return pos


def parse(body: bytes) -> tuple[list[Event], list[Anomaly]]:
    """A whole stream at once: its events and its anomalies, as `Reader` gives them."""
    reader = Reader()
    events = reader.feed(body)
    reader.close()
    return events, reader.anomalies


def _find(data: bytes, byte: bytes, pos: int) -> int:
    found = data.find(byte, pos)
    return len(data) if found < 0 else found
