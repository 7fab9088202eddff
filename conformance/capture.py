"""Capture: one exchange on the wire as a frozen record of facts; no judgement, no repair.

Times are seconds on the clock that `Capture.clock` names, counted from an origin of the recorder's
own; `None` means that nobody recorded it. Offsets are bytes. The records here are what crosses the
door between recording (I/O) and judging or measuring (pure).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple, TypeAlias

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"


class Layer(Enum):
    """What `Capture.received` holds."""

    WIRE = "wire"  # the bytes as received: head(s) and framed body, before HTTP de-chunking
    UNFRAMED = "unframed"  # head and body, the body's chunk framing already taken off (`curl -i`)
    BODY = "body"  # the bare body, framing taken off, no head
    TEXT = "text"  # a body decoded to text by somebody else and encoded again (HAR): no byte rules


class How(Enum):
    """How an exchange ended."""

    FRAMED = "framed"  # HTTP framing said the message was complete
    CLOSED = "closed"  # the peer closed its side (FIN; under TLS with close_notify)
    TLS_CUT = "tls-cut"  # the peer closed TCP without TLS close_notify
    RESET = "reset"  # the peer reset the connection
    LEFT = "left"  # we hung up, because the script said so
    CLOCK = "clock"  # one of our clocks ran out; `End.detail` says which
    BOUND = "bound"  # one of our bounds was reached; `End.detail` says which
    NOT_CONNECTED = "not-connected"  # no TCP connection; `End.detail` says why
    TLS_FAILED = "tls-failed"  # the TLS handshake failed; `End.detail` says why
    UNKNOWN = "unknown"  # not recorded


CLOCKS = ("connect", "first-byte", "progress", "total")
BOUNDS = ("head", "body", "event")
LEAVES = ("fin", "rst", "half")


@dataclass(frozen=True, slots=True)
class Segment:
    """One write of the request: bytes handed to the socket, and when that returned."""

    data: bytes
    at: float | None = None


class Read(NamedTuple):
    """One read: `end` is the offset in `Capture.received` after it.

    A tuple, for a load makes as many of them as it has events.
    """

    end: int
    at: float | None = None
    emptied: bool | None = None  # did this read leave the socket's queue empty


@dataclass(frozen=True, slots=True)
class End:
    """How, when and why the exchange ended, and what our side did."""

    how: How
    at: float | None = None
    detail: str | None = None  # a member of CLOCKS or BOUNDS, or an errno name / TLS reason
    left: str | None = None  # a member of LEAVES: how our side left, where it did
    unread: int | None = None  # bytes in the socket's queue that we never read, where known


@dataclass(frozen=True, slots=True)
class Given:
    """What a file's user told us and the bytes do not: only for records that are not WIRE."""

    status: int | None = None
    content_type: str | None = None
    path: str | None = None
    request: dict[str, Json] | None = None  # the JSON body of the request, or the known part of it


@dataclass(frozen=True, slots=True)
class Mask:
    """A secret overwritten in place with the same length of `*`.

    `where` is "request" (offset into the joined segments), "received", "early", "late" or "url"
    (offset into its UTF-8); `secret` names the source, e.g. "env:OPENAI_API_KEY" or
    "header:authorization", for `replay` (see conformance/masking.py for the full form).
    """

    where: str
    start: int
    length: int
    secret: str


@dataclass(frozen=True, slots=True)
class Capture:
    """One exchange. See the module docstring for units."""

    received: bytes
    layer: Layer = Layer.WIRE
    reads: tuple[Read, ...] = ()
    request: tuple[Segment, ...] = ()
    url: str | None = None
    connection: int | None = None  # number of the connection within its run
    ordinal: int | None = None  # 0 for the first exchange on that connection
    early: bytes = b""  # bytes that waited on the connection before our request left
    late: bytes = b""  # bytes that followed after the end of this exchange
    connected_at: float | None = None
    sent_at: float | None = None  # the last request byte was handed to the socket
    end: End = field(default_factory=lambda: End(How.UNKNOWN))
    clock: str | None = None  # "user", "kernel", "packet"; None: no times recorded
    wall: float | None = None  # Unix time at the clock's zero
    given: Given | None = None
    masks: tuple[Mask, ...] = ()
