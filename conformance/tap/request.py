"""Where requests begin and end on a connection, and their Host field rewritten. Pure.

Only an unfinished line of a head is held back, since it may be the Host field; bodies pass as they
come. What is no HTTP/1 passes unread ("opaque") to the end of the connection: it is the server's
to refuse.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum

from conformance import http1

MOST_HEAD = 256 * 1024
MOST_LINE = 64 * 1024
_REQUEST_LINE = re.compile(rb"([-!#$%&'*+.^_`|~0-9A-Za-z]+) ([\x21-\x7e\x80-\xff]+) HTTP/1\.[0-9]")
# What may still become a request line.
_BEGUN = re.compile(
    rb"[-!#$%&'*+.^_`|~0-9A-Za-z]{1,40}(?: [\x21-\x7e\x80-\xff]*(?: [HTP/.0-9]*)?)?\r?"
)
# A whole head as clients send it; whatever else is one is read line by line.
_USUAL = re.compile(
    rb"([-!#$%&'*+.^_`|~0-9A-Za-z]+) ([\x21-\x7e\x80-\xff]+) HTTP/1\.[0-9]\r\n"
    rb"(?:[-!#$%&'*+.^_`|~0-9A-Za-z]+:[\t \x21-\x7e\x80-\xff]*\r\n)*\r\n"
)
_USUAL_HOST = re.compile(rb"(?im)^(host:[ \t]*)[^\r\n]*")
_USUAL_FRAMING = re.compile(rb"(?im)^(content-length|transfer-encoding):[ \t]*([^\r\n]*)")
_USUAL_LENGTH = re.compile(rb"[0-9]{1,15}")
_HOST = re.compile(rb"(?i)(host[ \t]*:[ \t]*)[^\r\n]*(\r?\n)")
_FRAMING = (b"content-length", b"transfer-encoding")


@dataclass(frozen=True, slots=True)
class Asked:
    """A request line; the method is empty where there was none to be read."""

    method: bytes = b""
    target: bytes = b""


@dataclass(frozen=True, slots=True)
class Piece:
    """Bytes to pass on, all of one request: does it begin here, does it end here?"""

    data: bytes
    begins: Asked | None = None
    ends: bool = False


class _At(Enum):
    LINE = "before or in the request line"
    FIELDS = "in the fields"
    BODY = "in the body"
    OPAQUE = "no HTTP/1 from here on"


class Reader:
    """The requests of one connection. `authority` is what their Host field becomes."""

    def __init__(self, authority: bytes) -> None:
        self._authority = authority
        self._at = _At.LINE
        self._held = b""  # an unfinished line
        self._head = bytearray()  # of the request that is being read, as passed on
        self._asked: Asked | None = None
        self._body: http1.Reader | None = None
        self._left = 0  # bytes of the body, where a length alone frames it

    def feed(self, data: bytes) -> list[Piece]:
        """What to pass on now. Joined, and with `close`, it is what was fed but for Host."""
        data = self._held + data
        self._held = b""
        pieces: list[Piece] = []
        while data:
            if self._at is _At.OPAQUE:
                pieces.append(Piece(data, self._opened()))
                return pieces
            step = self._of_body if self._at is _At.BODY else self._of_head
            piece, data = step(data)
            if piece is not None:
                pieces.append(piece)
        return pieces

    def close(self) -> list[Piece]:
        """What was held back when the client closed its side."""
        held, self._held = self._held, b""
        return [Piece(held, self._opened())] if held else []

    def _opened(self) -> Asked | None:
        """The beginning of an exchange that has no readable request line; only once."""
        if self._asked is not None:
            return None
        self._asked = Asked()
        return self._asked

    def _of_head(self, data: bytes) -> tuple[Piece | None, bytes]:
        usual = self._of_usual_head(data) if self._at is _At.LINE else None
        return usual or self._of_lines(data)

    def _of_usual_head(self, data: bytes) -> tuple[Piece, bytes] | None:
        """A head that is there as a whole and holds no surprise, fast: the answer waits for it."""
        match = _USUAL.match(data)
        if match is None or match.end() > MOST_LINE or match[1] == b"CONNECT":
            return None
        head = match[0]
        framing = _USUAL_FRAMING.findall(head)
        lengths = [value for name, value in framing if len(name) == len("content-length")]
        if len(framing) != len(lengths) or len(lengths) > 1:
            return None
        if lengths and _USUAL_LENGTH.fullmatch(lengths[0]) is None:
            return None
        self._asked = asked = Asked(match[1], match[2])
        self._left = int(lengths[0]) if lengths else 0
        if self._left:
            self._at, self._body = _At.BODY, None
        else:
            self._over()
        passed = _USUAL_HOST.sub(lambda host: host[1] + self._authority, head)
        return Piece(passed, asked, not self._left), data[len(head) :]

    def _of_lines(self, data: bytes) -> tuple[Piece | None, bytes]:
        """All whole lines of this head in one piece."""
        out, begins, ends, at = bytearray(), None, False, 0
        while not ends and (end := data.find(b"\n", at) + 1):
            line = data[at:end]
            if self._at is _At.LINE and line.strip(b"\r\n"):
                match = _REQUEST_LINE.fullmatch(line.rstrip(b"\r\n"))
                if match is None:
                    break
                begins = self._asked = Asked(match[1], match[2])
                self._at = _At.FIELDS
                self._head += line
            elif self._at is _At.FIELDS:
                line, ends = self._field(line)
            out += line
            at = end
            if len(self._head) > MOST_HEAD:
                break
        rest = data[at:]
        if ends:
            done = self._enter_body()
            return Piece(bytes(out), begins, done), rest
        if self._gives_up(rest):
            self._at = _At.OPAQUE
            self._head.clear()
            return Piece(bytes(out) + rest, begins or self._opened()), b""
        self._held = rest
        return (Piece(bytes(out), begins) if out else None), b""

    def _gives_up(self, rest: bytes) -> bool:
        """Is this no request, or larger than we read? `rest` is the line that is not understood."""
        if b"\n" in rest or len(rest) > MOST_LINE or len(self._head) > MOST_HEAD:
            return True
        return self._at is _At.LINE and bool(rest) and _BEGUN.fullmatch(rest) is None

    def _field(self, line: bytes) -> tuple[bytes, bool]:
        """The line as it is passed on; was it the empty one?"""
        if (host := _HOST.fullmatch(line)) is not None:
            line = host[1] + self._authority + host[2]
        self._head += line
        return line, not line.strip(b"\r\n")

    def _enter_body(self) -> bool:
        """Set the body's framing (RFC 9112 section 6.3, item 7); is there none?

        A request's body is framed as an answer's, but for an answer that the close ends; so the
        reader of answers reads it, behind a head of our making.
        """
        head = http1.parse_request_head(bytes(self._head))
        self._head.clear()
        fields = [] if head is None else [f for f in head.fields if f.name.lower() in _FRAMING]
        if head is not None and head.method == b"CONNECT":
            self._at = _At.OPAQUE
            return False
        if not fields:
            return self._over()
        reader = http1.Reader(spans=False)
        lines = b"".join(b"%b: %b\r\n" % (field.name, field.value) for field in fields)
        reader.feed(b"HTTP/1.1 200 OK\r\n" + lines + b"\r\n")
        if reader.complete:
            return self._over()
        self._body, self._at = reader, _At.BODY
        return False

    def _of_body(self, data: bytes) -> tuple[Piece | None, bytes]:
        if self._body is None:
            now, rest = data[: self._left], data[self._left :]
            self._left -= len(now)
            return Piece(now, None, not self._left and self._over()), rest
        self._body.feed(data)
        if self._body.dead:
            self._at = _At.OPAQUE
            return Piece(data), b""
        size = len(data) - self._body.excess
        ends = self._body.complete and self._over()
        return Piece(data[:size], None, ends), data[size:]

    def _over(self) -> bool:
        self._at, self._asked, self._body = _At.LINE, None, None
        return True
