"""Faults of the chunk object: its envelope, its choices, its deltas; and of the plain document."""

from __future__ import annotations

from collections.abc import Iterable

from reference_server.faults.edit import (
    bare,
    choices,
    deltas,
    every,
    having,
    lacking,
    mapped,
    nth,
    of,
    with_text,
)
from reference_server.faults.fault import Fault, Place
from reference_server.seams import Document, Part


def _changing(name: str) -> Fault:
    def chunk(place: Place, document: Document) -> Iterable[Document]:
        value = document[name]
        yield {
            **document,
            name: f"{value}-{place.n}" if isinstance(value, str) else value + place.n,
        }

    return Fault(f"chunk.{name}-changes", f"each chunk has another {name}", chunk=chunk)


def _key_type(place: Place, document: Document) -> Iterable[Document]:
    yield {**document, "note": "a" if place.n % 2 else 1}


def _beyond(place: Place, document: Document) -> Iterable[Document]:
    yield choices(mapped("index", lambda index: index + place.choices))(document)


def _without_last(place: Place, document: Document) -> Iterable[Document]:
    listed = document["choices"]
    if place.choices > 1 and listed and listed[0]["index"] == place.choices - 1:
        return ()
    return (document,)


def _reversed(place: Place, document: Document) -> Iterable[Document]:
    yield choices(mapped("index", lambda index: place.choices - 1 - index))(document)


def _model_changes(place: Place, document: Document) -> Iterable[Document]:
    yield {**document, "model": f"{document['model']}-{place.n % 2}"}


def _with_role(document: Document) -> Iterable[Document]:
    yield deltas(lambda delta: {"role": "assistant", **delta})(document)


def _flood(document: Document) -> Iterable[Document]:
    return (document, *[bare(document)] * 3)


def _reasoned(document: Document) -> Iterable[Document]:
    yield deltas(having(reasoning_content=""))(document)


MESSAGE = {"role": "assistant", "content": "hello"}
TIMINGS = {"predicted_ms": 12.5}

ENVELOPE = (
    Fault("chunk.missing-key", "chunks have no `created`", chunk=every(lacking("created"))),
    Fault("chunk.missing-key", "chunks have no `id`", "id", chunk=every(lacking("id"))),
    Fault("chunk.missing-key", "chunks have no `object`", "object", chunk=every(lacking("object"))),
    Fault("chunk.missing-key", "chunks have no `model`", "model", chunk=every(lacking("model"))),
    Fault(
        "chunk.no-choices",
        "`choices` of a chunk is null",
        chunk=nth(Part.CONTENT, 1, lambda chunk: (having(choices=None)(chunk), chunk)),
    ),
    Fault(
        "chunk.no-choices",
        "a chunk has no `choices`",
        "missing",
        chunk=nth(Part.CONTENT, 1, lambda chunk: (lacking("choices")(chunk), chunk)),
    ),
    Fault(
        "chunk.empty-choices",
        "a chunk with an empty `choices` comes first",
        chunk=lambda place, chunk: (having(choices=[])(chunk), chunk) if place.n == 0 else (chunk,),
    ),
    Fault("chunk.object", "`object` is another", chunk=every(having(object="chat.completion"))),
    _changing("id"),
    Fault("chunk.id-empty", "`id` is empty", chunk=every(having(id=""))),
    Fault("chunk.created", "`created` is a string", chunk=every(mapped("created", str))),
    Fault(
        "chunk.created",
        "`created` has a fraction",
        "fraction",
        chunk=every(mapped("created", lambda value: value + 0.25)),
    ),
    Fault(
        "chunk.created-unit",
        "`created` is in milliseconds",
        chunk=every(mapped("created", lambda value: value * 1000)),
    ),
    _changing("created"),
    Fault("chunk.model", "`model` is empty", chunk=every(having(model=""))),
    Fault("chunk.model", "`model` changes from chunk to chunk", "changes", chunk=_model_changes),
    Fault("chunk.key-type", "a member is now a number, now a string", chunk=_key_type),
    Fault("chunk.extras", "chunks carry timings", chunk=every(having(timings=TIMINGS))),
    Fault(
        "chunk.fingerprint",
        "`system_fingerprint` is a number",
        chunk=every(having(system_fingerprint=17)),
    ),
    Fault(
        "chunk.fingerprint",
        "`service_tier` is an object",
        "tier",
        chunk=every(having(service_tier={"name": "default"})),
    ),
)

CHOICES = (
    Fault(
        "chunk.choice-shape",
        "the finishing choice has neither delta nor text",
        chunk=of(
            Part.FINISH,
            lambda chunk: (choices(lambda c: lacking("text")(lacking("delta")(c)))(chunk),),
        ),
    ),
    Fault(
        "chunk.choice-shape",
        "`index` is a string",
        "index",
        chunk=every(choices(mapped("index", str))),
    ),
    Fault(
        "chunk.message-in-stream",
        "a streamed choice has a message",
        chunk=of(Part.FINISH, lambda chunk: (choices(having(message=MESSAGE))(chunk),)),
    ),
    Fault("choice.index-range", "indices begin at n", chunk=_beyond),
    Fault("choice.missing", "the last of several choices never comes", chunk=_without_last),
    Fault("choice.order", "choices appear in reverse", chunk=_reversed),
)

DELTAS = (
    Fault(
        "role.missing",
        "no delta has a role",
        chunk=of(Part.ROLE, lambda chunk: (deltas(lacking("role"))(chunk),)),
    ),
    Fault("role.missing", "there is no role chunk", "chunk", chunk=of(Part.ROLE, lambda chunk: ())),
    Fault("role.repeated", "each delta has the role", chunk=of(Part.CONTENT, _with_role)),
    Fault(
        "role.value",
        "the role is `bot`",
        chunk=of(Part.ROLE, lambda chunk: (deltas(having(role="bot"))(chunk),)),
    ),
    Fault(
        "delta.content-type",
        "text comes as a number",
        chunk=nth(Part.CONTENT, 1, lambda chunk: (with_text(chunk, 5),)),
    ),
    Fault(
        "delta.content-type",
        "text comes as an array of parts",
        "parts",
        chunk=nth(
            Part.CONTENT, 1, lambda chunk: (with_text(chunk, [{"type": "text", "text": "x"}]),)
        ),
    ),
    Fault("delta.empty-flood", "three empty deltas after each", chunk=of(Part.CONTENT, _flood)),
    Fault(
        "reasoning.empty-field",
        "each delta has an empty reasoning",
        chunk=of(Part.CONTENT, _reasoned),
    ),
    Fault(
        "delta.tool-calls-empty",
        "each delta has an empty array of calls",
        chunk=of(Part.CONTENT, lambda chunk: (deltas(having(tool_calls=[]))(chunk),)),
    ),
)

PLAIN = (
    Fault(
        "plain.shape",
        "the plain answer has no `created`",
        plain=lambda place, document: lacking("created")(document),
    ),
    Fault(
        "plain.shape",
        "the plain answer calls itself a chunk",
        "object",
        plain=lambda place, document: having(object="chat.completion.chunk")(document),
    ),
    Fault(
        "plain.shape",
        "the plain answer has no usage",
        "usage",
        plain=lambda place, document: lacking("usage")(document),
    ),
    Fault(
        "plain.delta",
        "a choice of the plain answer has a delta",
        plain=lambda place, document: choices(having(delta={}))(document),
    ),
)

FAULTS = ENVELOPE + CHOICES + DELTAS + PLAIN
