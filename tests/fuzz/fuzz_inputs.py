"""Files for `judge`: any bytes give dossiers or one line that says what was expected."""

from __future__ import annotations

import base64
import io
import json
import random

from conformance import storage
from conformance.capture import Capture
from conformance.errors import RecordError
from conformance.inputs import Hints, items_of_stream
from tests.fuzz.harness import Target

SSE = b'data: {"choices":[]}\n\ndata: [DONE]\n\n'
TOKENS = (
    *(b"\n", b"\r\n", b"\r\n\r\n", b"HTTP/1.1 200 OK\r\n", b"HTTP/2 200\r\n"),
    *(b"HTTP/1.1 100 C\r\n", b"Transfer-Encoding: chunked\r\n", b"5\r\ndata:\r\n", b"0\r\n\r\n"),
    *(b"data: ", b"{", b"}", b"[", b"]", b'"', b":", b",", b"null", b"1e999", b"9" * 20, b"NaN"),
    *(b'"log"', b'"entries"', b'"request"', b'"body_base64"', b'"status"', b'"streamproof"'),
    *(b"\x00", b"\xff", b"\x1f\x8b", b"\\ud800", b"\xef\xbb\xbf"),
)


def examples() -> list[bytes]:
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
    entry = {
        "request": {"url": "https://x/v1/chat/completions", "postData": {"text": "{}"}},
        "response": {"status": 200, "headers": [], "content": {"text": SSE.decode()}},
    }
    sample = {"id": "a", "body_base64": base64.b64encode(SSE).decode(), "end": "clean end of body"}
    return [
        SSE,
        head + b"\r\n" + SSE,
        head + b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n" % (len(SSE), SSE),
        json.dumps({"log": {"entries": [entry]}}).encode(),
        json.dumps(sample).encode() + b"\n" + json.dumps(sample).encode() + b"\n",
        storage.write_capture(Capture(head + b"\r\n" + SSE)),
    ]


def check(data: bytes, chance: random.Random) -> None:
    hints = chance.choice((Hints(), Hints(status=200, content_type="text/event-stream")))
    try:
        for item in items_of_stream(io.BytesIO(data), "fuzz", hints):
            assert item.dossier.roles
    except RecordError as error:
        text = str(error)
        if not text.startswith("fuzz") or "\n" in text:
            raise AssertionError(f"not one line with its place: {text!r}") from error


TARGET = Target(examples, TOKENS, check)
