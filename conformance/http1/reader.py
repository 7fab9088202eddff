"""`Reader`: one answer, fed as it comes."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Callable, Mapping
from enum import IntEnum
from operator import sub
from types import MappingProxyType
from typing import ClassVar, Final, NamedTuple

from .chunks import CHUNK_LIKE, CHUNK_SIZE, whole_chunks
from .framing import ENDLESS, Framing, judge
from .message import Anomaly, Field, Head, Log, Section, StatusLine, parse_status_line


class Span(NamedTuple):
    """Body bytes [body, body + length) stand at wire offset `wire`."""

    wire: int
    body: int
    length: int


class _At(IntEnum):
    """Where in the answer the next byte stands. Integers: a tuple is indexed faster than a dict."""

    STATUS = 0
    FIELDS = 1
    SIZE = 2  # a chunk-size line
    CHUNK = 3  # chunk-data
    ENDING = 4  # the CRLF after it
    TRAILER = 5
    LENGTH = 6  # a body of known length
    CLOSE = 7  # a body up to the close
    DONE = 8
    DEAD = 9  # unreadable
    CLOSED = 10  # by the peer


_FIRST_IN_BODY: Final = {
    Framing.NONE: _At.DONE,
    Framing.CHUNKED: _At.SIZE,
    Framing.LENGTH: _At.LENGTH,
    Framing.CLOSE: _At.CLOSE,
}


class Reader:
    """One answer. `method` is the request's; `start` the offset of the first byte to be fed.

    Without `spans` nothing is kept of a body, however many chunks it has: no spans, no offsets.
    `shortcut` is for the test that holds both ways equal.
    """

    def __init__(
        self,
        method: str = "POST",
        *,
        max_head: int = 256 * 1024,
        start: int = 0,
        spans: bool = True,
        shortcut: bool = True,
    ) -> None:
        self._method, self._max = method.upper(), max_head
        self._shortcut = shortcut
        self._keeps_spans = spans
        self._at = _At.STATUS
        self._log = Log()
        self._interim: list[Head] = []
        self.head: Head | None = None
        self.framing: Framing | None = None
        self.trailers: tuple[Field, ...] = ()
        self.complete = False  # framing says that the message is whole
        self.end: int | None = None  # offset after the message; None while it may go on
        self.excess = 0  # bytes fed after the end

        self._data, self._pos, self._base = b"", 0, start
        self._line = bytearray()  # a line's bytes from earlier feeds
        self._line_at = start
        self._room = max_head  # bytes this head, line or trailer section may still take
        self._status: StatusLine | None = None
        self._head_at = start
        self._section = Section(self._log)
        self._left = 0  # bytes of this chunk, or of the body, still to come
        self._body = 0  # body bytes so far
        self._span_body, self._span_wire = array("Q"), array("Q")  # where each span starts
        self._wire_end = -1  # offset after the last body byte: the next one merges if it is there

    @property
    def anomalies(self) -> list[Anomaly]:
        """In the order of discovery, at most 100 of a kind."""
        return self._log.kept

    @property
    def counts(self) -> Mapping[str, int]:
        """How often each kind occurred, those not kept included."""
        return MappingProxyType(self._log.counts)

    @property
    def interim(self) -> tuple[Head, ...]:
        """The 1xx answers before the final one."""
        return tuple(self._interim)

    @property
    def dead(self) -> bool:
        """Unreadable from here on: input is ignored."""
        return self._at is _At.DEAD

    @property
    def is_between(self) -> bool:
        """Of a chunked body: no line is half read, and the last chunk has not begun."""
        return not self._line and self._at in (_At.SIZE, _At.CHUNK, _At.ENDING)

    @property
    def spans(self) -> list[Span]:
        """Where the body's bytes stand on the wire, in order, adjacent ones merged."""
        ends = [*self._span_body[1:], self._body]
        lengths = map(sub, ends, self._span_body)
        return list(map(Span._make, zip(self._span_wire, self._span_body, lengths, strict=False)))

    def wire_offset(self, body: int) -> int | None:
        """The wire offset of a body byte; of the one after the last: where that one ended."""
        if not 0 <= body <= self._body or not self._span_wire:
            return None
        index = bisect_right(self._span_body, body if body < self._body else body - 1) - 1
        return self._span_wire[index] + body - self._span_body[index]

    def feed(self, data: bytes) -> bytes:
        """Take the next bytes from the wire, return the body's bytes among them."""
        out: list[bytes] = []
        self._go_through(data, out)
        return out[0] if len(out) == 1 else b"".join(out)

    def follow(self, data: bytes) -> None:
        """As `feed`, for whoever only asks where the message ends."""
        self._go_through(data, None)

    def _go_through(self, data: bytes, out: list[bytes] | None) -> None:
        self._data, self._pos = data, 0
        size = len(data)
        while self._pos < size:
            if self._at is _At.SIZE and self._shortcut and not self._line:
                self._skim(out)
            piece = self._STEPS[self._at](self)
            if piece and out is not None:
                out.append(piece)
        self._base += size
        self._data = b""

    def close(self) -> None:
        """The peer closed its side. Idempotent; whatever is fed afterwards is ignored."""
        kind, whole = self._AT_CLOSE[self._at]
        if kind is not None and (self._line or self._at is not _At.STATUS):
            offset = self._line_at if self._line else self._base
            self._log.add(kind, offset, bytes(self._line))
        if whole:
            if self._at is _At.TRAILER:
                self.trailers = self._section.fields()
            self.complete, self.end = True, self._base
        if self._at not in (_At.DONE, _At.DEAD):
            self._at = _At.CLOSED
        self._line.clear()

    # Lines

    def _take_line(self, kind: str) -> bytes | None:
        """The next line with its LF, or None: it has not ended yet, or is longer than the room."""
        if not self._line:
            self._line_at = self._base + self._pos
        stop = self._pos + self._room - len(self._line)
        cut = self._data.find(b"\n", self._pos, stop) + 1
        piece = self._data[self._pos : cut or stop]
        self._pos += len(piece)
        if cut and not self._line:
            return piece
        self._line += piece
        if cut:
            line = bytes(self._line)
            self._line.clear()
            return line
        if len(self._line) >= self._room:
            self._die(kind, bytes(self._line))
        return None

    def _without_ending(self, line: bytes) -> bytes:
        """2.2: "a recipient MAY recognize a single LF as a line terminator"; we do, and say so."""
        if line.endswith(b"\r\n"):
            return line[:-2]
        self._log.add("bare-lf", self._line_at, line)
        return line[:-1]

    def _die(self, kind: str, excerpt: bytes) -> None:
        self._log.add(kind, self._line_at, excerpt)
        self._line.clear()
        self._at = _At.DEAD

    # The head

    def _read_status(self) -> None:
        line = self._take_line("head-too-long")
        if line is None:
            return
        self._room -= len(line)
        text = self._without_ending(line)
        if not text:
            self._log.add("bad-status-line", self._line_at, line)
            return
        self._status, strict = parse_status_line(text)
        if self._status is None:
            self._die("bad-status-line", line)
            return
        if not strict:
            self._log.add("bad-status-line", self._line_at, line)
        self._head_at = self._line_at
        self._section = Section(self._log)
        self._at = _At.FIELDS

    def _read_field(self) -> None:
        line = self._take_line("head-too-long")
        if line is None:
            return
        self._room -= len(line)
        text = self._without_ending(line)
        if text:
            self._section.line(text, self._line_at)
        else:
            self._finish_head()

    def _finish_head(self) -> None:
        assert self._status is not None
        end = self._base + self._pos
        head = Head(*self._status, self._section.fields(), self._head_at, end)
        framing, length, faults = judge(self._method, head)
        for kind, field in faults:
            self._log.add(kind, field.offset, field.name + b": " + field.value)
        # RFC 9110 15.2: "A client MUST be able to parse one or more 1xx responses received prior to
        # a final response". After 101 no HTTP follows.
        if 100 <= head.status < 200 and head.status != 101:
            self._interim.append(head)
            self._at = _At.STATUS
            return
        self.head, self.framing = head, framing
        self._left, self._room = length or 0, self._max
        self._at = _FIRST_IN_BODY[framing]
        if self._at is _At.DONE or length == 0:
            self._finish(end)

    # The body

    def _take(self, most: int) -> bytes:
        """Body bytes: the rest of the data, at most `most`, entered into the spans."""
        piece = self._data[self._pos : self._pos + most]
        wire = self._base + self._pos
        if wire != self._wire_end and self._keeps_spans:
            self._span_wire.append(wire)
            self._span_body.append(self._body)
        self._wire_end = wire + len(piece)
        self._body += len(piece)
        self._pos += len(piece)
        return piece

    def _skim(self, out: list[bytes] | None) -> None:
        """Take the plain chunks that stand here; what comes then goes the obvious way."""
        data, base, body = self._data, self._base, self._body
        for start, end in whole_chunks(data, self._pos, self._room):
            if out is not None:
                out.append(data[start:end])
            if self._keeps_spans:
                self._span_wire.append(base + start)
                self._span_body.append(body)
            body += end - start
            self._pos, self._wire_end = end + 2, base + end
        self._body = body

    def _read_size(self) -> None:
        # 7.1: chunk = chunk-size [ chunk-ext ] CRLF chunk-data CRLF, chunk-size = 1*HEXDIG
        line = self._take_line("bad-chunk-size")
        if line is None:
            return
        text = self._without_ending(line)
        strict = CHUNK_SIZE.fullmatch(text)
        match = strict or CHUNK_LIKE.match(text)
        if match is None:
            self._die("bad-chunk-size", line)
            return
        if strict is None:
            self._log.add("bad-chunk-size", self._line_at, line)
        # "recipients MUST anticipate potentially large hexadecimal numerals"
        self._left = min(int(match[1], 16), ENDLESS)
        self._at = _At.CHUNK if self._left else _At.TRAILER
        if not self._left:
            self._section, self._room = Section(self._log, "bad-trailer"), self._max

    def _read_chunk(self) -> bytes:
        piece = self._take(self._left)
        self._left -= len(piece)
        if not self._left:
            self._at = _At.ENDING
        return piece

    def _read_ending(self) -> None:
        if not self._line:
            self._line_at = self._base + self._pos
        piece = self._data[self._pos : self._pos + (1 if self._line else 2)]
        seen = bytes(self._line) + piece
        if seen == b"\r":
            self._line += piece
            self._pos += 1
            return
        self._line.clear()
        self._at = _At.SIZE
        if seen == b"\r\n":
            self._pos += len(piece)
        elif seen[:1] == b"\n":
            self._log.add("bad-chunk-ending", self._line_at, b"\n")
            self._pos += 1
        else:
            self._die("bad-chunk-ending", seen[: 2 if seen[:1] == b"\r" else 1])

    def _read_trailer(self) -> None:
        line = self._take_line("bad-trailer")
        if line is None:
            return
        self._room -= len(line)
        text = self._without_ending(line)
        if text:
            self._section.line(text, self._line_at)
            return
        self.trailers = self._section.fields()
        for field in self.trailers:
            # RFC 9110 6.5.1: "Many fields cannot be processed outside the header section because
            # their evaluation is necessary prior to receiving the content, such as those that
            # describe message framing"
            if field.name.lower() in (b"content-length", b"transfer-encoding"):
                self._log.add("bad-trailer", field.offset, field.name + b": " + field.value)
        self._finish(self._base + self._pos)

    def _read_length(self) -> bytes:
        piece = self._take(self._left)
        self._left -= len(piece)
        if not self._left:
            self._finish(self._base + self._pos)
        return piece

    def _read_close(self) -> bytes:
        return self._take(len(self._data))

    def _finish(self, end: int) -> None:
        self.complete, self.end = True, end
        self._at = _At.DONE

    def _read_excess(self) -> None:
        self.excess += len(self._data) - self._pos
        self._pos = len(self._data)

    def _ignore(self) -> None:
        self._pos = len(self._data)

    # By `_At`. Each step takes at least one byte, or changes the state to one that does.
    _STEPS: ClassVar[tuple[Callable[[Reader], bytes | None], ...]] = (
        _read_status,
        _read_field,
        _read_size,
        _read_chunk,
        _read_ending,
        _read_trailer,
        _read_length,
        _read_close,
        _read_excess,
        _ignore,
        _ignore,
    )
    # What a close means there: the anomaly, and whether the message is whole. 8: a chunked body "is
    # incomplete if the zero-sized chunk that terminates the encoding has not been received".
    _AT_CLOSE: ClassVar[Mapping[_At, tuple[str | None, bool]]] = {
        _At.STATUS: ("head-incomplete", False),
        _At.FIELDS: ("head-incomplete", False),
        _At.SIZE: ("body-incomplete", False),
        _At.CHUNK: ("body-incomplete", False),
        _At.ENDING: ("body-incomplete", False),
        _At.TRAILER: ("bad-trailer", True),
        _At.LENGTH: ("body-incomplete", False),
        _At.CLOSE: (None, True),
        _At.DONE: (None, False),
        _At.DEAD: (None, False),
        _At.CLOSED: (None, False),
    }
