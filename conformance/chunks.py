"""SSE event → typed chunk, per dialect. Absence is a value: nothing has a default.

A field is `ABSENT`, or exactly the JSON that stood there, of whatever type. Pure, never raises.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple, TypeAlias

from conformance import strictjson
from conformance.capture import Json
from conformance.dialects import Dialect, Overlay
from conformance.sse import Event


class Absent(Enum):
    """The type of `ABSENT`."""

    ABSENT = "absent"

    def __bool__(self) -> bool:
        return False


ABSENT: Final = Absent.ABSENT
Maybe: TypeAlias = "Json | Absent"


class Kind(Enum):
    """What one event's data is."""

    CHUNK = "chunk"  # an object that has `choices`, or at least looks like a chunk
    DONE = "done"  # exactly [DONE]
    BAD_DONE = "bad-done"  # a sentinel spelled otherwise: quoted, padded, other case
    ERROR = "error"  # an object with a top-level `error` that is not null
    VENDOR = "vendor"  # a record that the overlay names as the vendor's own
    FOREIGN = "foreign"  # an object that is neither chunk nor error
    SCALAR = "scalar"  # JSON, but not an object
    UNREADABLE = "unreadable"  # not one JSON text
    EMPTY = "empty"  # empty data

    __hash__ = object.__hash__  # members are compared by identity; Enum's own hash is slow


@dataclass(frozen=True, slots=True)
class Tool:
    """One fragment of a tool call."""

    raw: Json
    index: Maybe
    id: Maybe
    type: Maybe
    name: Maybe
    arguments: Maybe


class Choice(NamedTuple):
    """One element of `choices`. `content` is delta.content or, in completions, text."""

    # A named tuple, as `Event` is, and for its reason: there is one to nearly every event.
    raw: Json
    index: Maybe  # type: ignore[assignment]  # a tuple's own `index` finds an element: not needed
    finish_reason: Maybe
    delta: Maybe  # ABSENT in completions
    role: Maybe
    content: Maybe
    reasoning: Maybe  # delta.reasoning_content, else delta.reasoning
    refusal: Maybe
    tools: tuple[Tool, ...]
    logprobs: Maybe

    @property
    def text(self) -> str:
        """The content where it is a string, else empty: for adding up, not for judging."""
        return self.content if isinstance(self.content, str) else ""

    @property
    def carries(self) -> bool:
        """Does it bring text of any kind (content, reasoning, refusal, a tool call)?"""
        if isinstance(self.content, str) and self.content != "":
            return True  # as nearly every one does
        strings = (self.reasoning, self.refusal)
        return bool(self.tools) or any(isinstance(s, str) and s != "" for s in strings)


class Chunk(NamedTuple):
    """One event, read. `value` is ABSENT when its data was not one JSON text.

    `pattern`: the data with its text cut out, where that is known (see `patterns`). Chunks of one
    stream with the same pattern differ in nothing but that text, which is not empty.
    """

    event: Event
    kind: Kind
    value: Maybe = ABSENT
    flaws: tuple[strictjson.Flaw, ...] = ()
    choices: tuple[Choice, ...] = ()
    pattern: str | None = None

    def get(self, key: str) -> Maybe:
        """The top-level member, or ABSENT."""
        value = self.value
        return value.get(key, ABSENT) if isinstance(value, dict) else ABSENT

    @property
    def usage(self) -> Maybe:
        """The top-level `usage`."""
        return self.get("usage")


def member(value: Maybe, key: str) -> Maybe:
    """`value[key]` if value is an object that has it, else ABSENT."""
    return value.get(key, ABSENT) if isinstance(value, dict) else ABSENT


def chunk_from_event(event: Event, dialect: Dialect, overlay: Overlay | None = None) -> Chunk:
    """Read one event's data. Source: the dialect's schema."""
    if event.data == "[DONE]":
        return Chunk(event, Kind.DONE)
    if event.data == "":
        return Chunk(event, Kind.EMPTY)
    is_object = event.data[0] == "{"
    if not is_object and event.data.strip(" \t\n\r\"'`,;").upper() in ("[DONE]", "DONE"):
        return Chunk(event, Kind.BAD_DONE)
    parsed = strictjson.parse(event.data)
    if not parsed.ok or (parsed.flaws and any(f.kind == "several" for f in parsed.flaws)):
        return Chunk(event, Kind.UNREADABLE, ABSENT, parsed.flaws)
    kind = _kind(parsed.value, overlay)
    choices = tuple(choices_from(parsed.value, dialect)) if kind is Kind.CHUNK else ()
    return Chunk(event, kind, parsed.value, parsed.flaws, choices)


def _kind(value: Json, overlay: Overlay | None) -> Kind:
    if not isinstance(value, dict):
        return Kind.SCALAR
    if value.get("error") is not None:
        return Kind.ERROR
    if overlay and _is_vendor(value, overlay):
        return Kind.VENDOR
    if "choices" in value:
        return Kind.CHUNK
    like_a_chunk = sum(key in value for key in ("id", "object", "created", "usage"))
    return Kind.CHUNK if like_a_chunk >= 2 else Kind.FOREIGN


def _is_vendor(value: dict[str, Json], overlay: Overlay) -> bool:
    """One of the vendor's keys, and nothing of a chunk: no choices, or none with text or delta."""
    choices = value.get("choices")
    marked = [value, *choices] if isinstance(choices, list) else [value]
    bare = [c for c in marked[1:] if isinstance(c, dict) and not {"delta", "text"} & set(c)]
    has_key = any(isinstance(m, dict) and k in m for m in marked for k in overlay.vendor_keys)
    return has_key and len(bare) == len(marked) - 1


def choices_from(value: Maybe, dialect: Dialect, part: str = "delta") -> Iterator[Choice]:
    """The choices of a chunk, or with part="message" of a non-streamed chat answer."""
    found = member(value, "choices")
    for raw in found if isinstance(found, list) else ():
        of_raw = _getter(raw)
        delta = of_raw(part, ABSENT) if dialect.nested else ABSENT
        of_delta = _getter(delta)
        reasoning = of_delta("reasoning_content", ABSENT)
        yield Choice(
            raw,
            of_raw("index", ABSENT),
            of_raw("finish_reason", ABSENT),
            delta,
            of_delta("role", ABSENT),
            of_delta("content", ABSENT) if dialect.nested else of_raw("text", ABSENT),
            of_delta("reasoning", ABSENT) if reasoning is ABSENT else reasoning,
            of_delta("refusal", ABSENT),
            tuple(_tools(delta)) if of_delta("tool_calls", ABSENT) else (),
            of_raw("logprobs", ABSENT),
        )


_Getter: TypeAlias = Callable[[str, Absent], Maybe]


def _getter(value: Maybe) -> _Getter:
    """`member` of one value, bound: a chunk is asked for ten of them."""
    return value.get if isinstance(value, dict) else _nothing


def _nothing(key: str, default: Absent) -> Absent:
    return default


def _tools(delta: Maybe) -> Iterator[Tool]:
    found = member(delta, "tool_calls")
    for raw in found if isinstance(found, list) else ():
        function = member(raw, "function")
        yield Tool(
            raw=raw,
            index=member(raw, "index"),
            id=member(raw, "id"),
            type=member(raw, "type"),
            name=member(function, "name"),
            arguments=member(function, "arguments"),
        )
