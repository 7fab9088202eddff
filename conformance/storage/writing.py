"""Records → the lines of a file. Refuses what could not be read back."""

from __future__ import annotations

import base64
import json
import math
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from conformance.capture import LEAVES, Capture, End, Given, Layer, Mask, Segment
from conformance.dossier import APIS, Dossier, Sample
from conformance.errors import RecordError

from .lines import (
    LONE,
    MOST_BYTES,
    MOST_LINE,
    MOST_LINES,
    MOST_VALUES,
    count_values,
    is_deep,
)

VERSION: Final = 1
TRANSCRIPT: Final = {"sent", "early", "read", "data", "late"}
BLOCK: Final = 256 << 10  # bytes on one line of the transcript
# C0 except tab and line ends, DEL, C1: a file that is looked at must not drive the terminal.
_CONTROL: Final = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
_Row = dict[str, Any]


def write(dossier: Dossier) -> bytes:
    """The file. Raises RecordError if it would be larger than `read` accepts, ValueError for a
    record that contradicts itself (reads that go back, masks out of range, times that are NaN).
    """
    if dossier.api not in (None, *APIS):
        raise ValueError(f"no such API: {dossier.api}")
    return _file(_rows(dossier))


def write_capture(capture: Capture) -> bytes:
    """A file of one capture; errors as `write`."""
    head = {"streamproof": "capture", "version": VERSION}
    return _file(_chain(head, _capture("stream", 0, capture)))


def _chain(head: _Row, rest: Iterator[_Row]) -> Iterator[_Row]:
    yield head
    yield from rest


def _file(rows: Iterator[_Row]) -> bytes:
    out, lines, values = bytearray(), 0, 0
    for row in rows:
        line = _line(row)
        out += line
        lines += 1
        values += 0 if TRANSCRIPT & row.keys() else count_values(line)
        if len(out) >= MOST_BYTES - 100 or lines >= MOST_LINES or values > MOST_VALUES:
            raise RecordError(
                f"a record of more than {MOST_BYTES >> 20} MiB, {MOST_LINES} lines or "
                f"{MOST_VALUES} JSON values cannot be kept"
            )
    return bytes(out + _line({"streamproof": "end", "lines": lines}))


def _line(row: _Row) -> bytes:
    if is_deep(row):
        raise RecordError("a record that is nested too deeply cannot be kept")
    text = json.dumps(row, ensure_ascii=False, allow_nan=False, check_circular=False)
    # A lone surrogate has no UTF-8; as \ud83d it is JSON.
    line = text.encode("utf-8", "backslashreplace") + b"\n"
    if len(line) > MOST_LINE:
        raise RecordError(f"a record with more than {MOST_LINE >> 20} MiB in one field")
    return line


def _rows(dossier: Dossier) -> Iterator[_Row]:
    yield _given_only(
        {
            "streamproof": "dossier",
            "version": VERSION,
            "scenario": dossier.scenario,
            "name": dossier.name or None,
            "api": dossier.api,
            "dialect": dossier.dialect,
            "seed": dossier.seed,
            "trial": dossier.trial or None,
            "parameters": dict(dossier.parameters) or None,
            "picked": dict(dossier.picked) or None,
            "roles": {role: len(captures) for role, captures in dossier.roles.items()},
        }
    )
    for role, captures in dossier.roles.items():
        for take, capture in enumerate(captures):
            yield from _capture(role, take, capture)
    for sample in dossier.samples:
        yield {"sample": {"at": sample.at, "values": _values(sample)}}
    for action in dossier.actions:
        yield {"action": {"at": action.at, "what": action.what, "role": action.role}}


def _given_only(row: Mapping[str, Any]) -> _Row:
    for field, value in row.items():
        if isinstance(value, str) and LONE.search(value):
            raise ValueError(f"{field} holds a lone surrogate")
    return {field: value for field, value in row.items() if value is not None}


def _values(sample: Sample) -> dict[str, float | str]:
    """Metrics may be NaN or infinite, which JSON numbers are not."""
    words = {math.inf: "Infinity", -math.inf: "-Infinity"}
    return {
        name: value if math.isfinite(value) else words.get(value, "NaN")
        for name, value in sample.values.items()
    }


def _capture(role: str, take: int, capture: Capture) -> Iterator[_Row]:
    _check_masks(capture)
    yield _given_only(
        {
            "capture": role,
            "take": take,
            "layer": capture.layer.value if capture.layer is not Layer.WIRE else None,
            "url": capture.url,
            "connection": capture.connection,
            "ordinal": capture.ordinal,
            "connected_at": capture.connected_at,
            "sent_at": capture.sent_at,
            "end": _end(capture.end),
            "clock": capture.clock,
            "wall": capture.wall,
            "given": _given(capture.given),
            "masks": [_mask(gap) for gap in capture.masks] or None,
        }
    )
    for segment in capture.request:
        yield from _segment(segment)
    for block in _blocks(capture.early):
        yield {"early": _data(block)}
    yield from _received(capture)
    for block in _blocks(capture.late):
        yield {"late": _data(block)}


def _end(end: End) -> _Row:
    if end.left not in (None, *LEAVES):
        raise ValueError(f"no such way to leave: {end.left}")
    return _given_only(
        {
            "how": end.how.value,
            "at": end.at,
            "detail": end.detail,
            "left": end.left,
            "unread": end.unread,
        }
    )


def _given(given: Given | None) -> _Row | None:
    if given is None:
        return None
    return _given_only(
        {
            "status": given.status,
            "content_type": given.content_type,
            "path": given.path,
            "request": given.request,
        }
    )


def _mask(gap: Mask) -> _Row:
    return {"where": gap.where, "start": gap.start, "length": gap.length, "secret": gap.secret}


def _check_masks(capture: Capture) -> None:
    sizes = sizes_of(capture)
    for gap in capture.masks:
        if not 0 <= gap.start < gap.start + gap.length <= sizes[gap.where]:
            raise ValueError(f"a mask out of range: {gap}")


def sizes_of(capture: Capture) -> dict[str, int]:
    """Length of each of the places that `Mask.where` can name."""
    return {
        "request": sum(len(segment.data) for segment in capture.request),
        "received": len(capture.received),
        "early": len(capture.early),
        "late": len(capture.late),
        "url": len((capture.url or "").encode("utf-8", "surrogatepass")),
    }


def _segment(segment: Segment) -> Iterator[_Row]:
    *firsts, last = _blocks(segment.data) or [b""]
    for block in firsts:
        yield {"sent": _data(block), "more": True}
    yield _given_only({"sent": _data(last), "at": segment.at})


def _received(capture: Capture) -> Iterator[_Row]:
    at = 0
    for read in capture.reads:
        if not at <= read.end <= len(capture.received):
            raise ValueError(f"a read that ends at {read.end}, after {at} bytes, is impossible")
        *firsts, last = _blocks(capture.received[at : read.end]) or [b""]
        for block in firsts:
            yield {"data": _data(block)}
        yield _given_only({"read": _data(last), "at": read.at, "emptied": read.emptied})
        at = read.end
    for block in _blocks(capture.received[at:]):
        yield {"data": _data(block)}


def _blocks(data: bytes) -> list[bytes]:
    return [data[at : at + BLOCK] for at in range(0, len(data), BLOCK)]


def _data(block: bytes) -> str | dict[str, str]:
    try:
        text = block.decode("utf-8")
    except UnicodeDecodeError:
        text = "\0"
    return text if not _CONTROL.search(text) else {"base64": base64.b64encode(block).decode()}
