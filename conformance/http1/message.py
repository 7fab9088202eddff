"""What HTTP/1.1 messages are made of: start lines, field sections, and what was wrong with them."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from typing import Final

EXCERPT: Final = 64  # bytes of an anomaly's excerpt
KEPT: Final = 100  # anomalies kept a kind; all are counted
TOKEN: Final = rb"[-!#$%&'*+.^_`|~0-9A-Za-z]++"

_STATUS_LINE: Final = re.compile(rb"HTTP/(\d\.\d) (\d{3}) ([\t \x21-\x7e\x80-\xff]*)")
# What we can still make sense of: another case, more white space, no space after the code.
_STATUS_LIKE: Final = re.compile(
    rb"(?i:HTTP)/(\d{1,9}(?:\.\d{1,9})?)[ \t]+(\d{3})(?:[ \t](.*))?", re.DOTALL
)
_REQUEST_LINE: Final = re.compile(rb"(" + TOKEN + rb") ([\x21-\x7e\x80-\xff]+) HTTP/(\d\.\d)")
_NAME: Final = re.compile(TOKEN)
# RFC 9110 5.5: "Field values containing CR, LF, or NUL characters are invalid and dangerous […]
# Field values containing other CTL characters are also invalid"
_CONTROL: Final = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")


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


@dataclass(frozen=True, slots=True)
class Anomaly:
    """One broken sentence. `offset` is the first byte of the line or place, `excerpt` its start."""

    kind: str
    offset: int
    excerpt: bytes


def _values(fields: tuple[Field, ...], name: bytes) -> tuple[bytes, ...]:
    wanted = name.lower()
    return tuple(field.value for field in fields if field.name.lower() == wanted)


class Log:
    """Anomalies: all counted, the first `KEPT` of each kind kept."""

    def __init__(self) -> None:
        self.kept: list[Anomaly] = []
        self.counts: Counter[str] = Counter()

    def add(self, kind: str, offset: int, excerpt: bytes) -> None:
        self.counts[kind] += 1
        if self.counts[kind] <= KEPT:
            self.kept.append(Anomaly(kind, offset, bytes(excerpt[:EXCERPT])))


class Section:
    """Field lines up to the empty one: a header section, or a trailer section."""

    def __init__(self, log: Log, bad: str = "bad-field") -> None:
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


StatusLine = tuple[bytes, int, bytes]  # version, status, reason


def parse_status_line(text: bytes) -> tuple[StatusLine | None, bool]:
    """What a status line (without its ending) says, if anything, and whether it is strictly one."""
    # 4: status-line = HTTP-version SP status-code SP [ reason-phrase ]; "A server MUST send the
    # space that separates the status-code from the reason-phrase even when the reason-phrase is
    # absent"
    strict = _STATUS_LINE.fullmatch(text)
    match = strict or _STATUS_LIKE.fullmatch(text)
    if match is None:
        return None, False
    version, status, reason = match[1], int(match[2]), match[3] or b""
    return (version, status, reason), bool(strict) and version[:2] == b"1." and status >= 100


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
    section, offset = Section(Log()), len(first) + 1
    for line in lines:
        section.line(line.removesuffix(b"\r"), offset)
        offset += len(line) + 1
    return RequestHead(match[1], match[2], match[3], section.fields(), end.end())
