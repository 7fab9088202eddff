"""Faults of characters: what a streamed text loses between the model and the wire."""

from __future__ import annotations

import html
import re
import unicodedata
from collections.abc import Callable, Iterable
from typing import Any

from reference_server.faults.edit import having, of, text_of, with_text
from reference_server.faults.fault import Fault, Place
from reference_server.seams import Document, Part
from reference_server.wire.sse_writer import FIELD

Text = Callable[[str], str]
_RIGHT_TO_LEFT = re.compile("[\u0590-\u06ff]{2,}")


def _each(change: Text) -> dict[str, Any]:
    """Changes the text of every delta by itself."""
    return {"chunk": of(Part.CONTENT, lambda chunk: (with_text(chunk, change(text_of(chunk))),))}


def _joined(change: Text) -> dict[str, Any]:
    """Changes a choice's whole text: all of it is held and comes with the last content."""

    def chunk(place: Place, document: Document) -> Iterable[Document]:
        if place.body.get("logprobs"):
            return (document,)  # their entries belong to one delta each
        held: dict[int, list[Document]] = place.memory.setdefault("held", {})
        listed = document.get("choices") or [{"index": -1}]
        index = listed[0]["index"]
        if place.part is Part.CONTENT and not _ends(document):
            held.setdefault(index, []).append(document)
            return ()
        waiting = held.pop(index, [])
        if place.part is Part.CONTENT:
            waiting.append(document)
            return (_one(waiting, change, listed[0].get("finish_reason")),)
        return (_one(waiting, change, None), document) if waiting else (document,)

    return {"chunk": chunk}


def _ends(document: Document) -> bool:
    return document["choices"][0].get("finish_reason") is not None


def _one(waiting: list[Document], change: Text, reason: Any) -> Document:
    last = with_text(waiting[-1], change("".join(map(text_of, waiting))))
    choice = having(finish_reason=reason)(last["choices"][0])
    return {**last, "choices": [choice]}


def _without(pattern: str, instead: str = "") -> Text:
    return lambda text: re.sub(pattern, instead, text)


def _latin(text: str) -> str:
    return "".join(c if ord(c) < 0x10000 else c.encode().decode("latin-1") for c in text)


def _combining_lost(text: str) -> str:
    return "".join(c for c in text if not unicodedata.combining(c) or ord(c) < 0x0900)


def _nfc(text: str) -> str:
    return unicodedata.normalize("NFC", text)


def _after_sentinel(text: str) -> str:
    """A reader of its own upstream took the text for the end of the stream."""
    head, mark, _ = text.partition(FIELD.decode() + "[DONE]")
    return head + mark


FAULTS = (
    Fault("utf8.characters", "those beyond U+FFFF are lost", **_each(_without("[^\0-\uffff]"))),
    Fault("utf8.characters", "they come as Latin-1", "latin", **_each(_latin)),
    Fault("utf8.characters", "zero-width joiners are lost", "joiner", **_each(_without("\u200d"))),
    Fault("utf8.characters", "marks of Indic scripts are lost", "marks", **_each(_combining_lost)),
    Fault(
        "utf8.characters", "right-to-left text is turned", "turned",
        **_joined(lambda text: _RIGHT_TO_LEFT.sub(lambda m: m[0][::-1], text)),
    ),
    Fault("utf8.characters", "wide characters are question marks", "question",
          **_each(_without("[\u3000-\uffff]", "?"))),
    Fault("text.normal-form", "text is composed", **_joined(_nfc)),
    Fault("text.normal-form", "combining accents are lost", "accents",
          **_each(_without("[\u0300-\u036f]"))),
    Fault("text.separators", "U+2028 and U+2029 are line feeds",
          **_each(_without("[\u2028\u2029]", "\n"))),
    Fault("text.separators", "U+0085 is lost", "nel", **_each(_without("\u0085"))),
    Fault("text.separators", "U+FEFF is lost", "bom", **_each(_without("\ufeff"))),
    Fault("text.separators", "U+00A0 is a space", "space", **_each(_without("\u00a0", " "))),
    Fault("text.escapes", "markup is escaped", **_each(html.escape)),
    Fault("text.escapes", "only & is escaped", "ampersand", **_each(_without("&", "&amp;"))),
    Fault("text.escapes", "backslashes come twice", "twice",
          **_each(lambda text: text.replace("\\", "\\\\"))),
    Fault("text.escapes", "slashes are escaped", "slash",
          **_each(lambda text: text.replace("/", "\\/"))),
    Fault("text.sse-lookalike", "a sentinel in the text ends it", **_joined(_after_sentinel)),
    Fault("text.sse-lookalike", "event fields are lost", "event",
          **_joined(_without("event: x"))),
    Fault("text.sse-lookalike", "data fields lose their name", "data",
          **_joined(_without(FIELD.decode()))),
    Fault("text.whitespace", "blank deltas are lost", **_each(lambda t: t if t.strip() else "")),
    Fault("text.whitespace", "tabs are spaces", "tab", **_each(_without("\t", "    "))),
    Fault("text.whitespace", "runs of spaces are one", "run", **_joined(_without(" {2,}", " "))),
    Fault("text.whitespace", "blank lines are lost", "lines", **_joined(_without("\n\n+", "\n"))),
)  # fmt: skip
