"""Where an answer's body ends: the table of RFC 9112 section 6.3."""

from __future__ import annotations

import re
from enum import Enum
from typing import Final

from .message import Field, Head


class Framing(Enum):
    """What decides where the body ends."""

    NONE = "none"
    CHUNKED = "chunked"
    LENGTH = "length"
    CLOSE = "close"


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

# An anomaly's kind, and the field that is at fault.
Fault = tuple[str, Field]
ENDLESS: Final = 1 << 62  # a larger length never ends; the number need not be carried on


def judge(method: str, head: Head) -> tuple[Framing, int | None, list[Fault]]:
    """The framing of the answer to a `method` request, its length if declared, and the faults."""
    body = _body_of(method, head.status)
    coding, coding_faults = _coding_of(head)
    length, value, length_faults = _length_of(head)
    faults = [*coding_faults, *length_faults]
    if body is not _Body.TUNNEL:
        faults += _forbidden_of(head, coding, length)
    framing = _decide(body, coding, length)
    return framing, value if framing is Framing.LENGTH else None, faults


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


def _coding_of(head: Head) -> tuple[_Coding, list[Fault]]:
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


def _length_of(head: Head) -> tuple[_Length, int | None, list[Fault]]:
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
    return _Length.VALID, min(numbers.pop(), ENDLESS), faults


def _forbidden_of(head: Head, coding: _Coding, length: _Length) -> list[Fault]:
    codings = _fields_of(head, b"transfer-encoding")
    lengths = _fields_of(head, b"content-length")
    bodiless = 100 <= head.status < 200 or head.status == 204
    faults: list[Fault] = []
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
