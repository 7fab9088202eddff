"""The lines of a file → records. See the package's docstring for the format."""

from __future__ import annotations

import io
import os
import re
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Final

from conformance.capture import LEAVES, Capture, End, Given, How, Layer, Mask, Read, Segment
from conformance.dossier import APIS, Action, Dossier, Sample
from conformance.errors import RecordError

from .lines import MOST_BYTES, MOST_VALUES, Fields, count_values, parse, read_lines, show
from .writing import VERSION, sizes_of

_SNIFF: Final = re.compile(rb'\s*\{\s*"streamproof"\s*:\s*"(dossier|capture)"')
_WHERES: Final = ("request", "received", "early", "late", "url")
# The lines that follow a capture's own, by the order in which they must come.
_STAGES: Final = {"sent": 0, "early": 1, "read": 2, "data": 2, "late": 3}
_NOT_NUMBERS: Final = {
    "NaN": float("nan"),
    "Infinity": float("inf"),
    "-Infinity": float("-inf"),
}

Source = bytes | Path | BinaryIO


def sniff(source: bytes | Path) -> str | None:
    """ "dossier" or "capture" if the first bytes (or a file's) are such a file's, else None."""
    if isinstance(source, Path):
        with source.open("rb") as file:
            source = file.read(200)
    match = _SNIFF.match(source)
    return match[1].decode() if match else None


def read(source: Source, name: str | None = None) -> Dossier:
    """A dossier; a capture's file gives scenario "file", role "stream".

    `name` stands in errors, by default the path. Raises RecordError, OSError for a path.
    """
    if isinstance(source, Path):
        with source.open("rb") as file:
            return read(file, name or str(source))
    name = name or "record"
    if isinstance(source, bytes):
        _check_size(len(source), name)
        source = io.BytesIO(source)
    else:
        _check_size(_size_of(source), name)
    return _File(source, name).dossier()


def read_capture(source: Source, name: str | None = None) -> Capture:
    """The one capture of a file; RecordError if the file has none or several."""
    captures = [capture for takes in read(source, name).roles.values() for capture in takes]
    if len(captures) != 1:
        raise RecordError(f"{name or 'record'}: expected one capture, found {len(captures)}")
    return captures[0]


def _check_size(size: int | None, name: str) -> None:
    if size is not None and size > MOST_BYTES:
        raise RecordError(f"{name}: larger than {MOST_BYTES >> 20} MiB, which is all we accept")


def _size_of(file: BinaryIO) -> int | None:
    """Of a regular file; anything else is bounded while it is read."""
    try:
        status = os.fstat(file.fileno())
    except (OSError, AttributeError):  # bytes in memory have no descriptor
        return None
    return status.st_size if stat.S_ISREG(status.st_mode) else None


@dataclass
class _Transcript:
    """Bytes of the capture being read, in the order of its lines."""

    request: list[Segment] = field(default_factory=list)
    pending: bytearray = field(default_factory=bytearray)  # of a segment with `more`
    early: bytearray = field(default_factory=bytearray)
    received: bytearray = field(default_factory=bytearray)
    reads: list[Read] = field(default_factory=list)
    late: bytearray = field(default_factory=bytearray)
    stage: int = 0

    def add(self, kind: str, line: Fields) -> None:
        if _STAGES[kind] < self.stage:
            line.fail(kind, "out of order: sent, early, read or data, late")
        self.stage = _STAGES[kind]
        data = line.data(kind)
        if kind == "sent":
            self._sent(data, line)
        elif self.pending:
            line.fail(kind, 'expected the rest of the segment before, which says "more"')
        elif kind == "read":
            line.only("read", "at", "emptied")
            self.received += data
            self.reads.append(Read(len(self.received), line.number("at"), line.flag("emptied")))
        else:
            line.only(kind)
            areas = {"early": self.early, "data": self.received, "late": self.late}
            areas[kind].extend(data)

    def _sent(self, data: bytes, line: Fields) -> None:
        line.only("sent", "at", "more")
        self.pending += data
        if line.flag("more"):
            if not data or "at" in line.values:
                line.fail("more", "expected bytes and no time before the last line of a segment")
            return
        self.request.append(Segment(bytes(self.pending), line.number("at")))
        self.pending.clear()


class _File:
    """One pass over the lines."""

    def __init__(self, file: BinaryIO, name: str) -> None:
        self._name = name
        self._source = read_lines(file, name)
        self._values = 0
        self._number = 0
        self._line: Fields | None = None
        self._advance()

    def _advance(self) -> None:
        """Parse the next line; None at the end."""
        number, text = next(self._source, (0, b""))
        if not number:
            self._line = None
            return
        self._number = number
        where = f"{self._name}:{number}"
        values = count_values(text)
        if values <= MOST_VALUES:
            self._line = parse(text, where)
            # The transcript keeps bytes only, whatever its lines were made of.
            if not _STAGES.keys() & self._line.values.keys():
                self._values += values
        if max(values, self._values) > MOST_VALUES:
            raise RecordError(f"{where}: line: more than {MOST_VALUES} JSON values")

    def _next(self) -> Fields:
        """The line that must be here."""
        if self._line is None:
            where = f"{self._name}:{self._number + 1}"
            raise RecordError(f"{where}: line: the file ends early; it is damaged")
        return self._line

    def dossier(self) -> Dossier:
        head = self._next()
        kind = head.choice("streamproof", ("dossier", "capture"))
        if kind is None:
            head.fail("streamproof", 'missing: expected "dossier" or "capture"')
        version = head.need_integer("version")
        if version != VERSION:
            head.fail("version", f"{version} is not {VERSION}; a newer streamproof may read it")
        if kind == "capture":
            head.only("streamproof", "version")
            self._advance()
            dossier = Dossier("file", {"stream": (self._capture("stream", 0),)})
        else:
            dossier = self._whole(head)
        self._finish()
        return dossier

    def _whole(self, head: Fields) -> Dossier:
        head.only(
            *("streamproof", "version", "scenario", "name", "api", "dialect", "seed", "trial"),
            *("parameters", "picked", "roles"),
        )
        roles = head.inner("roles")
        counts = {role: roles.need_integer(role) for role in roles.names()}
        self._advance()
        captures = {
            role: tuple([self._capture(role, take) for take in range(count)])
            for role, count in counts.items()
        }
        samples, actions = tuple(self._samples()), tuple(self._actions())
        return Dossier(
            scenario=head.need_text("scenario"),
            roles=captures,
            api=head.choice("api", APIS),
            parameters=head.object("parameters") or {},
            seed=head.integer("seed", None),
            trial=head.integer("trial") or 0,
            picked=head.object("picked") or {},
            samples=samples,
            actions=actions,
            dialect=head.text("dialect"),
            name=head.text("name") or "",
        )

    def _finish(self) -> None:
        line = self._next()
        if line.choice("streamproof", ("end",)) is None:
            line.fail(show(next(iter(line.values), "line")), "not expected here")
        line.only("streamproof", "lines")
        if line.need_integer("lines") != self._number - 1:
            line.fail("lines", f"{self._number - 1} came before; the file is damaged")
        self._advance()
        if self._line is not None:
            self._line.fail("line", "nothing may follow the end")

    def _capture(self, role: str, take: int) -> Capture:
        line = self._next()
        if line.text("capture") != role or line.integer("take") != take:
            line.fail("capture", f"expected take {take} of role {show(role)}, as the header says")
        line.only(
            *("capture", "take", "layer", "url", "connection", "ordinal", "connected_at"),
            *("sent_at", "end", "clock", "wall", "given", "masks"),
        )
        transcript = self._transcript()
        capture = Capture(
            received=bytes(transcript.received),
            layer=line.member("layer", Layer, Layer.WIRE),
            reads=tuple(transcript.reads),
            request=tuple(transcript.request),
            url=line.text("url"),
            connection=line.integer("connection"),
            ordinal=line.integer("ordinal"),
            early=bytes(transcript.early),
            late=bytes(transcript.late),
            connected_at=line.number("connected_at"),
            sent_at=line.number("sent_at"),
            end=_end(line.inner("end")),
            clock=line.text("clock"),
            wall=line.number("wall"),
            given=_given(line.inner("given")) if "given" in line.values else None,
            masks=tuple([_mask(gap) for gap in line.objects("masks")]),
        )
        _check_masks(capture, line)
        return capture

    def _transcript(self) -> _Transcript:
        transcript = _Transcript()
        self._advance()
        while self._line is not None and (kinds := _STAGES.keys() & self._line.values.keys()):
            transcript.add(min(kinds), self._line)
            self._advance()
        following = self._next()  # a capture is never the last line: was the file cut here?
        if transcript.pending:
            following.fail("line", 'expected the rest of the segment before, which says "more"')
        return transcript

    def _samples(self) -> Iterator[Sample]:
        while self._line is not None and "sample" in self._line.values:
            self._line.only("sample")
            sample = self._line.inner("sample")
            sample.only("at", "values")
            yield Sample(sample.need_number("at"), _metrics(sample.inner("values")))
            self._advance()

    def _actions(self) -> Iterator[Action]:
        while self._line is not None and "action" in self._line.values:
            self._line.only("action")
            action = self._line.inner("action")
            action.only("at", "what", "role")
            what, role = action.need_text("what"), action.need_text("role")
            yield Action(action.need_number("at"), what, role)
            self._advance()


def _metrics(values: Fields) -> Mapping[str, float]:
    found = {}
    for name in values.names():
        word = values.values[name]
        is_word = isinstance(word, str) and word in _NOT_NUMBERS
        found[name] = _NOT_NUMBERS[str(word)] if is_word else values.need_number(name)
    return found


def _end(end: Fields) -> End:
    end.only("how", "at", "detail", "left", "unread")
    how = end.member("how", How, How.UNKNOWN)
    left = end.choice("left", LEAVES)
    return End(how, end.number("at"), end.text("detail"), left, end.integer("unread"))


def _given(given: Fields) -> Given:
    given.only("status", "content_type", "path", "request")
    return Given(
        given.integer("status"),
        given.text("content_type"),
        given.text("path"),
        given.object("request"),
    )


def _mask(gap: Fields) -> Mask:
    gap.only("where", "start", "length", "secret")
    where = gap.choice("where", _WHERES)
    if where is None:
        gap.fail("where", "missing")
    start, length = gap.need_integer("start"), gap.need_integer("length")
    return Mask(where, start, length, gap.need_text("secret"))


def _check_masks(capture: Capture, line: Fields) -> None:
    sizes = sizes_of(capture)
    for index, gap in enumerate(capture.masks):
        if not gap.start < gap.start + gap.length <= sizes[gap.where]:
            line.fail(f"masks[{index}]", f"not within the {sizes[gap.where]} bytes of {gap.where}")
