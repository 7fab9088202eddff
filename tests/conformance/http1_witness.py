"""What our reader says of an answer, what h11 says of it, and that they agree where they must."""

from __future__ import annotations

from dataclasses import dataclass

import h11

from conformance import http1
from conformance.http1 import Anomaly, Field, Framing, Reader, Span


@dataclass(frozen=True)
class Seen:
    """Everything a reader says after the last byte and the close."""

    body: bytes
    head: http1.Head | None
    interim: tuple[http1.Head, ...]
    framing: Framing | None
    complete: bool
    dead: bool
    end: int | None
    spans: tuple[Span, ...]
    trailers: tuple[Field, ...]
    anomalies: tuple[Anomaly, ...]
    counts: dict[str, int]
    excess: int

    @property
    def kinds(self) -> list[str]:
        return [anomaly.kind for anomaly in self.anomalies]


def see(
    pieces: list[bytes], method: str = "POST", close: bool = True, max_head: int = 262144
) -> Seen:
    reader = Reader(method, max_head=max_head)
    body = b"".join([reader.feed(piece) for piece in pieces])
    if close:
        reader.close()
    return Seen(
        body,
        reader.head,
        reader.interim,
        reader.framing,
        reader.complete,
        reader.dead,
        reader.end,
        tuple(reader.spans),
        reader.trailers,
        tuple(reader.anomalies),
        dict(reader.counts),
        reader.excess,
    )


@dataclass
class Witness:
    """What h11 says. `head` None: it refused the head; `body` None: it refused the body."""

    head: h11.Response | None = None
    body: bytes | None = b""
    ended: bool = False
    trailers: list[tuple[bytes, bytes]] | None = None


def ask_h11(wire: bytes, method: str) -> Witness:
    connection = h11.Connection(h11.CLIENT)
    connection.send(h11.Request(method=method, target="/", headers=[("Host", "h")]))
    connection.send(h11.EndOfMessage())
    witness = Witness()
    try:
        connection.receive_data(wire)
        connection.receive_data(b"")
        while True:
            event = connection.next_event()
            if isinstance(event, h11.Response):
                witness.head = event
            elif isinstance(event, h11.Data):
                witness.body = (witness.body or b"") + bytes(event.data)
            elif isinstance(event, h11.EndOfMessage):
                witness.ended = True
                witness.trailers = list(event.headers)
                return witness
            else:
                return witness
    except h11.RemoteProtocolError:
        witness.body = None
        return witness


def _as_h11_keeps_them(fields: tuple[Field, ...]) -> list[tuple[bytes, bytes]]:
    """h11 lower-cases names and codings and keeps one Content-Length of several equal ones."""
    kept: list[tuple[bytes, bytes]] = []
    for field in fields:
        name, value = field.name.lower(), field.value
        if name == b"content-length":
            value = value.split(b",")[0].strip()
            if any(earlier == name for earlier, _ in kept):
                continue
        kept.append((name, value.lower() if name == b"transfer-encoding" else value))
    return kept


# What h11 lets pass in silence and we report.
SILENT = {
    "bare-lf",
    "obs-fold",
    "repeated-length",
    "length-and-chunked",
    "framing-forbidden",
    "bad-status-line",
    "bad-field",
    "bad-chunk-size",
    "unknown-coding",
    "bad-trailer",
}


def agree(wire: bytes, method: str) -> None:
    """Assert that where h11 accepts an answer, or its head, ours says the same about it."""
    witness = ask_h11(wire, method)
    if witness.head is None:
        return
    seen = see([wire], method)
    assert seen.head is not None
    assert seen.head.status == witness.head.status_code
    assert seen.head.reason == bytes(witness.head.reason)
    assert seen.head.version == bytes(witness.head.http_version)
    assert _as_h11_keeps_them(seen.head.fields) == list(witness.head.headers)
    if witness.body is not None:
        assert (seen.body, seen.complete) == (witness.body, witness.ended)
        assert _as_h11_keeps_them(seen.trailers) == (witness.trailers or [])
        assert set(seen.kinds) <= SILENT
