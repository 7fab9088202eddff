"""What a hostile server does with a connection, by name."""

from __future__ import annotations

import gzip
import json
import socket
import struct

import trio

from tests.conformance.hostile_server import (
    EVENTS,
    JSON,
    Attack,
    chunk,
    framed,
    head,
    stream_answer,
)

CHUNKED = b"Transfer-Encoding: chunked"
OK = b"HTTP/1.1 200 OK\r\n"
TOKEN = chunk({"content": "x"})


def says(*data: bytes) -> Attack:
    """Sends this and closes."""

    async def attack(stream: trio.SocketStream) -> None:
        await stream.send_all(b"".join(data))

    return attack


def holds(*data: bytes) -> Attack:
    """Sends this and stays silent, the connection open."""

    async def attack(stream: trio.SocketStream) -> None:
        await stream.send_all(b"".join(data))
        await trio.sleep_forever()

    return attack


def endless(start: bytes, piece: bytes, pause: float = 0.0) -> Attack:
    """Sends `start`, then `piece` for ever."""

    async def attack(stream: trio.SocketStream) -> None:
        await stream.send_all(start)
        while True:
            await stream.send_all(piece)
            await trio.sleep(pause)

    return attack


def resets(*data: bytes) -> Attack:
    """Sends this, then a TCP reset."""

    async def attack(stream: trio.SocketStream) -> None:
        await stream.send_all(b"".join(data))
        await trio.sleep(0.1)
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    return attack


def framed_chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def error(message: str, status: bytes, *fields: bytes) -> bytes:
    return framed(
        json.dumps({"error": {"message": message}}).encode(), JSON, *fields, status=status
    )


# name → attack, the check that fails if the streams are so, what the error says if everything is.
ATTACKS: dict[str, tuple[Attack, str, str]] = {
    "a head of endless fields": (
        endless(OK, b"X-F: " + b"y" * 900 + b"\r\n"), "http.no-answer", "a head that had not ended",
    ),
    "a field without end": (
        endless(OK + b"X: ", b"y" * 65536), "http.no-answer", "a head that had not ended",
    ),
    "a status line without end": (
        endless(OK[:13], b"y" * 65536), "http.no-answer", "a head that had not ended",
    ),
    "a byte a second in the head": (
        endless(b"HTTP/1.1 200 ", b"O", 1), "http.no-answer", "a head that had not ended after 20",
    ),
    "a field a second": (
        endless(OK, b"X-A: b\r\n", 1), "http.no-answer", "a head that had not ended after 20",
    ),
    "a byte a second in the body": (
        endless(head(EVENTS), b"x", 1), "stream.no-progress", "a body that did not end in time",
    ),
    "a byte a second in a chunk": (
        endless(head(EVENTS, CHUNKED) + b"400\r\n", b"d", 1), "stream.no-progress", "did not end",
    ),
    "a reset in the head": (
        resets(OK, b"Content-"), "http.no-answer", "breaks off after 25 bytes (reset)",
    ),
    "a close in the head": (
        says(OK, b"Content-"), "http.no-answer", "breaks off after 25 bytes (closed)",
    ),
    "a reset in the body": (
        resets(head(EVENTS), TOKEN), "stream.truncated", "without an id in its list",
    ),
    "a length that is too long": (
        says(head(EVENTS, b"Content-Length: 999999"), stream_answer()), "http.end-of-body", "200",
    ),
    "a length that is too short": (
        says(head(EVENTS, b"Content-Length: 40"), stream_answer()), "http.bytes-after-end", "200",
    ),
    "a length below zero": (
        says(head(EVENTS, b"Content-Length: -1"), stream_answer()), "http.head-syntax", "200",
    ),
    "a length of 200,000 digits": (
        holds(head(EVENTS, b"Content-Length: " + b"9" * 200_000)), "http.head-syntax", "200",
    ),
    "gzip unasked": (
        says(framed(gzip.compress(stream_answer()), EVENTS, b"Content-Encoding: gzip")),
        "http.content-encoding", "without an id",
    ),
    "a gzip bomb": (
        says(framed(gzip.compress(bytes(30_000_000)), EVENTS, b"Content-Encoding: gzip")),
        "http.content-encoding", "without an id",
    ),
    "silence": (holds(), "http.no-answer", "got no answer: silence after 20 s (--timeout)"),
    "heartbeats": (
        endless(head(EVENTS, CHUNKED), framed_chunk(b": hb\n\n"), 1), "stream.no-progress",
        "in time",
    ),
    "a flood of heartbeats": (
        endless(head(EVENTS, CHUNKED), framed_chunk(b": hb\n\n" * 9000)), "stream.no-progress",
        "with more than ",
    ),
    "a flood of tokens": (
        endless(head(EVENTS, CHUNKED), framed_chunk(TOKEN * 300)), "stream.no-progress",
        "with more",
    ),
    "a token a second": (
        endless(head(EVENTS, CHUNKED), framed_chunk(TOKEN), 1), "stream.no-progress",
        "in time",
    ),
    "a line without end": (
        endless(head(EVENTS) + b"data: ", b"x" * 65536), "stream.no-progress", "with more than",
    ),
    "interim heads without end": (
        endless(b"", b"HTTP/1.1 103 Early Hints\r\n\r\n" * 100), "http.no-answer", "had not ended",
    ),
    "an interim head a second": (
        endless(b"", b"HTTP/1.1 102 Processing\r\n\r\n", 1), "http.no-answer", "after 20 s",
    ),
    "another protocol by 101": (
        holds(head(b"Upgrade: websocket", status=b"101 Switching Protocols"), b"\x81\x05hello"),
        "http.status", "answered 101",
    ),
    "trailers without end": (
        endless(head(EVENTS, CHUNKED) + b"0\r\n", b"X-T: y\r\n" * 1000), "http.chunked-framing",
        "200",
    ),
    "a trailer a second": (
        endless(head(EVENTS, CHUNKED) + framed_chunk(TOKEN) + b"0\r\n", b"X-T: y\r\n", 1),
        "stream.no-progress", "in time",
    ),
    "a chunk size without end": (
        endless(head(EVENTS, CHUNKED), b"0" * 65536), "http.chunked-framing",
        "200",
    ),
    "a chunk extension without end": (
        endless(head(EVENTS, CHUNKED) + b"5;", b"a=b;" * 9999), "http.chunked-framing",
        "200",
    ),
    "a chunk size below zero": (
        says(head(EVENTS, CHUNKED), b"-5\r\nhello"), "http.chunked-framing",
        "200",
    ),
    "a chunk of 10^120000 bytes": (
        holds(head(EVENTS, CHUNKED), b"f" * 100_000 + b"\r\n", TOKEN), "stream.no-progress",
        "in time",
    ),
    "HTTP/0.9": (says(b"<html>hi</html>"), "http.no-answer", "not HTTP/1.1 ('<html>hi</html>')"),
    "HTTP/2": (
        says(b"\0\0\x12\4\0\0\0\0\0" + bytes(18)), "http.no-answer", "not HTTP/1.1 (HTTP/2; only",
    ),
    "SSH": (says(b"SSH-2.0-OpenSSH_9.6\r\n"), "http.no-answer", "not HTTP/1.1 (SSH)"),
    "a TLS alert": (says(b"\x15\3\1\0\2\2\x46"), "http.no-answer", "(TLS; try https://)"),
    "bytes in the head that are not UTF-8": (
        says(framed(stream_answer(), EVENTS, b"X-\xff: \x80", b"Server: caf\xe9\x1b[31m")),
        "http.head-syntax", "without an id",
    ),
    "JSON of 500,000 levels": (
        says(framed(b"data: " + b"[" * 500_000 + b"\n\n", EVENTS)), "json.invalid", "without an id",
    ),
    "a number of 200,000 digits": (
        says(framed(b'data: {"created": ' + b"9" * 200_000 + b"}\n\n", EVENTS)), "json.invalid",
        "without an id",
    ),
    "3,000 choices": (
        says(framed(b"".join(
            b'data: {"choices": [{"index": %d, "delta": {"content": "a"}}]}\n\n' % index
            for index in range(3_000)
        ), EVENTS)), "stream.truncated", "without an id",
    ),
    "infinite and missing numbers": (
        says(framed(b'data: {"created": 1e999, "usage": {"total_tokens": -1e400}, "choices": '
                    b'[{"index": 1e400, "delta": {"tool_calls": [{"index": NaN}]}}]}\n\n', EVENTS)),
        "stream.truncated", "without an id",
    ),
}  # fmt: skip
