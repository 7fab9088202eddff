"""Faults of streamed tool calls and of log-probabilities."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from reference_server.faults.edit import (
    Chunk,
    Edit,
    choices,
    deltas,
    every,
    having,
    lacking,
    mapped,
    with_text,
)
from reference_server.faults.fault import Fault, Place
from reference_server.seams import Document, Part

Fragment = Document


def _fragments(change: Edit) -> Chunk:
    """Changes every fragment of every call."""
    return every(deltas(mapped("tool_calls", lambda calls: [change(call) for call in calls])))


def _openings(change: Edit) -> Chunk:
    """Changes the first fragment of every call."""
    return _fragments(lambda call: change(call) if "id" in call else call)


def _function(change: Edit) -> Edit:
    return mapped("function", change)


def _repeating(name: str) -> Chunk:
    """Later fragments repeat a member of the first one."""

    def chunk(place: Place, document: Document) -> Iterable[Document]:
        if place.part is not Part.TOOL:
            return (document,)
        (call,) = document["choices"][0]["delta"]["tool_calls"]
        key = f"{document['choices'][0]['index']}/{call['index']}"
        first = place.memory.setdefault(key, call)
        if first is call:
            return (document,)
        again = having(id=first["id"])
        if name == "name":
            again = _function(lambda function: {"name": first["function"]["name"], **function})
        return (_with_calls(document, [again(call)]),)

    return chunk


def _with_calls(document: Document, calls: Sequence[Fragment]) -> Document:
    return deltas(having(tool_calls=list(calls)))(document)


def _gathered(change: Callable[[Fragment, str], Iterable[Fragment]]) -> Chunk:
    """Holds calls back; before the choice's finish, `change(opening, arguments)` is sent."""

    def chunk(place: Place, document: Document) -> Iterable[Document]:
        if place.part not in (Part.TOOL, Part.FINISH):
            return (document,)
        index = document["choices"][0]["index"]
        held: list[Document] = place.memory.setdefault(str(index), [])
        if place.part is Part.TOOL:
            held.append(document)
            return ()
        sent = [one for opening, text in _joined(held) for one in _changed(change, opening, text)]
        return (*(_with_calls(held[0], [one]) for one in sent), document)

    return chunk


def _changed(
    change: Callable[[Fragment, str], Iterable[Fragment]], opening: Fragment, text: str
) -> Iterable[Fragment]:
    """A call that the limit cut off goes out as it is."""
    try:
        json.loads(text)
    except ValueError:
        return (opening, _more(opening["index"], text))
    return change(opening, text)


def _joined(held: Sequence[Document]) -> list[tuple[Fragment, str]]:
    """Each call's opening fragment with all of its arguments."""
    openings: dict[int, Fragment] = {}
    arguments: dict[int, str] = {}
    for document in held:
        (call,) = document["choices"][0]["delta"]["tool_calls"]
        openings.setdefault(call["index"], call)
        arguments.setdefault(call["index"], "")
        arguments[call["index"]] += call["function"]["arguments"]
    return [(openings[index], arguments[index]) for index in openings]


def _arguments(change: Callable[[str], Any]) -> Chunk:
    """Other arguments, in one fragment."""

    def call(opening: Fragment, text: str) -> Iterable[Fragment]:
        return (opening, _more(opening["index"], change(text)))

    return _gathered(call)


def _more(index: int, arguments: Any) -> Fragment:
    return {"index": index, "function": {"arguments": arguments}}


def _strings(change: Callable[[str], str]) -> Callable[[str], str]:
    """Changes each string value in a JSON text."""

    def inner(value: Any) -> Any:
        if isinstance(value, str):
            return change(value)
        if isinstance(value, dict):
            return {key: inner(each) for key, each in value.items()}
        return [inner(each) for each in value] if isinstance(value, list) else value

    return lambda text: json.dumps(inner(json.loads(text)))


def _twin(opening: Fragment, **changes: Any) -> Fragment:
    """The opening of a further call."""
    return {**opening, "index": opening["index"] + 1, **changes}


def _same_id(opening: Fragment, text: str) -> Iterable[Fragment]:
    index = opening["index"]
    return (opening, _more(index, text), _twin(opening), _more(index + 1, text))


def _resumed(opening: Fragment, text: str) -> Iterable[Fragment]:
    index, half = opening["index"], len(text) // 2
    yield from (opening, _more(index, text[:half]))
    yield from (_twin(opening, id=opening["id"] + "b"), _more(index + 1, text))
    yield _more(index, text[half:])


def _markup(place: Place, document: Document) -> Iterable[Document]:
    if place.part is Part.TOOL and place.nth == 0:
        return (with_text(document, "<tool_call>"), document)
    return (document,)


def _escaped(text: str) -> str:
    return "".join(f"\\u{ord(char):04x}" for char in text[:1]) + text[1:]


def _chosen(word: str) -> Callable[[Place, bytes], bytes]:
    """Another tool_choice in place of a named one."""

    def request(place: Place, body: bytes) -> bytes:
        named = isinstance(place.body.get("tool_choice"), dict)
        return json.dumps(place.body | {"tool_choice": word}).encode() if named else body

    return request


def _many(place: Place, body: bytes) -> bytes:
    """parallel_tool_calls is not looked at."""
    given = "parallel_tool_calls" in place.body
    return json.dumps(lacking("parallel_tool_calls")(place.body)).encode() if given else body


TOOLS = (
    Fault("tool.index-missing", "fragments have no index", chunk=_fragments(lacking("index"))),
    Fault("tool.id-missing", "calls have no id", chunk=_openings(lacking("id"))),
    Fault(
        "tool.name-missing",
        "calls have no name",
        chunk=_openings(_function(lacking("name"))),
    ),
    Fault("tool.type", "calls have another type", chunk=_openings(having(type="tool"))),
    Fault("tool.type", "calls have no type", "missing", chunk=_openings(lacking("type"))),
    Fault("tool.name-repeat", "each fragment has the name", chunk=_repeating("name")),
    Fault("tool.id-repeat", "each fragment has the id", chunk=_repeating("id")),
    Fault(
        "tool.index-order",
        "calls are counted from 1",
        chunk=_fragments(mapped("index", lambda index: index + 1)),
    ),
    Fault("tool.id-duplicate", "two calls with one id", chunk=_gathered(_same_id)),
    Fault("tool.args-type", "arguments come as an object", chunk=_arguments(json.loads)),
    Fault("tool.args-invalid", "the last brace is missing", chunk=_arguments(lambda t: t[:-1])),
    Fault("tool.args-invalid", "no arguments at all", "empty", chunk=_arguments(lambda t: "")),
    Fault("tool.args-nul", "NUL in an argument", chunk=_arguments(_strings(lambda t: "\0" + t))),
    Fault(
        "tool.args-double-escape",
        "arguments are escaped twice",
        chunk=_arguments(_strings(_escaped)),
    ),
    Fault(
        "tool.unknown-name",
        "a call to a tool that nobody offered",
        chunk=_openings(_function(having(name="nobody"))),
    ),
    Fault("tool.named", "a named choice is any choice", request=_chosen("required")),
    Fault("tool.named", "a named choice is no choice", "none", request=_chosen("none")),
    Fault("tool.parallel", "as many calls as the model likes", request=_many),
    Fault("tool.markup-leak", "markup in the content", chunk=_markup),
    Fault("tool.resumed", "a call goes on after the next one began", chunk=_gathered(_resumed)),
)


def _probabilities(change: Callable[[Any], Any]) -> Chunk:
    """Changes the log-probabilities of chunks that have them."""
    return every(
        choices(mapped("logprobs", lambda value: value if value is None else change(value)))
    )


def _entries(change: Edit) -> Chunk:
    """Changes each entry; in completions, the arrays."""

    def logprobs(value: Document) -> Document:
        if "content" not in value:
            return change(value)
        return {**value, "content": [change(entry) for entry in value["content"]]}

    return _probabilities(logprobs)


def _positive(entry: Document) -> Document:
    if "token_logprobs" in entry:
        return {**entry, "token_logprobs": [0.5 for _ in entry["token_logprobs"]]}
    return {**entry, "logprob": 0.5}


def _other_tokens(entry: Document) -> Document:
    if "tokens" in entry:
        return {**entry, "tokens": [token + "~" for token in entry["tokens"]]}
    return {**entry, "token": entry["token"] + "~", "bytes": None}


def _unasked(place: Place, document: Document) -> Iterable[Document]:
    value: Document = {"content": [], "refusal": None}
    if document["object"] == "text_completion":
        value = {"tokens": [], "token_logprobs": [], "top_logprobs": [], "text_offset": []}
    given = mapped("logprobs", lambda asked: value if asked is None else asked)
    yield choices(given)(document)


LOGPROBS = (
    Fault("logprobs.missing", "log-probabilities never come", chunk=_probabilities(lambda v: None)),
    Fault("logprobs.shape", "entries have no `logprob`", chunk=_entries(lacking("logprob"))),
    Fault(
        "logprobs.shape",
        "entries have no `top_logprobs`",
        "top",
        chunk=_entries(lacking("top_logprobs")),
    ),
    Fault("logprobs.value", "a log-probability above 0", chunk=_entries(_positive)),
    Fault("logprobs.mismatch", "the tokens do not spell the text", chunk=_entries(_other_tokens)),
    Fault(
        "logprobs.bytes",
        "the bytes are not the text's",
        chunk=_entries(mapped("bytes", lambda raw: [*raw, 33])),
    ),
    Fault(
        "logprobs.top",
        "more alternatives than asked for",
        chunk=_entries(mapped("top_logprobs", lambda top: [*top, *top, *top])),
    ),
    Fault(
        "logprobs.top",
        "the likeliest alternative comes last",
        "order",
        chunk=_entries(mapped("top_logprobs", lambda top: top[::-1])),
    ),
    Fault("logprobs.unasked", "log-probabilities that nobody asked for", chunk=_unasked),
    Fault(
        "logprobs.arrays",
        "the arrays differ in length",
        chunk=_entries(mapped("text_offset", lambda offsets: [*offsets, 0])),
    ),
    Fault(
        "logprobs.arrays",
        "offsets begin anew in each chunk",
        "offset",
        chunk=_entries(mapped("text_offset", lambda offsets: list(range(len(offsets))))),
    ),
)

FAULTS = TOOLS + LOGPROBS
