"""What an exchange brought, in a few words for a one-line message. Pure."""

from __future__ import annotations

from conformance import strictjson
from conformance.capture import Capture, How, Json
from conformance.reading import Reading

_WORDS = 160
_BYTES = 24
_REDIRECTS = range(300, 400)

# How other protocols begin (RFC 9113 section 3.4: "a SETTINGS frame"; RFC 8446 section 5.1: alert
# and handshake records; RFC 4253 section 4.2).
_PROTOCOLS = (
    (b"\x15\x03", "TLS; try https://"),
    (b"\x16\x03", "TLS; try https://"),
    (b"SSH-", "SSH"),
)


def said(reading: Reading) -> str:
    """`answered 401: no such key`, `got no answer: …`; continues the name of a request."""
    if reading.status is None:
        return _no_head(reading.capture)
    words = _message(reading)
    where = reading.head.get(b"location") if reading.head is not None else None
    if reading.status in _REDIRECTS and where is not None:
        target = where.decode("utf-8", "backslashreplace")[:_WORDS]
        return f"answered {reading.status} to {target}, which is not followed; give that URL"
    later = reading.head.get(b"retry-after") if reading.head is not None else None
    wait = "" if later is None else f" (Retry-After: {later[:_BYTES].decode('ascii', 'replace')})"
    return f"answered {reading.status}{': ' + words if words else ''}{wait}"


def refusal(reading: Reading) -> str:
    """The status and the error's message, one line, short."""
    words = _message(reading)
    return f"{reading.status}{': ' + words if words else ''}"


def _message(reading: Reading) -> str:
    if reading.status == 200:
        return ""  # whatever stands there, it is no error's message
    text = reading.body.decode("utf-8", "replace")
    value: Json = (reading.document or strictjson.parse(text)).value
    error = value.get("error", value) if isinstance(value, dict) else None
    message = error.get("message") if isinstance(error, dict) else error
    return " ".join(str(message).split())[:_WORDS] if isinstance(message, str) else ""


def _no_head(capture: Capture) -> str:
    end, start = capture.end, capture.received
    if not start:
        return f"got no answer: {_silence(capture)}"
    if end.how is How.BOUND:
        return f"answered with a head that had not ended after {len(start)} bytes"
    if start.startswith(b"HTTP/") and end.how is How.CLOCK:
        return f"answered with a head that had not ended {_after(capture)}"
    if start.startswith(b"HTTP/") and end.how in (How.CLOSED, How.RESET, How.TLS_CUT):
        return f"answered with a head that breaks off after {len(start)} bytes ({end.how.value})"
    name = next((name for first, name in _PROTOCOLS if start.startswith(first)), None)
    if start[3:9] == b"\x04\x00\x00\x00\x00\x00":  # a SETTINGS frame of stream 0
        name = "HTTP/2; only HTTP/1.1 is spoken here"
    shown = start[:_BYTES].decode("utf-8", "backslashreplace")
    return f"answered with what is not HTTP/1.1 ({name or repr(shown)})"


def _silence(capture: Capture) -> str:
    if capture.end.how is How.CLOCK:
        return f"silence {_after(capture)} (--timeout)"
    words = {How.RESET: "the connection was reset", How.CLOSED: "the connection was closed"}
    return words.get(capture.end.how) or str(capture.end.how.value)


def _after(capture: Capture) -> str:
    start, end = capture.connected_at, capture.end.at
    return "for too long" if start is None or end is None else f"after {end - start:.3g} s"
