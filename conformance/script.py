"""The script of one exchange: what is sent, when our side leaves, how long and how much it bears.

Times are seconds, bounds bytes. The recorder plays it; see there for how it ends.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Clocks:
    """Patience in seconds.

    `connect`: TCP and TLS. `first_byte`: from the request's last byte to the answer's first.
    `progress`: since the last progress: the first byte, the end of the head, and then an event
    with data where the script asks for events and the answer is an event stream, else any body
    byte. Comments, blank lines and half events are no progress. `closing`: since the sentinel
    `[DONE]`; it runs out as "progress". `total`: the whole exchange, connecting included.
    """

    connect: float = 10.0
    first_byte: float = 60.0
    progress: float = 60.0
    closing: float = 5.0
    total: float = 300.0


@dataclass(frozen=True, slots=True)
class Bounds:
    """The most we take in, in bytes; `reads` is a number and reported as the bound "body"."""

    head: int = 256 * 1024
    body: int = 8 * 1024 * 1024
    event: int = 4 * 1024 * 1024
    reads: int = 250_000


@dataclass(frozen=True, slots=True)
class Leave:
    """When and how our side hangs up; the first condition that comes true.

    `how`: a member of capture.LEAVES. `events`: after that many events with data (0: once the
    request has left). `seconds`: that long after the request's last byte.
    """

    how: str
    events: int | None = None
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Slow:
    """How slowly our side reads.

    `pause`: seconds in which nothing is read, once, after that many `events` with data (0: from the
    request's last byte on). `rate`: bytes a second at most. `every`: seconds from one read to the
    next; each takes what waits. `buffer`: bytes that the socket's
    receive queue may hold (SO_RCVBUF, set before connecting; the system may double it).
    """

    pause: float = 0.0
    events: int = 0
    rate: float | None = None
    every: float | None = None
    buffer: int | None = None


@dataclass(frozen=True, slots=True)
class Exchange:
    """The script of one exchange.

    `request`: the bytes to send, one write a segment, `between` seconds apart. `events`: read the
    body as an event stream (needed by `leave.events`, `slow.events`, `patience` and the stricter
    progress clock). `patience`: seconds from the request to the first event with data, then we
    leave by FIN. `linger`: seconds to go on reading after the end, for bytes that should not be
    there.
    """

    request: tuple[bytes, ...]
    method: str = "POST"
    events: bool = False
    leave: Leave | None = None
    slow: Slow | None = None
    between: float = 0.0
    patience: float | None = None
    linger: float = 0.0
    clocks: Clocks = field(default_factory=Clocks)
    bounds: Bounds = field(default_factory=Bounds)
    url: str | None = None
