"""Lines of a hostile file → JSON objects with their place, each value checked when it is taken."""

from __future__ import annotations

import base64
import binascii
import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import BinaryIO, Final, NoReturn, TypeVar

from conformance.capture import Json
from conformance.errors import RecordError

MOST_BYTES: Final = 64 << 20  # a file
MOST_LINE: Final = 8 << 20  # one line: as text and parsed it may take four bytes a character, twice
MOST_LINES: Final = 400_000  # reads, mostly; each takes some 130 bytes of memory
MOST_VALUES: Final = 400_000  # JSON values outside the transcript; each takes up to 230 bytes
MOST_DEPTH: Final = 100

_OPENERS: Final = (b"{", b"[", b",", b":")
LONE: Final = re.compile("[\ud800-\udfff]")  # a surrogate without its partner
# Matches from every quote on, also where the string never ends, or searching would be quadratic.
_STRING: Final = re.compile(rb'"(?:[^"\\]|\\.?)*+(?:"|\Z)', re.DOTALL)
_Member = TypeVar("_Member", bound=Enum)


def read_lines(file: BinaryIO, name: str) -> Iterator[tuple[int, bytes]]:
    """Number and text of each line, the ending taken off; never holds more than one line."""
    total, number = 0, 0
    while line := file.readline(MOST_LINE + 1):
        number += 1
        total += len(line)
        if len(line) > MOST_LINE:
            raise RecordError(f"{name}:{number}: line: longer than {MOST_LINE >> 20} MiB")
        if total > MOST_BYTES:
            raise RecordError(f"{name}: larger than {MOST_BYTES >> 20} MiB, which is all we accept")
        if number > MOST_LINES:
            raise RecordError(f"{name}: more than {MOST_LINES} lines")
        yield number, line.removesuffix(b"\n")


def count_values(line: bytes) -> int:
    """An upper bound of the JSON values on a line, found without parsing it."""
    if len(line) > 10_000:  # short lines may as well count what stands inside strings
        line = _STRING.sub(b"", line)
    return sum(line.count(opener) for opener in _OPENERS)


def parse(line: bytes, where: str) -> Fields:
    """The object on a line. Raises RecordError for all that RFC 8259 calls unpredictable, too."""
    try:
        value = _DECODER.decode(line.decode("utf-8"))
    except _Flaw as flaw:
        raise RecordError(f"{where}: {flaw}") from None
    except RecursionError:
        raise RecordError(f"{where}: line: nested too deeply") from None
    except UnicodeDecodeError as error:
        raise RecordError(f"{where}: line: not UTF-8 at byte {error.start}") from None
    except json.JSONDecodeError as error:
        raise RecordError(f"{where}: line: not JSON: {error.msg} at {error.pos}") from None
    except ValueError:
        raise RecordError(f"{where}: line: an integer of thousands of digits") from None
    if not isinstance(value, dict):
        raise RecordError(f"{where}: line: expected a JSON object, found {_kind(value)}")
    if is_deep(value):
        raise RecordError(f"{where}: line: nested more than {MOST_DEPTH} deep")
    return Fields(value, where)


class _Flaw(Exception):
    """Field and problem of something that Python's reader would let pass."""


def _members(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    members: dict[str, Json] = {}
    for name, value in pairs:
        if name in members:
            raise _Flaw(f"{show(name)}: given twice")
        members[name] = value
    return members


def _constant(name: str) -> NoReturn:
    raise _Flaw(f"line: {name} is no JSON")


def _float(digits: str) -> float:
    value = float(digits)
    if math.isinf(value):
        raise _Flaw(f"line: {show(digits)} is too large a number")
    return value


_DECODER: Final = json.JSONDecoder(
    object_pairs_hook=_members, parse_constant=_constant, parse_float=_float
)


def is_deep(value: Json) -> bool:
    """Nested more than `MOST_DEPTH` deep?"""
    level = [value]
    for _ in range(MOST_DEPTH):
        below: list[Json] = []
        for item in level:
            if isinstance(item, dict):
                below += item.values()
            elif isinstance(item, list):
                below += item
        if not below:
            return False
        level = below
    return True


def show(text: str) -> str:
    """A name out of the file, fit for one line of a terminal."""
    shown = ascii(text)[1:-1]
    return shown if len(shown) <= 40 else shown[:37] + "..."


def _kind(value: Json) -> str:
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    names = {int: "a number", float: "a number", str: "text", list: "an array", dict: "an object"}
    return names[type(value)]


@dataclass(frozen=True, slots=True)
class Fields:
    """A JSON object of the file. Getters give None for what is absent; `null` is a wrong type."""

    values: dict[str, Json]
    where: str  # "file:3"
    path: str = ""

    def fail(self, field: str, problem: str) -> NoReturn:
        raise RecordError(f"{self.where}: {self.path}{field}: {problem}")

    def only(self, *known: str) -> None:
        """Refuse what this version does not know: it might change what the rest means."""
        for field in self.values:
            if field not in known:
                self.fail(show(field), "not known here")

    def names(self) -> list[str]:
        """The members of an object whose names are data."""
        for name in self.values:
            if LONE.search(name):
                self.fail(show(name), "holds a lone surrogate")
        return list(self.values)

    def text(self, field: str) -> str | None:
        if field not in self.values:
            return None
        value = self.values[field]
        if not isinstance(value, str):
            self.fail(field, f"expected text, found {_kind(value)}")
        if LONE.search(value):
            self.fail(field, "holds a lone surrogate")
        return value

    def need_text(self, field: str) -> str:
        value = self.text(field)
        return self._missing(field) if value is None else value

    def choice(self, field: str, members: tuple[str, ...]) -> str | None:
        value = self.text(field)
        if value is not None and value not in members:
            self.fail(field, f"expected one of {', '.join(members)}, found {show(value)}")
        return value

    def member(self, field: str, kind: type[_Member], default: _Member) -> _Member:
        value = self.choice(field, tuple(str(member.value) for member in kind))
        return default if value is None else kind(value)

    def integer(self, field: str, least: int | None = 0) -> int | None:
        if field not in self.values:
            return None
        value = self.values[field]
        if isinstance(value, bool) or not isinstance(value, int):
            self.fail(field, f"expected an integer, found {_kind(value)}")
        if least is not None and value < least:
            self.fail(field, f"expected at least {least}")
        return value

    def need_integer(self, field: str) -> int:
        value = self.integer(field)
        return self._missing(field) if value is None else value

    def number(self, field: str) -> float | None:
        if field not in self.values:
            return None
        value = self.values[field]
        if isinstance(value, bool) or not isinstance(value, int | float):
            self.fail(field, f"expected a number, found {_kind(value)}")
        if not _is_finite(value):
            self.fail(field, "too large a number")
        return value

    def need_number(self, field: str) -> float:
        value = self.number(field)
        return self._missing(field) if value is None else value

    def flag(self, field: str) -> bool | None:
        if field not in self.values:
            return None
        value = self.values[field]
        if not isinstance(value, bool):
            self.fail(field, f"expected true or false, found {_kind(value)}")
        return value

    def data(self, field: str) -> bytes:
        """Bytes: text that is them as UTF-8, or {"base64": …}."""
        value = self.values[field]
        if isinstance(value, dict):
            inner = self.inner(field)
            inner.only("base64")
            return inner._base64("base64")
        if not isinstance(value, str):
            self.fail(field, f'expected text or {{"base64": ...}}, found {_kind(value)}')
        return self.need_text(field).encode()

    def _base64(self, field: str) -> bytes:
        text = self.need_text(field)
        try:
            data = base64.b64decode(text.encode("ascii", "replace"), validate=True)
        except binascii.Error as error:
            self.fail(field, f"bad base64: {str(error)[:60]}")
        if base64.b64encode(data).decode() != text:
            self.fail(field, "bad base64: stray bits or characters")
        return data

    def inner(self, field: str) -> Fields:
        value = self.object(field)
        if value is None:
            self._missing(field)
        return Fields(value, self.where, f"{self.path}{field}.")

    def object(self, field: str) -> dict[str, Json] | None:
        if field not in self.values:
            return None
        value = self.values[field]
        if not isinstance(value, dict):
            self.fail(field, f"expected an object, found {_kind(value)}")
        return value

    def objects(self, field: str) -> list[Fields]:
        value = self.values.get(field, [])
        if not isinstance(value, list):
            self.fail(field, f"expected an array, found {_kind(value)}")
        found = []
        for index, item in enumerate(value):
            path = f"{field}[{index}]"
            if not isinstance(item, dict):
                self.fail(path, f"expected an object, found {_kind(item)}")
            found.append(Fields(item, self.where, f"{self.path}{path}."))
        return found

    def _missing(self, field: str) -> NoReturn:
        self.fail(field, "missing")


def _is_finite(value: float) -> bool:
    try:
        return math.isfinite(float(value))
    except OverflowError:
        return False
