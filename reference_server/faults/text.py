"""Faults of the text itself, and of errors: before the stream and within it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from reference_server.engine.interface import Delta, Event, Failure, FinishReason, Work
from reference_server.faults.edit import bare, nth, of, text_of, with_text
from reference_server.faults.fault import Fault, Place, Sent
from reference_server.seams import Act, Answer, Document, Part
from reference_server.wire import sse_writer
from reference_server.wire.sse_writer import END, FIELD


def _doubled(chunk: Document) -> Iterable[Document]:
    yield with_text(chunk, text_of(chunk) * 2)


def _tail(place: Place, chunk: Document) -> Iterable[Document]:
    """The last piece of each choice never comes."""
    held: dict[int, Document] = place.memory.setdefault("held", {})
    if place.part is not Part.CONTENT:
        return (chunk,)
    index = chunk["choices"][0]["index"]
    before = held.get(index)
    held[index] = chunk
    return () if before is None else (before,)


def _stripped(chunk: Document) -> Iterable[Document]:
    yield with_text(chunk, text_of(chunk).lstrip())


def _broken(chunk: Document) -> Iterable[Document]:
    """Each character of several bytes as if its bytes had been decoded one by one."""
    text = "".join(
        char if char.isascii() else "\ufffd" * len(char.encode()) for char in text_of(chunk)
    )
    yield with_text(chunk, text)


def _leaking(chunk: Document) -> Iterable[Document]:
    return (with_text(bare(chunk), "<|im_end|>"), chunk)


def _stop_shown(place: Place, event: Event) -> Iterable[Event]:
    """The stop string is sent with the text that it ends."""
    stop = place.body.get("stop")
    shown = stop if isinstance(stop, str) else next(iter(stop or ()), "")
    if isinstance(event, Delta) and event.finish is FinishReason.STOP and isinstance(shown, str):
        return (replace(event, text=event.text + shown),)
    return (event,)


def _stop_ignored(place: Place, work: Work) -> Work:
    return replace(work, sampling=replace(work.sampling, stop=()))


def _echo_changed(place: Place, event: Event) -> Iterable[Event]:
    """The echo loses the prompt's first character."""
    seen: set[tuple[str, int]] = place.memory.setdefault("seen", set())
    if not isinstance(event, Delta) or place.body.get("echo") is not True:
        return (event,)
    if (event.work, event.choice) in seen:
        return (event,)
    seen.add((event.work, event.choice))
    return (replace(event, text=event.text[1:] or " ", logprobs=()),)


TEXT = (
    Fault("parity.text", "a piece comes twice", chunk=nth(Part.CONTENT, 1, _doubled)),
    Fault("parity.text", "the last piece never comes", "tail", chunk=_tail),
    Fault(
        "text.whitespace", "leading spaces are lost", "leading", chunk=of(Part.CONTENT, _stripped)
    ),
    Fault(
        "utf8.replacement-char",
        "bytes are decoded one by one",
        chunk=of(Part.CONTENT, _broken),
    ),
    Fault("text.special-token", "the template's end shows", chunk=of(Part.FINISH, _leaking)),
    Fault("stop.included", "the stop string is shown", event=_stop_shown),
    Fault("stop.ignored", "stop strings are ignored", work=_stop_ignored),
    Fault("echo.prompt", "the echo lacks a character", event=_echo_changed),
    Fault(
        "echo.prompt",
        "no echo at all",
        "ignored",
        work=lambda place, work: replace(work, echo=False),
    ),
)  # fmt: skip


def _refused(**changes: Any) -> Any:
    """Another answer instead of a refusal."""
    return lambda place, answer: replace(answer, **changes)


def _flat(place: Place, answer: Answer) -> Answer:
    error = json.loads(answer.body)["error"]
    return _with(answer, {"object": "error", **error})


def _bare_message(place: Place, answer: Answer) -> Answer:
    error = json.loads(answer.body)["error"]
    return _with(answer, {"error": {"message": error["message"]}})


def _numbered(place: Place, answer: Answer) -> Answer:
    error = json.loads(answer.body)["error"]
    return _with(answer, {"error": {**error, "code": answer.status}})


def _with(answer: Answer, document: Document) -> Answer:
    return replace(answer, body=sse_writer.dumps(document).encode())


def _as_stream(place: Place, answer: Answer) -> Answer:
    """What should be a status comes as the first event of a 200."""
    if not place.asks_stream:
        return answer
    body = FIELD + answer.body + END + sse_writer.done()
    return replace(answer, status=200, body=body, content_type=sse_writer.CONTENT_TYPE)


REFUSALS = (
    Fault(
        "err.content-type",
        "an error is called text/plain",
        refusal=_refused(content_type=b"text/plain"),
    ),
    Fault(
        "err.content-type",
        "an error is a page",
        "html",
        refusal=_refused(content_type=b"text/html", body=b"<h1>Bad Request</h1>"),
    ),
    Fault(
        "err.envelope",
        "an error is a bare text in JSON",
        refusal=lambda place, answer: _with(answer, {"detail": "no"}),
    ),
    Fault("err.envelope", "an error without the envelope", "flat", refusal=_flat),
    Fault("err.envelope", "an error with a message only", "keys", refusal=_bare_message),
    Fault("err.code-type", "the code is a number", refusal=_numbered),
    Fault("err.prestream-200", "a refusal comes as an event of a 200", refusal=_as_stream),
)


def _failing(place: Place, event: Event) -> Iterable[Event]:
    """The engine gives a streamed request up after some deltas."""
    if place.asks_stream and isinstance(event, Delta) and place.n == 2:
        return (event, Failure(event.work, "the worker died"))
    return (event,)


def _error(change: Callable[[Place, bytes], Iterable[Sent]]) -> dict[str, Any]:
    """A stream that fails, and what becomes of its error block."""

    def block(place: Place, raw: bytes) -> Iterable[Sent]:
        if place.part is Part.ERROR:
            return change(place, raw)
        place.memory["last"] = raw
        return (raw,)

    return {"event": _failing, "block": block}


def _followed(place: Place, raw: bytes) -> Iterable[Sent]:
    return (raw, place.memory.get("last", raw), sse_writer.done())


def _renamed(prefix: bytes) -> Any:
    return lambda place, raw: (prefix + raw.removeprefix(FIELD),)


def _document(document: Document) -> Any:
    return lambda place, raw: (sse_writer.event(document),)


IN_BAND = (
    Fault("err.in-band", "a stream fails in-band", **_error(lambda place, raw: (raw,))),
    Fault(
        "err.shape",
        "the error is a string",
        **_error(_document({"error": "the worker died"})),
    ),
    Fault(
        "err.shape",
        "the error has no message",
        "message",
        **_error(_document({"error": {"code": "dead", "type": "server_error"}})),
    ),
    Fault("err.followed", "text and a sentinel after the error", **_error(_followed)),
    Fault(
        "err.not-terminated",
        "the body stays open after the error",
        **_error(lambda place, raw: (raw, Act.STALL)),
    ),
    Fault("err.as-unknown-field", "the error is a field", **_error(_renamed(b"error: "))),
    Fault("err.as-unknown-field", "the error is a comment", "comment", **_error(_renamed(b": "))),
)

FAULTS = TEXT + REFUSALS + IN_BAND
