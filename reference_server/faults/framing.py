"""Faults of HTTP: the head, the framing of the body, the connection."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable, Iterable
from dataclasses import replace

from reference_server.faults.fault import Fault, Place, Sent
from reference_server.seams import Act, Answer, Part
from reference_server.wire import sse_writer

Frame = Callable[[Place, bytes], Iterable[Sent]]
CRLF = b"\r\n"


def _head(change: Callable[[bytes], bytes], streams_only: bool = True) -> Frame:
    """Changes the head of a 200."""

    def frame(place: Place, raw: bytes) -> Iterable[Sent]:
        wanted = place.part is Part.HEAD and raw.startswith(b"HTTP/1.1 200")
        yield change(raw) if wanted and (place.streaming or not streams_only) else raw

    return frame


def _swap(old: bytes, new: bytes) -> Callable[[bytes], bytes]:
    return lambda raw: raw.replace(old, new, 1)


def _with_field(field: bytes) -> Callable[[bytes], bytes]:
    """Adds a field line after the status line."""
    return lambda raw: raw.replace(CRLF, CRLF + field + CRLF, 1)


def _without_field(name: bytes) -> Callable[[bytes], bytes]:
    return lambda raw: CRLF.join(
        line for line in raw.split(CRLF) if not line.lower().startswith(name + b":")
    )


def _at(part: Part, nth: int, change: Callable[[bytes], Iterable[Sent]]) -> Frame:
    """Changes one piece of a stream."""

    def frame(place: Place, raw: bytes) -> Iterable[Sent]:
        if place.streaming and place.part is part and place.nth == nth:
            return change(raw)
        return (raw,)

    return frame


def unchunked(raw: bytes) -> bytes:
    """The data of one chunk."""
    size, _, rest = raw.partition(CRLF)
    return rest[: int(size, 16)]


def _undelimited(place: Place, raw: bytes) -> Iterable[Sent]:
    if not place.streaming:
        return (raw,)
    if place.part is Part.HEAD:
        return (_with_field(b"connection: close")(_without_field(b"transfer-encoding")(raw)),)
    return (unchunked(raw),) if place.part is Part.BODY else (Act.CLOSE,)


def _short_body(place: Place, raw: bytes) -> Iterable[Sent]:
    if place.streaming or place.part is not Part.BODY:
        return (raw,)
    return (raw[:-1], Act.CLOSE)


def _gzip_head(place: Place, raw: bytes) -> Iterable[Sent]:
    return _head(_with_field(b"content-encoding: gzip"))(place, raw)


def _gzip_block(place: Place, block: bytes) -> Iterable[Sent]:
    if "gzip" not in place.memory:
        place.memory["gzip"] = zlib.compressobj(wbits=31)
    packer = place.memory["gzip"]
    last = place.part in (Part.DONE, Part.ERROR)
    yield packer.compress(block) + packer.flush(zlib.Z_FINISH if last else zlib.Z_SYNC_FLUSH)


def _gzip_whole(place: Place, answer: Answer) -> Answer:
    fields = (*answer.fields, (b"content-encoding", b"gzip"))
    return replace(answer, body=gzip.compress(answer.body), fields=fields)


def _events_for_plain(place: Place, answer: Answer) -> Answer:
    body = sse_writer.FIELD + answer.body + sse_writer.END + sse_writer.done()
    return replace(answer, body=body, content_type=sse_writer.CONTENT_TYPE)


def _typed(content_type: bytes) -> Callable[[Place, Answer], Answer]:
    return lambda place, answer: replace(answer, content_type=content_type)


def _stale(place: Place, raw: bytes) -> Iterable[Sent]:
    """The second answer on a connection is the first one again."""
    kept = place.connection.get("stale")
    if place.part is Part.HEAD:
        place.memory["answer"] = b""
    place.memory["answer"] += raw
    if place.part is not Part.END:
        return () if kept else (raw,)
    if kept:
        return (kept,)
    place.connection["stale"] = place.memory["answer"]
    return (raw,)


def _conflicting(raw: bytes) -> bytes:
    return _with_field(b"content-length: 7")(raw) if b"content-length" in raw else raw


TYPE = b"content-type: " + sse_writer.CONTENT_TYPE


def _headless(place: Place, raw: bytes) -> Iterable[Sent]:
    """A stream's body without its head."""
    return () if place.part is Part.HEAD and place.streaming else (raw,)


FAULTS = (
    Fault("http.no-answer", "the stream's head is missing", frame=_headless),
    Fault(
        "http.no-answer",
        "a stream is never answered",
        "silence",
        frame=_at(Part.HEAD, 0, lambda raw: (Act.STALL,)),
    ),
    Fault(
        "http.status",
        "the event stream has status 201",
        frame=_head(_swap(b" 200 OK", b" 201 Created")),
    ),
    Fault(
        "http.content-type",
        "the event stream is called text/plain",
        frame=_head(_swap(b"text/event-stream; charset=utf-8", b"text/plain; charset=utf-8")),
    ),
    Fault(
        "http.content-type",
        "the event stream is called application/json",
        "json",
        frame=_head(_swap(b"text/event-stream; charset=utf-8", b"application/json")),
    ),
    Fault(
        "http.content-type",
        "the event stream has no Content-Type",
        "none",
        frame=_head(_without_field(b"content-type")),
    ),
    Fault(
        "http.charset",
        "the event stream claims to be ISO 8859-1",
        frame=_head(_swap(b"charset=utf-8", b"charset=iso-8859-1")),
    ),
    Fault(
        "http.content-type-once",
        "two Content-Type fields",
        frame=_head(_with_field(b"content-type: text/plain"), streams_only=False),
    ),
    Fault(
        "http.plain-json",
        "a request without stream gets an event stream",
        whole=_events_for_plain,
    ),
    Fault(
        "http.plain-json",
        "the plain document is called text/html",
        "type",
        whole=_typed(b"text/html"),
    ),
    Fault(
        "http.length-and-chunked",
        "a chunked stream has a Content-Length too",
        frame=_head(_with_field(b"content-length: 4096")),
    ),
    Fault(
        "http.chunked-framing",
        "a chunk size is spelled with 0x",
        frame=_at(Part.BODY, 2, lambda raw: (b"0x" + raw,)),
    ),
    Fault(
        "http.chunked-framing",
        "a chunk does not end with CRLF",
        "ending",
        frame=_at(Part.BODY, 2, lambda raw: (raw.removesuffix(CRLF),)),
    ),
    Fault(
        "http.chunked-framing",
        "a chunk is longer than its size says",
        "size",
        frame=_at(Part.BODY, 2, lambda raw: (b"%x" % (len(unchunked(raw)) - 3) + raw[2:],)),
    ),
    Fault(
        "http.end-of-body",
        "the stream ends by closing, without the last chunk",
        frame=_at(Part.END, 0, lambda raw: (Act.CLOSE,)),
    ),
    Fault(
        "http.end-of-body",
        "the stream ends by a reset, without the last chunk",
        "reset",
        frame=_at(Part.END, 0, lambda raw: (Act.RESET,)),
    ),
    Fault(
        "http.end-of-body",
        "the plain body is a byte shorter than its Content-Length",
        "short",
        frame=_short_body,
    ),
    Fault("http.close-delimited", "the stream is not chunked", frame=_undelimited),
    Fault(
        "http.bytes-after-end",
        "bytes follow the last chunk",
        frame=_at(Part.END, 0, lambda raw: (raw + b"bye",)),
    ),
    Fault(
        "http.bytes-after-end",
        "the last chunk is sent twice",
        "twice",
        frame=_at(Part.END, 0, lambda raw: (raw + raw,)),
    ),
    Fault(
        "http.content-encoding",
        "everything is compressed, whatever the request accepts",
        block=_gzip_block,
        frame=_gzip_head,
        whole=_gzip_whole,
    ),
    Fault(
        "http.head-syntax",
        "a line of the head ends with LF alone",
        frame=_head(_swap(CRLF, b"\n"), streams_only=False),
    ),
    Fault(
        "http.head-syntax",
        "a field is folded over two lines",
        "fold",
        frame=_head(_with_field(b"x-note: one\r\n  two"), streams_only=False),
    ),
    Fault(
        "http.head-syntax",
        "a space stands before a colon",
        "space",
        frame=_head(_with_field(b"x-note : one"), streams_only=False),
    ),
    Fault(
        "http.head-syntax",
        "two Content-Length fields disagree",
        "lengths",
        frame=_head(_conflicting, streams_only=False),
    ),
    Fault(
        "http.keep-alive",
        "the connection closes after the stream, unannounced",
        frame=_at(Part.END, 0, lambda raw: (raw, Act.CLOSE)),
    ),
    Fault(
        "http.keep-alive-own-answer",
        "later answers on a connection are the first one again",
        frame=_stale,
    ),
)
