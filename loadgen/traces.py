"""Traces: what was asked when, from a file in one of three forms. Pure but for reading the file.

JSON lines of ours, `{"at": 1.5, "input_tokens": 100, "output_tokens": 20}`: `at` is seconds from
the start. Mooncake's JSON lines: `timestamp` in milliseconds, `input_length`, `output_length`.
Either may have `hash_ids`, a number for each BLOCK tokens of the prompt: where two rows begin with
the same, so do their prompts. Azure's CSV: `TIMESTAMP,ContextTokens,GeneratedTokens`. The last two
start at their first request.
"""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import chain
from pathlib import Path

from conformance.errors import SpecError, UsageError
from loadgen.arrivals import MOST_SECONDS

MOST_LINES = 2_000_000
LINE_AT_MOST = 1 << 20  # characters; Mooncake's lists of hashes are long
MOST_TOKENS = 10_000_000
BLOCK = 512  # tokens
MOST_BLOCKS = 4_000_000  # of a file


@dataclass(frozen=True, slots=True)
class Arrival:
    """One request of a trace. `at`: seconds from the start; tokens None: not said. `blocks`: names
    of the prompt's blocks of BLOCK tokens, the last may be shorter; empty: it shares nothing."""

    at: float
    input_tokens: int | None = None
    output_tokens: int | None = None
    blocks: tuple[int, ...] = ()


def load(path: Path) -> tuple[Arrival, ...]:
    """The file's requests in order of time. Raises SpecError and UsageError."""
    try:
        with path.open(encoding="utf-8-sig", errors="replace", newline="") as file:
            return parse(_lines(file, str(path)), str(path))
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}") from None


def _lines(file: Iterable[str], name: str) -> Iterator[str]:
    for number, line in enumerate(file, 1):
        if number > MOST_LINES or len(line) > LINE_AT_MOST:
            most = f"at most {MOST_LINES} lines of {LINE_AT_MOST} characters"
            raise SpecError(name, number, "line", f"expected {most}")
        yield line


def parse(lines: Iterable[str], name: str) -> tuple[Arrival, ...]:
    """The same from lines; `name` is what errors call the file."""
    numbered = ((n, line) for n, line in enumerate(lines, 1) if line.strip())
    first = next(numbered, None)
    if first is None:
        raise UsageError(f"{name}: expected at least one request, the trace is empty")
    if first[1].lstrip().startswith("{"):
        found = list(_json_lines(first, numbered, name))
    else:
        found = _from_first(list(_azure(first, numbered, name)))
    if not found:
        raise UsageError(f"{name}: expected at least one request, the trace is empty")
    return tuple(sorted(found, key=lambda arrival: arrival.at))


def _from_first(found: Sequence[Arrival]) -> list[Arrival]:
    start = min((arrival.at for arrival in found), default=0.0)
    return [replace(arrival, at=arrival.at - start) for arrival in found]


def _json_lines(
    first: tuple[int, str], rest: Iterator[tuple[int, str]], name: str
) -> Iterable[Arrival]:
    head = _Line(name, first[0], _object(*first, name))
    lines = chain(
        [head], (_Line(name, number, _object(number, line, name)) for number, line in rest)
    )
    form = _ours if "at" in head.values else _mooncake
    found, blocks = list[Arrival](), 0
    for line in lines:
        found.append(form(line))
        blocks += len(found[-1].blocks)
        if blocks > MOST_BLOCKS:
            raise line.refuse("hash_ids", f"expected at most {MOST_BLOCKS} in all lines")
    return found if form is _ours else _from_first(found)


def _object(number: int, line: str, name: str) -> Mapping[str, object]:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise SpecError(name, number, "line", "expected one JSON object")
    return value


@dataclass(frozen=True, slots=True)
class _Line:
    """One record of the file and where it stands."""

    file: str
    number: int
    values: Mapping[str, object]

    def refuse(self, key: str, expected: str) -> SpecError:
        return SpecError(self.file, self.number, key, expected)

    def seconds(self, key: str, unit: float = 1.0) -> float:
        value = self.values.get(key)
        good = type(value) in (int, float) and math.isfinite(value)  # type: ignore[arg-type]
        seconds = float(value) * unit if good else -1.0  # type: ignore[arg-type]
        if not 0 <= seconds <= MOST_SECONDS:
            raise self.refuse(key, f"expected a time, got {value!r:.40}")
        return seconds

    def tokens(self, key: str, least: int) -> int | None:
        value = self.values.get(key)
        if value is None:
            return None
        if type(value) is not int or not least <= value <= MOST_TOKENS:
            raise self.refuse(key, f"expected tokens, got {value!r:.40}")
        return value

    def blocks(self, length: str, tokens: int | None) -> tuple[int, ...]:
        """One number for each BLOCK of so many tokens, or none at all. `length`: says how many."""
        key = "hash_ids"
        values = self.values.get(key)
        if values is None:
            return ()
        if not isinstance(values, list) or not all(type(each) is int for each in values):
            raise self.refuse(key, f"expected a list of whole numbers, got {values!r:.40}")
        if tokens is None:
            raise self.refuse(key, f"expected {length} beside it")
        if len(values) != -(-tokens // BLOCK):
            wanted = f"expected {-(-tokens // BLOCK)}, one for each {BLOCK} tokens of {length}"
            raise self.refuse(key, f"{wanted}, got {len(values)}")
        return tuple(values)


def _ours(line: _Line) -> Arrival:
    tokens = line.tokens("input_tokens", 1)
    blocks = line.blocks("input_tokens", tokens)
    return Arrival(line.seconds("at"), tokens, line.tokens("output_tokens", 1), blocks)


def _mooncake(line: _Line) -> Arrival:
    if "timestamp" not in line.values:
        raise line.refuse("at", "expected this member, or timestamp")
    at = line.seconds("timestamp", unit=1e-3)
    tokens = line.tokens("input_length", 0)
    return Arrival(at, tokens, line.tokens("output_length", 0), line.blocks("input_length", tokens))


_AZURE = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")


def _azure(first: tuple[int, str], rest: Iterator[tuple[int, str]], name: str) -> Iterator[Arrival]:
    header = [cell.strip() for cell in next(csv.reader([first[1]]))]
    if not set(_AZURE) <= set(header):
        expected = f"expected JSON lines, or CSV with {', '.join(_AZURE)}"
        raise SpecError(name, first[0], "header", expected)
    for number, line in rest:
        cells = next(csv.reader([line]), [])
        row = dict(zip(header, (cell.strip() for cell in cells), strict=False))
        yield _azure_row(name, number, row)


def _azure_row(name: str, number: int, row: Mapping[str, str]) -> Arrival:
    values: dict[str, object] = {}
    readers: tuple[Callable[[str], object], ...] = (_timestamp, int, int)
    for key, reader in zip(_AZURE, readers, strict=True):
        try:
            values[key] = reader(row.get(key, ""))
        except ValueError:
            raise SpecError(name, number, key, f"got {row.get(key, '')[:40]!r}") from None
    line = _Line(name, number, values)
    at = values["TIMESTAMP"]
    assert isinstance(at, float)
    return Arrival(at, line.tokens(_AZURE[1], 0), line.tokens(_AZURE[2], 0))


def _timestamp(text: str) -> float:
    """Seconds since some day. Azure writes seven decimals, `datetime` reads six."""
    whole, dot, rest = text.partition(".")
    digits = rest[: next((i for i, c in enumerate(rest) if not c.isdigit()), len(rest))]
    zone = rest[len(digits) :]
    moment = datetime.fromisoformat(whole + zone)
    fraction = float(f"0.{digits}") if dot and digits else 0.0
    start = datetime(2000, 1, 1, tzinfo=moment.tzinfo)
    return (moment - start).total_seconds() + fraction
