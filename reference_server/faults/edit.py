"""Editing chunk objects: the verbs that shape faults are made of. Nothing is changed in place."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from reference_server.faults.fault import Place
from reference_server.seams import Document, Part

Chunk = Callable[[Place, Document], Iterable[Document]]
Edit = Callable[[Document], Document]


def every(change: Edit) -> Chunk:
    """Changes every chunk."""
    return lambda place, chunk: (change(chunk),)


def of(part: Part, change: Callable[[Document], Iterable[Document]]) -> Chunk:
    """Changes the chunks of one kind."""
    return lambda place, chunk: change(chunk) if place.part is part else (chunk,)


def nth(part: Part, count: int, change: Callable[[Document], Iterable[Document]]) -> Chunk:
    """Changes one chunk of a kind."""

    def chunk(place: Place, document: Document) -> Iterable[Document]:
        hit = place.part is part and place.nth == count
        return change(document) if hit else (document,)

    return chunk


def having(**members: Any) -> Edit:
    """More members, or others."""
    return lambda document: {**document, **members}


def lacking(name: str) -> Edit:
    return lambda document: {key: value for key, value in document.items() if key != name}


def mapped(name: str, change: Callable[[Any], Any]) -> Edit:
    """Another value for a member that is there."""
    return lambda document: (
        {**document, name: change(document[name])} if name in document else document
    )


def choices(change: Edit) -> Edit:
    """Changes each choice of a chunk."""
    return mapped("choices", lambda listed: [change(choice) for choice in listed])


def deltas(change: Edit) -> Edit:
    """Changes each delta of a chunk; completions have none."""
    return choices(mapped("delta", change))


def text_of(chunk: Document) -> str:
    """The text that a chunk's first choice brings, in either dialect."""
    choice = chunk["choices"][0]
    return str(choice["delta"].get("content") or "") if "delta" in choice else str(choice["text"])


def with_text(chunk: Document, text: Any) -> Document:
    """The same chunk with another text."""

    def change(choice: Document) -> Document:
        if "delta" in choice:
            return {**choice, "delta": {"content": text}}
        return {**choice, "text": text}

    return choices(change)(chunk)


def ended(chunk: Document, reason: Any) -> Document:
    """The same chunk with this finish reason."""
    return choices(having(finish_reason=reason))(chunk)


def bare(chunk: Document) -> Document:
    """A chunk of the same choice that brings nothing yet and ends nothing."""
    return ended(choices(having(logprobs=None))(with_text(chunk, "")), None)
