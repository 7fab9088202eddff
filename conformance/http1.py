"""HTTP/1.1 answers read incrementally, with the offset of everything; strict in what it reports.

`Reader` takes the bytes of one answer as they come, in any pieces, and gives back the body's bytes.
It never raises and never repairs silently: whatever RFC 9112 forbids becomes an `Anomaly`, and
reading goes on wherever the message still has an evident end. Offsets count the bytes fed, plus
`start`. Memory is bounded by `max_head` and, for spans, by 16 bytes a chunk.

The kinds of anomaly, each with the section that forbids it (RFC 9112 unless another is named):

    bad-status-line      4        not `HTTP/1.x SP 3DIGIT SP [reason]`; an empty line before it
    bad-field            5, 5.1   no colon, no token before it, white space around the name, a
                                  control character in the value (RFC 9110 5.5)
    obs-fold             5.2      a value continued on a line that starts with white space
    bare-lf              2.2      a head, chunk-size or trailer line ends in LF alone
    head-too-long        -        more than `max_head` bytes of heads (ours; the reader is dead)
    head-incomplete      8        closed inside the head
    length-and-chunked   6.2      Content-Length beside Transfer-Encoding
    framing-forbidden    6.1      Transfer-Encoding in an HTTP/1.0 answer, or in a 1xx or 204;
                                  Content-Length in a 1xx or 204 (RFC 9110 8.6)
    repeated-length      6.3      Content-Length given more than once, every time the same
    conflicting-length   6.3      Content-Length given more than once with different values
    bad-length           6.3      Content-Length that is no decimal number
    unknown-coding       6.1, 7   a transfer coding that nobody asked for, chunked with parameters,
                                  chunked twice or not last
    bad-chunk-size       7.1      not `1*HEXDIG [ chunk-ext ]`, or longer than `max_head`
    bad-chunk-ending     7.1      chunk-data is not followed by CRLF
    bad-trailer          7.1.2    what bad-field is, in the trailer section; a framing field there
                                  (RFC 9110 6.5.1); longer than `max_head`; cut off after chunk 0
    body-incomplete      8        closed before the length or the zero chunk was reached
"""

from __future__ import annotations

import re
from array import array
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import ClassVar, Final

EXCERPT: Final = 64  # bytes of an anomaly's excerpt
KEPT: Final = 100  # anomalies kept a kind; all are counted


@dataclass(frozen=True, slots=True)
class Field:
    """One field line: `name` as sent, `value` without the white space around it, both raw."""

    name: bytes
    value: bytes
    offset: int


@dataclass(frozen=True, slots=True)
class Head:
    """A status line and its fields. `version` is what follows `HTTP/`, e.g. b"1.1"."""

    version: bytes
    status: int
    reason: bytes
    fields: tuple[Field, ...]
    offset: int  # first byte of the status line
    end: int  # after the empty line

    def all(self, name: bytes) -> tuple[bytes, ...]:
        """Every value of a field in order; names compare without case."""
        return _values(self.fields, name)

    def get(self, name: bytes) -> bytes | None:
        """The first value of a field."""
        return next(iter(self.all(name)), None)


@dataclass(frozen=True, slots=True)
class RequestHead:
    """A request line and its fields; `end` is the offset after the empty line."""

    method: bytes
    target: bytes
    version: bytes
    fields: tuple[Field, ...]
    end: int

    def all(self, name: bytes) -> tuple[bytes, ...]:
        """Every value of a field in order; names compare without case."""
        return _values(self.fields, name)

    def get(self, name: bytes) -> bytes | None:
        """The first value of a field."""
        return next(iter(self.all(name)), None)


class Framing(Enum):
    """What decides where the body ends."""

    NONE = "none"
    CHUNKED = "chunked"
    LENGTH = "length"
    CLOSE = "close"


@dataclass(frozen=True, slots=True)
class Span:
    """Body bytes [body, body + length) stand at wire offset `wire`."""

    wire: int
    body: int
    length: int


@dataclass(frozen=True, slots=True)
class Anomaly:
    """One broken sentence. `offset` is the first byte of the line or place, `excerpt` its start."""

    kind: str
    offset: int
    excerpt: bytes


class _Coding(Enum):
    ABSENT = "absent"
    CHUNKED_LAST = "chunked is the final coding"
    OTHER_LAST = "another coding is the final one"


class _Length(Enum):
    ABSENT = "absent"
    VALID = "valid"
    INVALID = "invalid"


class _Body(Enum):
    POSSIBLE = "possible"
    IMPOSSIBLE = "HEAD, 1xx, 204, 304"
    TUNNEL = "2xx to CONNECT"


_FramingRow = tuple[int, "_Body | None", "_Coding | None", "_Length | None", Framing]

# RFC 9112 section 6.3, "in order of precedence": the first row that fits decides; None fits all.
# Numbers are the section's own. (Its item 3, "the Transfer-Encoding overrides the Content-Length",
# is the order of rows 4 and 6; item 7 is about requests.)
FRAMING_TABLE: Final[tuple[_FramingRow, ...]] = (
    # 1: "always terminated by the first empty line after the header fields, regardless of the
    #    header fields present in the message"
    (1, _Body.IMPOSSIBLE, None, None, Framing.NONE),
    # 2: "the connection will become a tunnel immediately after the empty line"
    (2, _Body.TUNNEL, None, None, Framing.NONE),
    # 4: "determined by reading and decoding the chunked data until the transfer coding indicates
    #    the data is complete"
    (4, _Body.POSSIBLE, _Coding.CHUNKED_LAST, None, Framing.CHUNKED),
    # 4: "the chunked transfer coding is not the final encoding […] reading the connection until it
    #    is closed by the server"
    (4, _Body.POSSIBLE, _Coding.OTHER_LAST, None, Framing.CLOSE),
    # 5: "the message framing is invalid and the recipient MUST treat it as an unrecoverable error".
    #    We are here to show what came, so we read to the close; the anomaly says the rest.
    (5, _Body.POSSIBLE, _Coding.ABSENT, _Length.INVALID, Framing.CLOSE),
    # 6: "its decimal value defines the expected message body length in octets"
    (6, _Body.POSSIBLE, _Coding.ABSENT, _Length.VALID, Framing.LENGTH),
    # 8: "the number of octets received prior to the server closing the connection"
    (8, _Body.POSSIBLE, _Coding.ABSENT, _Length.ABSENT, Framing.CLOSE),
)

_TOKEN: Final = rb"[-!#$%&'*+.^_`|~0-9A-Za-z]++"
_STATUS_LINE: Final = re.compile(rb"HTTP/(\d\.\d) (\d{3}) ([\t \x21-\x7e\x80-\xff]*)")
# What we can still make sense of: another case, more white space, no space after the code.
_STATUS_LIKE: Final = re.compile(
    rb"(?i:HTTP)/(\d{1,9}(?:\.\d{1,9})?)[ \t]+(\d{3})(?:[ \t](.*))?", re.DOTALL
)
_REQUEST_LINE: Final = re.compile(rb"(" + _TOKEN + rb") ([\x21-\x7e\x80-\xff]+) HTTP/(\d\.\d)")
_NAME: Final = re.compile(_TOKEN)
# RFC 9110 5.5: "Field values containing CR, LF, or NUL characters are invalid and dangerous […]
# Field values containing other CTL characters are also invalid"
_CONTROL: Final = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")
_QUOTED: Final = rb'"(?:[\t \x21\x23-\x5b\x5d-\x7e\x80-\xff]|\\[\t \x21-\x7e\x80-\xff])*+"'
# 7.1.1: chunk-ext = *( BWS ";" BWS chunk-ext-name [ BWS "=" BWS chunk-ext-val ] )
_CHUNK_EXT: Final = (
    rb"(?:[ \t]*+;[ \t]*+"
    + _TOKEN
    + rb"(?:[ \t]*+=[ \t]*+(?:"
    + _TOKEN
    + rb"|"
    + _QUOTED
    + rb"))?)"
)
_CHUNK_SIZE: Final = re.compile(rb"([0-9A-Fa-f]++)" + _CHUNK_EXT + rb"*+")
# Padded sizes and senseless extensions still tell where the chunk ends.
_CHUNK_LIKE: Final = re.compile(rb"[ \t]*+([0-9A-Fa-f]++)(?=[ \t;]|$)")


def _values(fields: tuple[Field, ...], name: bytes) -> tuple[bytes, ...]:
    wanted = name.lower()
    return tuple(field.value for field in fields if field.name.lower() == wanted)


class _Log:
    """Anomalies: all counted, the first `KEPT` of each kind kept."""

    def __init__(self) -> None:
        self.kept: list[Anomaly] = []
        self.counts: Counter[str] = Counter()

    def add(self, kind: str, offset: int, excerpt: bytes) -> None:
        self.counts[kind] += 1
        if self.counts[kind] <= KEPT:
            self.kept.append(Anomaly(kind, offset, bytes(excerpt[:EXCERPT])))


class _Section:
    """Field lines up to the empty one: a header section, or a trailer section."""

    def __init__(self, log: _Log, bad: str = "bad-field") -> None:
        self._log, self._bad = log, bad
        self._fields: list[Field] = []
        self._pending = bytearray()  # the field line that a fold may still continue
        self._offset: int | None = None

    def line(self, line: bytes, offset: int) -> None:
        """One line without its ending; not the empty one."""
        if line[:1] not in (b" ", b"\t"):
            self._flush()
            self._pending += line
            self._offset = offset
        elif self._offset is None:
            # 2.2: "whitespace between the start-line and the first header field MUST either reject
            # the message as invalid or consume each whitespace-preceded line without further
            # processing of it"
            self._log.add(self._bad, offset, line)
        else:
            # 5.2: "A sender MUST NOT generate a message that includes line folding"; a user agent
            # "MUST replace each received obs-fold with one or more SP octets"
            self._log.add("obs-fold", offset, line)
            self._pending += b" " + line.lstrip(b" \t")

    def fields(self) -> tuple[Field, ...]:
        self._flush()
        return tuple(self._fields)

    def _flush(self) -> None:
        if self._offset is None:
            return
        line, offset = bytes(self._pending), self._offset
        self._pending.clear()
        self._offset = None
        name, colon, value = line.partition(b":")
        # 5: field-line = field-name ":" OWS field-value OWS. 5.1: "No whitespace is allowed between
        # the field name and colon."
        if not (colon and _NAME.fullmatch(name)) or _CONTROL.search(value):
            self._log.add(self._bad, offset, line)
        if colon:
            self._fields.append(Field(name.strip(b" \t"), value.strip(b" \t"), offset))


class _At(Enum):
    """Where in the answer the next byte stands."""

    STATUS = "status line"
    FIELDS = "header section"
    SIZE = "chunk-size line"
    CHUNK = "chunk-data"
    ENDING = "after chunk-data"
    TRAILER = "trailer section"
    LENGTH = "body of known length"
    CLOSE = "body up to the close"
    DONE = "after the end"
    DEAD = "unreadable"
    CLOSED = "closed by the peer"


_FIRST_IN_BODY: Final = {
    Framing.NONE: _At.DONE,
    Framing.CHUNKED: _At.SIZE,
    Framing.LENGTH: _At.LENGTH,
    Framing.CLOSE: _At.CLOSE,
}


class Reader:
    """One answer. `method` is the request's; `start` the offset of the first byte to be fed."""

    def __init__(self, method: str = "POST", *, max_head: int = 256 * 1024, start: int = 0) -> None:
        self._method, self._max, self._start = method.upper(), max_head, start
        self._at = _At.STATUS
        self._log = _Log()
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
        self._status: tuple[bytes, int, bytes] | None = None
        self._head_at = start
        self._section = _Section(self._log)
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
    def spans(self) -> list[Span]:
        """Where the body's bytes stand on the wire, in order, adjacent ones merged."""
        ends = [*self._span_body[1:], self._body]
        starts = zip(self._span_wire, self._span_body, ends, strict=False)
        return [Span(wire, body, end - body) for wire, body, end in starts]

    def wire_offset(self, body: int) -> int | None:
        """The wire offset of a body byte; of the one after the last: where that one ended."""
        if not 0 <= body <= self._body or not self._body:
            return None
        index = bisect_right(self._span_body, body if body < self._body else body - 1) - 1
        return self._span_wire[index] + body - self._span_body[index]

    def feed(self, data: bytes) -> bytes:
        """Take the next bytes from the wire, return the body's bytes among them."""
        self._data, self._pos = data, 0
        out: list[bytes] = []
        while self._pos < len(data):
            piece = self._STEPS[self._at](self)
            if piece:
                out.append(piece)
        self._base += len(data)
        self._data = b""
        return out[0] if len(out) == 1 else b"".join(out)

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
        # 4: status-line = HTTP-version SP status-code SP [ reason-phrase ]; "A server MUST send the
        # space that separates the status-code from the reason-phrase even when the reason-phrase is
        # absent"
        strict = _STATUS_LINE.fullmatch(text)
        match = strict or _STATUS_LIKE.fullmatch(text)
        if match is None:
            self._die("bad-status-line", line)
            return
        version, status, reason = match[1], int(match[2]), match[3] or b""
        if strict is None or not version.startswith(b"1.") or status < 100:
            self._log.add("bad-status-line", self._line_at, line)
        self._status, self._head_at = (version, status, reason), self._line_at
        self._section = _Section(self._log)
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
        length = self._judge_framing(head)
        # RFC 9110 15.2: "A client MUST be able to parse one or more 1xx responses received prior to
        # a final response". After 101 no HTTP follows.
        if 100 <= head.status < 200 and head.status != 101:
            self._interim.append(head)
            self._at = _At.STATUS
            return
        self.head, self._left = head, length or 0
        self._at = _FIRST_IN_BODY[self.framing or Framing.NONE]
        self._room = self._max
        if self._at is _At.DONE or (self._at is _At.LENGTH and not length):
            self._finish(end)

    def _judge_framing(self, head: Head) -> int | None:
        """Set `framing` for a final head; the declared length, where one is valid."""
        body = _body_of(self._method, head.status)
        coding, coding_faults = _coding_of(head)
        length, value, length_faults = _length_of(head)
        faults = [*coding_faults, *length_faults]
        if body is not _Body.TUNNEL:
            faults += _forbidden_of(head, coding, length)
        for kind, field in faults:
            self._log.add(kind, field.offset, field.name + b": " + field.value)
        if not 100 <= head.status < 200 or head.status == 101:
            self.framing = _decide(body, coding, length)
        return value

    # The body

    def _take(self, most: int) -> bytes:
        """Body bytes: the rest of the data, at most `most`, entered into the spans."""
        piece = self._data[self._pos : self._pos + most]
        wire = self._base + self._pos
        if wire != self._wire_end:
            self._span_wire.append(wire)
            self._span_body.append(self._body)
        self._wire_end = wire + len(piece)
        self._body += len(piece)
        self._pos += len(piece)
        return piece

    def _read_size(self) -> None:
        # 7.1: chunk = chunk-size [ chunk-ext ] CRLF chunk-data CRLF, chunk-size = 1*HEXDIG
        line = self._take_line("bad-chunk-size")
        if line is None:
            return
        text = self._without_ending(line)
        strict = _CHUNK_SIZE.fullmatch(text)
        match = strict or _CHUNK_LIKE.match(text)
        if match is None:
            self._die("bad-chunk-size", line)
            return
        if strict is None:
            self._log.add("bad-chunk-size", self._line_at, line)
        # "recipients MUST anticipate potentially large hexadecimal numerals": ours have no limit.
        self._left = int(match[1], 16)
        self._at = _At.CHUNK if self._left else _At.TRAILER
        if not self._left:
            self._section, self._room = _Section(self._log, "bad-trailer"), self._max

    def _read_chunk(self) -> bytes:
        piece = self._take(self._left)
        self._left -= len(piece)
        if not self._left:
            self._at = _At.ENDING
        return piece

    def _read_ending(self) -> None:
        if not self._line:
            self._line_at = self._base + self._pos
        self._line.append(self._data[self._pos])
        self._pos += 1
        if self._line == b"\r":
            return
        if bytes(self._line) not in (b"\r\n", b"\n"):
            self._die("bad-chunk-ending", bytes(self._line))
            return
        if self._line == b"\n":
            self._log.add("bad-chunk-ending", self._line_at, b"\n")
        self._line.clear()
        self._at = _At.SIZE

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

    # Each step takes at least one byte, or changes the state to one that does.
    _STEPS: ClassVar[Mapping[_At, Callable[[Reader], bytes | None]]] = {
        _At.STATUS: _read_status,
        _At.FIELDS: _read_field,
        _At.SIZE: _read_size,
        _At.CHUNK: _read_chunk,
        _At.ENDING: _read_ending,
        _At.TRAILER: _read_trailer,
        _At.LENGTH: _read_length,
        _At.CLOSE: _read_close,
        _At.DONE: _read_excess,
        _At.DEAD: _ignore,
        _At.CLOSED: _ignore,
    }
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


# Framing

_Fault = tuple[str, Field]


def _body_of(method: str, status: int) -> _Body:
    if method == "HEAD" or 100 <= status < 200 or status in (204, 304):
        return _Body.IMPOSSIBLE
    return _Body.TUNNEL if method == "CONNECT" and 200 <= status < 300 else _Body.POSSIBLE


def _decide(body: _Body, coding: _Coding, length: _Length) -> Framing:
    """The first row of `FRAMING_TABLE` that fits. Every combination has one (a test says so)."""
    for _, wanted_body, wanted_coding, wanted_length, framing in FRAMING_TABLE:
        if (
            wanted_body in (None, body)
            and wanted_coding in (None, coding)
            and wanted_length in (None, length)
        ):
            return framing
    raise AssertionError(f"no row for {body}, {coding}, {length}")


def _fields_of(head: Head, name: bytes) -> list[Field]:
    return [field for field in head.fields if field.name.lower() == name]


def _coding_of(head: Head) -> tuple[_Coding, list[_Fault]]:
    fields = _fields_of(head, b"transfer-encoding")
    if not fields:
        return _Coding.ABSENT, []
    # RFC 9110 5.3: several field lines are one list; 5.6.1.2: empty elements are ignored.
    parts = b",".join(field.value for field in fields).split(b",")
    names = [part.strip(b" \t").lower() for part in parts if part.strip(b" \t")]
    last = names[-1].partition(b";")[0].rstrip(b" \t") if names else b""
    # 7.4: "the only acceptable transfer coding is chunked" where the request had no TE; 7.1: "does
    # not define any parameters"; 6.1: "MUST NOT apply the chunked transfer coding more than once".
    faults = [] if names == [b"chunked"] else [("unknown-coding", fields[0])]
    return (_Coding.CHUNKED_LAST if last == b"chunked" else _Coding.OTHER_LAST), faults


def _length_of(head: Head) -> tuple[_Length, int | None, list[_Fault]]:
    fields = _fields_of(head, b"content-length")
    if not fields:
        return _Length.ABSENT, None, []
    # 6.3: invalid "unless the field value can be successfully parsed as a comma-separated list
    # […], all values in the list are valid, and all values in the list are the same"
    parts = b",".join(field.value for field in fields).split(b",")
    values = [part.strip(b" \t") for part in parts]
    if not all(re.fullmatch(rb"[0-9]{1,4000}", value) for value in values):
        return _Length.INVALID, None, [("bad-length", fields[0])]
    numbers = {int(value) for value in values}
    if len(numbers) > 1:
        return _Length.INVALID, None, [("conflicting-length", fields[-1])]
    faults = [("repeated-length", fields[-1])] if len(values) > 1 else []
    return _Length.VALID, numbers.pop(), faults


def _forbidden_of(head: Head, coding: _Coding, length: _Length) -> list[_Fault]:
    codings = _fields_of(head, b"transfer-encoding")
    lengths = _fields_of(head, b"content-length")
    bodiless = 100 <= head.status < 200 or head.status == 204
    faults: list[_Fault] = []
    if coding is not _Coding.ABSENT and length is not _Length.ABSENT:
        # 6.2: "A sender MUST NOT send a Content-Length header field in any message that contains a
        # Transfer-Encoding header field."
        faults.append(("length-and-chunked", lengths[0]))
    if coding is not _Coding.ABSENT and (bodiless or head.version < b"1.1"):
        # 6.1: "MUST NOT send a Transfer-Encoding header field in any response with a status code of
        # 1xx (Informational) or 204 (No Content)"; an HTTP/1.0 message with one has faulty framing.
        faults.append(("framing-forbidden", codings[0]))
    if length is not _Length.ABSENT and bodiless:
        # RFC 9110 8.6: the same for Content-Length.
        faults.append(("framing-forbidden", lengths[0]))
    return faults


# Requests


def parse_request_head(data: bytes) -> RequestHead | None:
    """The head at the start of a recorded request; None where it is cut off or no HTTP/1 request.

    Field lines are read as tolerantly as an answer's.
    """
    end = re.search(rb"\n\r?\n", data)
    if end is None:
        return None
    first, *lines = data[: end.start() + 1].split(b"\n")[:-1]
    match = _REQUEST_LINE.fullmatch(first.removesuffix(b"\r"))
    if match is None:
        return None
    section, offset = _Section(_Log()), len(first) + 1
    for line in lines:
        section.line(line.removesuffix(b"\r"), offset)
        offset += len(line) + 1
    return RequestHead(match[1], match[2], match[3], section.fields(), end.end())
