"""Chunks of one stream that are alike: byte for byte the same but for one text.

A server writes nearly every event of a stream from one template. What a chunk says is then known
from an earlier one of the same template, its text apart, and need not be parsed and taken apart
again. The obvious way is the reference, and whatever does not fit goes it.

Why that is the same: in RFC 8259 a string may stand wherever another one stands, and changes
nothing of how the rest is read. So, if the bytes before and after a string are those of an event
that was read without a flaw, and that string was the text, the event says the same with this text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import islice
from json.decoder import scanstring  # type: ignore[attr-defined]  # what the module itself uses

from conformance.capture import Json
from conformance.chunks import Choice, Chunk, Kind, Maybe, chunk_from_event
from conformance.dialects import Dialect, Overlay
from conformance.sse import Event
from conformance.strictjson import LONE_SURROGATE

# The member that holds the text of a choice or delta, and the field of `Choice` that it becomes.
_TEXTS = {
    "content": "content",
    "text": "content",
    "reasoning_content": "reasoning",
    "reasoning": "reasoning",
}
_OPENING = {key: re.compile(rf'"{key}"[ \t\n\r]*:[ \t\n\r]*"') for key in _TEXTS}
_AT_ONCE = 4  # patterns that an event is held against
_IN_VAIN = 8  # patterns that are made though few events fit them
_WORTH = 16  # events that have to fit a pattern before one more is made
_new = tuple.__new__


class Pattern:
    """One template, made of a chunk with one choice.

    `key` is the name of its text. `head` is the data up to the text's first character, `tail` what
    follows its closing quote.
    """

    def __init__(self, first: Chunk, key: str, head: str, tail: str) -> None:
        self._key, self._head, self._start, self._tail = key, head, len(head), tail
        self.name = f"{head}\0{tail}"  # a NUL stands nowhere else in a JSON text
        choice, at = first.choices[0], Choice._fields.index(_TEXTS[key])
        self._value, self._raw = _object(first.value), _object(choice.raw)
        self._delta = choice.delta
        self._index, self._finish = choice.index, choice.finish_reason
        self._before, self._after = choice[4:at], choice[at + 1 :]

    def chunk(self, event: Event) -> Chunk | None:
        """What the event says; None: it does not fit."""
        data, start = event.data, self._start
        if not data.startswith(self._head):
            return None
        try:
            text, end = scanstring(data, start)
        except ValueError:
            return None
        if not text or data[end:] != self._tail:
            return None
        if len(text) != end - start - 1 and LONE_SURROGATE.search(text):
            return None  # it has escapes, and half a pair of them is a flaw
        return self._saying(text, event)

    def _saying(self, text: str, event: Event) -> Chunk:
        """The first chunk with another text: new are only the objects that the text is within."""
        delta = self._delta
        if isinstance(delta, dict):
            delta = {**delta, self._key: text}
            raw = {**self._raw, "delta": delta}
        else:
            raw = {**self._raw, self._key: text}
        fields = (raw, self._index, self._finish, delta, *self._before, text, *self._after)
        value = {**self._value, "choices": [raw]}
        return _new(Chunk, (event, Kind.CHUNK, value, (), (_new(Choice, fields),), self.name))


def _object(value: Maybe) -> dict[str, Json]:
    assert isinstance(value, dict)
    return value


def chunks_one_by_one(
    events: Iterable[Event], dialect: Dialect, overlay: Overlay | None = None
) -> Iterator[Chunk]:
    """The obvious way."""
    return (chunk_from_event(event, dialect, overlay) for event in events)


def chunks_from(
    events: Iterable[Event], dialect: Dialect, overlay: Overlay | None = None
) -> Iterator[Chunk]:
    """The same in less time, each with its pattern."""
    patterns: list[Pattern] = []
    credit = _IN_VAIN * _WORTH
    for event in events:
        for pattern in patterns:
            chunk = pattern.chunk(event)
            if chunk is not None:
                credit += 1
                break
        else:
            chunk = chunk_from_event(event, dialect, overlay)
            made = pattern_of(chunk, dialect, overlay) if credit > 0 else None
            if made is not None:
                credit -= _WORTH
                patterns = [made, *patterns[: _AT_ONCE - 1]]
                chunk = chunk._replace(pattern=made.name)
        yield chunk


def pattern_of(chunk: Chunk, dialect: Dialect, overlay: Overlay | None) -> Pattern | None:
    """Its pattern, if it has one choice that brings a text and no calls."""
    if chunk.kind is not Kind.CHUNK or chunk.flaws or len(chunk.choices) != 1:
        return None
    choice = chunk.choices[0]
    key = _key_of(choice, dialect)
    if key is None or choice.tools:
        return None
    event, text = chunk.event, getattr(choice, _TEXTS[key])
    other = "b" if text == "a" else "a"
    for head, tail in islice(_around(event.data, key, text), _AT_ONCE):
        made = Pattern(chunk, key, head, tail)
        # Is it this string that becomes the text? The same letters may stand in another place.
        tried = event._replace(data=f'{head}{other}"{tail}')
        said = made.chunk(tried)
        if said and chunk_from_event(tried, dialect, overlay) == said._replace(pattern=None):
            return made
    return None


def _key_of(choice: Choice, dialect: Dialect) -> str | None:
    """The member that is the choice's text."""
    holder = choice.delta if dialect.nested else choice.raw
    if not isinstance(holder, dict):
        return None
    texts = (key for key in _TEXTS if isinstance(holder.get(key), str) and holder[key])
    key = next(texts, None)
    return key if key and getattr(choice, _TEXTS[key]) == holder[key] else None


def _around(data: str, key: str, text: str) -> Iterator[tuple[str, str]]:
    """What stands before and after the text, wherever it may stand."""
    for found in _OPENING[key].finditer(data):
        try:
            said, end = scanstring(data, found.end())
        except ValueError:
            continue
        if said == text:
            yield data[: found.end()], data[end:]
