"""Recorded files → dossiers, told apart by content, never by name. Bounded in size and memory.

Taken are: dossier and capture files, and folders of them; a response dump of `curl -siN --raw`
(framed as on the wire) or `curl -siN` (framing taken off); the bare body of an event stream; HAR;
JSON lines of samples. Everything else is a RecordError that says what was expected.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO

from conformance import http1, storage
from conformance.boundedjson import parse
from conformance.capture import Capture, End, Given, How, Json, Layer
from conformance.dossier import CHAT, COMPLETIONS, Dossier
from conformance.errors import RecordError
from conformance.har import dossiers_from_har, is_har
from conformance.samples import dossier_from_sample, is_sample

# A record in memory takes about 16 times its bytes as a stream of ordinary chunks, and far more as
# one of tiny events or empty objects; these keep any record that is judged under 300 MB.
MOST_BYTES = 12 << 20
MOST_EVENTS = 80_000
MOST_OBJECTS = 500_000
_LOOK = 64 << 10

_DUMP = re.compile(rb"HTTP/\d", re.IGNORECASE)
_INTERIM = re.compile(rb"HTTP/\S{1,9} +1\d\d", re.IGNORECASE)
_VERBOSE = re.compile(rb"[*<>{}] ")
_STREAM = re.compile(rb"(?:\A(?:\xef\xbb\xbf)?|[\r\n])(?:data|event|id|retry)?:")
_CHUNK_SIZE = re.compile(rb"([0-9a-fA-F]{1,16})[ \t]*(?:;[^\r\n]*)?\r?\n")
# At most one event ends at each run of line ends, under whatever framing.
_BLANK = re.compile(rb"(?:\r\n|\n|\r){2,}")
_HEAD_END = re.compile(rb"\r?\n\r?\n")
_KNOWN_BINARY = {
    b"\x1f\x8b": "a gzip file; unpack it first",
    b"\x28\xb5\x2f\xfd": "a zstd file; unpack it first",
    b"PK\x03\x04": "a zip file; unpack it first",
    b"\xd4\xc3\xb2\xa1": "a packet capture; record with `curl -siN --raw` instead",
    b"\x0a\x0d\x0d\x0a": "a packet capture; record with `curl -siN --raw` instead",
}
EXPECTED = (
    "expected a dossier, a response dump (curl -siN --raw), an event-stream body, HAR or JSON lines"
)


@dataclass(frozen=True, slots=True)
class Hints:
    """What the caller tells about records that do not say it themselves."""

    request: dict[str, Json] | None = None
    plain: str | None = None
    status: int | None = None
    content_type: str | None = None
    dialect: str | None = None


@dataclass(frozen=True, slots=True)
class Item:
    """One record; `sample` is its id where it came from JSON lines and gets its own report."""

    dossier: Dossier
    sample: str | None = None


def items(name: str, hints: Hints) -> Iterator[Item]:
    """The records of one file or folder; `-` is stdin. One at a time, so that memory stays small.

    Raises RecordError for what cannot be read, also after some items.
    """
    for item in _items(name, hints):
        _bounded(item.dossier)
        yield item


def _bounded(dossier: Dossier) -> None:
    """Raise RecordError for a record that would take more memory than its bytes suggest."""
    bodies = [take.received for takes in dossier.roles.values() for take in takes]
    events = sum(1 for body in bodies for _ in _BLANK.finditer(body))
    objects = sum(body.count(b"{") + body.count(b"[") for body in bodies)
    for what, count, most in (
        ("bytes", sum(map(len, bodies)), MOST_BYTES),
        ("events", events, MOST_EVENTS),
        ("JSON objects", objects, MOST_OBJECTS),
    ):
        if count > most:
            raise RecordError(f"{dossier.name}: {count} {what}, we accept {most} in one record")


def _items(name: str, hints: Hints) -> Iterator[Item]:
    try:
        if name == "-":
            yield from items_of_stream(sys.stdin.buffer, "stdin", hints)
            return
        path = Path(name)
        if path.is_dir():
            yield from _of_folder(path)
            return
        with path.open("rb") as file:
            yield from items_of_stream(file, name, hints)
    except OSError as error:
        live = " (an endpoint is checked by `conformance run`)" if "://" in name else ""
        raise RecordError(f"{name}: {error.strerror or error}{live}") from None


def _of_folder(folder: Path) -> Iterator[Item]:
    found = False
    for path in sorted(folder.rglob("*")):
        if path.is_file() and storage.sniff(path):
            found = True
            yield Item(replace(storage.read(path), name=str(path)))
    if not found:
        raise RecordError(f"{folder}: expected dossier or capture files in this folder, found none")


def items_of_stream(file: BinaryIO, name: str, hints: Hints) -> Iterator[Item]:
    """What `items` gives for one file that is already open."""
    first = file.readline(MOST_BYTES + 1)
    if storage.sniff(first):
        source = _from_start(file) or first + file.read(storage.MOST_BYTES + 1 - len(first))
        yield Item(_hinted(replace(storage.read(source, name), name=name), hints))
        return
    if _begins_samples(first):
        yield from _of_samples(file, first, name, hints)
        return
    data = first + file.read(MOST_BYTES + 1 - len(first))
    if len(data) > MOST_BYTES:
        raise RecordError(f"{name}: larger than {MOST_BYTES >> 20} MiB, which is all we accept")
    yield from _of_bytes(data, name, hints)


def _from_start(file: BinaryIO) -> BinaryIO | None:
    """The file wound back; None for a pipe, whose first line is gone."""
    if not file.seekable():
        return None
    file.seek(0)
    return file


def _begins_samples(first: bytes) -> bool:
    return first.lstrip()[:1] == b"{" and is_sample(parse(first))


def _of_samples(file: BinaryIO, first: bytes, name: str, hints: Hints) -> Iterator[Item]:
    line, number = first, 1
    while line:
        where = f"{name}:{number}"
        if line.strip():
            sample, dossier = dossier_from_sample(parse(line), where)
            dossier = replace(dossier, name=f"{name}#{sample}")
            yield Item(_hinted(dossier, hints), sample)
        line, number = file.readline(MOST_BYTES + 1), number + 1


def _of_bytes(data: bytes, name: str, hints: Hints) -> Iterator[Item]:
    if _DUMP.match(data):
        yield Item(_dossier(_dump(data, hints), name, hints))
    elif data.lstrip()[:1] == b"{" and is_har(har := parse(data)):
        for dossier in dossiers_from_har(har, name):
            yield Item(_hinted(dossier, hints))
    elif _is_body(data, hints):
        given = Given(hints.status, hints.content_type, None, hints.request)
        yield Item(_dossier(Capture(data, Layer.BODY, given=given), name, hints))
    else:
        raise RecordError(f"{name}: {_why_not(data)}")


def _is_body(data: bytes, hints: Hints) -> bool:
    """Whoever says the status or content type says that it is a body, however strange."""
    said = hints.status is not None or hints.content_type is not None
    return said or _STREAM.search(data[:_LOOK]) is not None


def _why_not(data: bytes) -> str:
    if not data:
        return "an empty file; if it is an empty answer, say --content-type text/event-stream"
    for magic, words in _KNOWN_BINARY.items():
        if data.startswith(magic):
            return words
    if _VERBOSE.match(data):
        return "looks like `curl -v`; record with `curl -siN --raw` instead"
    return f"{EXPECTED}; a bare body of another shape needs --content-type or --status"


def _dump(data: bytes, hints: Hints) -> Capture:
    data = _last_answer(data)
    layer = Layer.WIRE if _is_framed(data) else Layer.UNFRAMED
    how = How.UNKNOWN
    if layer is Layer.WIRE:
        reader = http1.Reader("POST")
        reader.feed(data)
        how = How.FRAMED if reader.complete else How.UNKNOWN
    given = Given(None, None, None, hints.request) if hints.request is not None else None
    return Capture(data, layer, end=End(how), given=given)


def _last_answer(data: bytes) -> bytes:
    """Without the heads that curl prints of a proxy's CONNECT and of redirects it followed.

    They have no body and the next head follows at once. An interim answer (1xx) looks the same
    but belongs to the exchange, so it stays.
    """
    start = 0
    while (end := _HEAD_END.search(data, start)) and _DUMP.match(data, end.end()):
        if _INTERIM.match(data, start):
            break
        start = end.end()
    return data[start:]


def _is_framed(data: bytes) -> bool:
    """Are the bytes after the head as they were on the wire?

    HTTP/2 has no such bytes. Without a chunked coding curl has nothing to take off. With it, the
    body must look like chunks; of an empty body nobody can tell, so nothing is claimed.
    """
    reader = http1.Reader("POST")
    reader.feed(data[: 1 << 20])
    head = reader.head
    if head is None:  # not readable as HTTP: let the rules say so
        return True
    if head.version[:1] not in (b"0", b"1"):
        return False
    codings = b",".join(head.all(b"transfer-encoding")).lower()
    return b"chunked" not in codings or _looks_chunked(data, head.end)


def _looks_chunked(data: bytes, start: int) -> bool:
    size = _CHUNK_SIZE.match(data, start)
    if size is None:
        return False
    end = size.end() + int(size[1], 16)
    return data[end : end + 2] in (b"\r\n", b"\r", b"") or data[end : end + 1] == b"\n"


def _dossier(capture: Capture, name: str, hints: Hints) -> Dossier:
    plain = Dossier("file", {"stream": (capture,)}, api=api_of_request(hints.request), name=name)
    return _hinted(plain, hints)


def _hinted(dossier: Dossier, hints: Hints) -> Dossier:
    """With what the caller knows, where the record does not say it itself."""
    picked = dict(dossier.picked)
    if hints.plain is not None:
        picked.setdefault("plain_text", hints.plain)
    return replace(dossier, picked=picked, dialect=dossier.dialect or hints.dialect)


def api_of_request(request: dict[str, Json] | None) -> str | None:
    """Which API a request body is for; None: it does not say."""
    if request is None:
        return None
    if "messages" in request:
        return CHAT
    return COMPLETIONS if "prompt" in request else None


def request_from_file(name: str) -> dict[str, Json]:
    """`--request`: the JSON body of the request."""
    value = parse(_small(name))
    if not isinstance(value, dict):
        raise RecordError(f"{name}: expected a JSON object, the body of the request")
    return value


def plain_from_file(name: str) -> str:
    """`--plain`: the text of the non-streamed answer, or that answer itself as JSON."""
    data = _small(name)
    value = parse(data) if data.lstrip()[:1] == b"{" else None
    if isinstance(value, dict) and "choices" in value:
        text = _text_of_answer(value)
        if text is None:
            raise RecordError(f"{name}: the answer has no choices[0].message.content and no .text")
        return text
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        raise RecordError(f"{name}: expected UTF-8 text or a JSON answer") from None


def _text_of_answer(answer: dict[str, Json]) -> str | None:
    match answer.get("choices"):
        case [{"message": {"content": str(text)}}, *_] | [{"text": str(text)}, *_]:
            return text
        case _:
            return None


def _small(name: str) -> bytes:
    try:
        with open(name, "rb") as file:
            data = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise RecordError(f"{name}: {error.strerror or error}") from None
    if len(data) > MOST_BYTES:
        raise RecordError(f"{name}: larger than {MOST_BYTES >> 20} MiB, which is all we accept")
    return data
