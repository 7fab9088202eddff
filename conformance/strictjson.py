"""JSON texts read strictly (RFC 8259) and reported tolerantly: a value if any, and every flaw.

Python's reader accepts NaN, repeated keys, lone surrogates and, asked to, raw control characters;
each of these loses data in some client, so each is a flaw of its own here. Pure, never raises.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from conformance.capture import Json

# A surrogate left in a decoded string had no partner inside its own string (RFC 8259 section 8.2:
# "a JSON text … can include … unpaired surrogates; … behavior … is unpredictable").
LONE_SURROGATE = re.compile("[\ud800-\udfff]")
_SPACE = " \t\n\r"


@dataclass(frozen=True, slots=True)
class Flaw:
    """One deviation. `at` counts characters in the text, where known.

    kinds: invalid, several (further JSON texts or a sentinel after the value), nonfinite,
    duplicate-key, control-character, lone-surrogate.
    """

    kind: str
    detail: str
    at: int | None = None


@dataclass(frozen=True, slots=True)
class Parsed:
    """`ok` says whether a value could be read; `value` is None both for `null` and for nothing."""

    ok: bool
    value: Json = None
    flaws: tuple[Flaw, ...] = ()


def parse(text: str) -> Parsed:
    """The value of one JSON text and its flaws. Source: RFC 8259 sections 2 to 8."""
    flaws: list[Flaw] = []
    start = len(text) - len(text.lstrip(_SPACE))
    try:
        value, end = _scan(text, start, flaws)
    except json.JSONDecodeError as error:
        return Parsed(False, None, (*flaws, Flaw("invalid", error.msg, error.pos)))
    except RecursionError:
        return Parsed(False, None, (Flaw("invalid", "nested too deeply to read"),))
    except ValueError as error:  # an integer longer than Python converts
        return Parsed(False, None, (Flaw("invalid", str(error).split(";")[0]),))
    flaws += _after(text, end)
    flaws += _surrogates(text, value)
    return Parsed(not any(f.kind == "invalid" for f in flaws), value, tuple(flaws))


def _scan(text: str, start: int, flaws: list[Flaw]) -> tuple[Json, int]:
    """With a decoder that notes flaws, which takes longer to make than to use, only where one is
    needed: the usual text has none."""
    try:
        return _flawless(text, start)
    except (ValueError, RecursionError):
        return _scan_with_flaws(text, start, flaws)


def _scan_with_flaws(text: str, start: int, flaws: list[Flaw]) -> tuple[Json, int]:
    try:
        return _decoder(flaws, strict=True)(text, start)
    except json.JSONDecodeError as error:
        if not error.msg.startswith("Invalid control character"):
            raise
        flaws[:] = [Flaw("control-character", "unescaped control character", error.pos)]
        return _decoder(flaws, strict=False)(text, start)


def _decoder(flaws: list[Flaw], *, strict: bool) -> Callable[[str, int], tuple[Json, int]]:
    return json.JSONDecoder(
        strict=strict,
        parse_constant=partial(_constant, flaws),
        object_pairs_hook=partial(_object, flaws),
    ).raw_decode


def _refused(word: str) -> float:
    raise ValueError(word)


def _plain(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise ValueError("a name comes again")
    return value


_flawless = json.JSONDecoder(
    strict=True, parse_constant=_refused, object_pairs_hook=_plain
).raw_decode


def _constant(flaws: list[Flaw], word: str) -> float:
    # Section 6: "Numeric values that cannot be represented in the grammar … are not permitted."
    flaws.append(Flaw("nonfinite", word))
    return float(word.lower().replace("infinity", "inf"))


def _object(flaws: list[Flaw], pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    # Section 4: "The names within an object SHOULD be unique."
    value = dict(pairs)
    if len(value) != len(pairs):
        flaws.append(Flaw("duplicate-key", _first_repeated(pairs)))
    return value


def _first_repeated(pairs: list[tuple[str, Json]]) -> str:
    """The first name in the object that comes again. Linear: objects may have a million names."""
    counts = Counter(name for name, _ in pairs)
    return next(name for name, _ in pairs if counts[name] > 1)


def _after(text: str, end: int) -> list[Flaw]:
    rest = text[end:].lstrip(_SPACE)
    if not rest:
        return []
    at = len(text) - len(rest)
    if rest.startswith("[DONE]") or (rest[0] in "{" and _starts_json(rest)):
        return [Flaw("several", "a second text stands in the same event", at)]
    return [Flaw("invalid", "something follows the value", at)]


def _starts_json(rest: str) -> bool:
    try:
        json.JSONDecoder(strict=False).raw_decode(rest)
    except (ValueError, RecursionError):
        return False
    return True


def _surrogates(text: str, value: Json) -> list[Flaw]:
    if "\\ud" not in text and "\\uD" not in text:  # only an escape can bring one into a string
        return []
    where = _lone(value)
    return [] if where is None else [Flaw("lone-surrogate", f"U+{ord(where):04X}")]


def _lone(value: Json) -> str | None:
    stack: list[Json] = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, str):
            if found := LONE_SURROGATE.search(item):
                return found[0]
        elif isinstance(item, list):
            stack += item
        elif isinstance(item, dict):
            stack += [*item, *item.values()]
    return None


def strings_in(value: Json, *, keys: bool = False) -> Iterator[str]:
    """Every string in it, however deep; names of members with `keys` alone."""
    stack: list[Json] = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, str):
            yield item
        elif isinstance(item, list):
            stack += item
        elif isinstance(item, dict):
            stack += item.values()
            stack += item if keys else ()
