"""Faults of refusals: what is wrong is accepted, blamed on the server, or never recovered from."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from reference_server.engine.interface import Event, Failure
from reference_server.faults.fault import Fault, Place
from reference_server.seams import Answer, Document
from reference_server.wire import sse_writer

MODEL = "scripted"  # the only one there is
_REQUIRED = ("messages", "prompt")
_KEPT = ("model", "messages", "prompt", "stream", "max_tokens")
_RANGES: dict[str, tuple[float, float]] = {
    "temperature": (0, 2),
    "presence_penalty": (-2, 2),
    "n": (1, 128),
    "top_logprobs": (0, 20),
    "logprobs": (0, 5),
    "max_tokens": (1, 64),
}
_DEAD_AFTER = 10  # refusals
_ROOM = 2000  # words that are left of a prompt


def _body(change: Callable[[Place, Document], Document]) -> Callable[[Place, bytes], bytes]:
    """A change of the request's JSON object."""

    def request(place: Place, raw: bytes) -> bytes:
        return json.dumps(change(place, dict(place.body))).encode() if place.body else raw

    return request


def _guessed(place: Place, raw: bytes) -> bytes:
    """A body that is no JSON is completed."""
    if place.body:
        return raw
    for tail in (b"}", b"e}", b"ue}", b'"}', b"}]}", b"]}"):
        try:
            json.loads(raw + tail)
        except ValueError:
            continue
        return raw + tail
    return raw


def _without_error(place: Place, answer: Answer) -> Answer:
    """A refusal of what is no JSON becomes a 200."""
    return answer if place.body else replace(answer, status=200)


def _filled(place: Place, body: Document) -> Document:
    """What is missing gets a default, as both routes would like it."""
    if not any(name in body for name in _REQUIRED):
        body |= {"messages": [{"role": "user", "content": "hi"}], "prompt": "hi"}
    messages = body.get("messages")
    if isinstance(messages, list):
        body["messages"] = [{"role": "user", **m} if isinstance(m, dict) else m for m in messages]
    return body


def _any_model(place: Place, body: Document) -> Document:
    return {**body, "model": MODEL} if isinstance(body.get("model"), str) else body


def _as_asked(place: Place, document: Document) -> Document:
    """The answer claims to come from the model that was asked for."""
    return {**document, "model": place.body.get("model", MODEL)}


def _dropped(place: Place, body: Document) -> Document:
    """Whatever could be wrong is not looked at."""
    kept = {name: body[name] for name in _KEPT if name in body}
    if not isinstance(kept.get("max_tokens"), int):
        kept["max_tokens"] = 16
    return {**kept, "max_tokens": max(1, kept["max_tokens"])}


def _clamped(place: Place, body: Document) -> Document:
    """Numbers out of range are moved into it without a word."""
    for name, (low, high) in _RANGES.items():
        value = body.get(name)
        if isinstance(value, int | float) and not isinstance(value, bool):
            body[name] = min(max(value, low), high)
    return body


def _is_type_error(answer: Answer) -> bool:
    message = json.loads(answer.body)["error"]["message"]
    return answer.status == 400 and "expected" in message


def _blamed(place: Place, answer: Answer) -> Answer:
    """A type error is nobody's to catch."""
    return replace(answer, status=500) if _is_type_error(answer) else answer


def _only_tools(place: Place, answer: Answer) -> Answer:
    """Only one member's type error ends as a 500."""
    named = b"tools" in answer.body or b"suffix" in answer.body
    return replace(answer, status=500) if named else answer


def _counting(place: Place, answer: Answer) -> Answer:
    place.shared["refused"] = place.shared.get("refused", 0) + 1
    return answer


def _dead(place: Place, event: Event) -> Iterable[Event]:
    """After so many refusals no request gets a worker."""
    if place.shared.get("refused", 0) >= _DEAD_AFTER and place.n == 0:
        return (Failure(event.work, "no worker is left"),)
    return (event,)


def _other_when_streamed(place: Place, answer: Answer) -> Answer:
    return replace(answer, status=422) if place.asks_stream and answer.status == 400 else answer


def _bare_when_streamed(place: Place, answer: Answer) -> Answer:
    """The streamed branch has its own error document."""
    if not place.asks_stream:
        return answer
    error = {**json.loads(answer.body)["error"], "request_id": "r"}
    return replace(answer, body=json.dumps({"error": error}).encode())


def _cut(place: Place, body: Document) -> Document:
    """A prompt that is too long loses its end in silence."""
    if isinstance(body.get("prompt"), str):
        body["prompt"] = _shortened(body["prompt"])
    for message in body["messages"] if isinstance(body.get("messages"), list) else ():
        if isinstance(message, dict) and isinstance(message.get("content"), str):
            message["content"] = _shortened(message["content"])
    return body


def _shortened(text: str) -> str:
    words = text.split(" ")
    return text if len(words) <= _ROOM else " ".join(words[:_ROOM])


def _empty_if_long(place: Place, answer: Answer) -> Answer:
    """A prompt that is too long gets an answer without a word in it."""
    if b"context_length_exceeded" not in answer.body:
        return answer
    stream = place.asks_stream
    body = sse_writer.done() if stream else b'{"choices": []}'
    kind = sse_writer.CONTENT_TYPE if stream else answer.content_type
    return replace(answer, status=200, body=body, content_type=kind)


def _as(status: int) -> Callable[[Place, Answer], Answer]:
    """A wrong key is answered with this status."""
    return lambda place, answer: replace(answer, status=status) if answer.status == 401 else answer


def _echoing() -> dict[str, Any]:
    """Every model name is accepted, and the answer repeats it."""
    return {
        "request": _body(_any_model),
        "chunk": lambda place, chunk: (_as_asked(place, chunk),),
        "plain": _as_asked,
    }


FAULTS = (
    Fault("err.malformed-json", "a body that was cut is completed by guessing", request=_guessed),
    Fault("err.malformed-json", "a parse error comes with 200", "200", refusal=_without_error),
    Fault("err.missing-field", "a missing prompt is taken as `hi`", request=_body(_filled)),
    Fault("err.unknown-model", "every model name is accepted", **_echoing()),
    Fault(
        "err.unknown-model",
        "the one model answers to every name and says so",
        "single",
        request=_body(_any_model),
    ),
    Fault("err.wrong-types", "what is of the wrong type is ignored", request=_body(_dropped)),
    Fault("err.wrong-types", "numbers are clamped", "clamped", request=_body(_clamped)),
    Fault("err.client-mistake-5xx", "a type error is a 500", refusal=_blamed),
    Fault(
        "err.client-mistake-5xx",
        "a 500 for one member's wrong type alone",
        "one",
        refusal=_only_tools,
    ),
    Fault(
        "err.recovers",
        "ten refusals leave no worker",
        event=_dead,
        refusal=_counting,
    ),
    Fault("err.same-status", "a streamed request is a 422", refusal=_other_when_streamed),
    Fault(
        "err.same-status",
        "a streamed request's error has a member more",
        "body",
        refusal=_bare_when_streamed,
    ),
    Fault("err.context", "a prompt that is too long is cut", request=_body(_cut)),
    Fault("err.context", "a prompt that is too long is answered with nothing", "empty",
          refusal=_empty_if_long),
    Fault("err.wrong-key", "the key is not looked at", authorised=lambda place, right: True),
    Fault("err.wrong-key", "a wrong key is a 500", "500", refusal=_as(500)),
    Fault("err.wrong-key", "a wrong key is a 200 with an error in it", "200", refusal=_as(200)),
    Fault("err.wrong-key", "a wrong key is a 400", "400", refusal=_as(400)),
)  # fmt: skip
