"""Captures made by hand: the bytes of one chat stream, and when each piece of it was read."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from conformance.capture import Capture, End, How, Read, Segment

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"
DONE = b"data: [DONE]\n\n"
ASKED = {"model": "m", "messages": [], "stream": True, "stream_options": {"include_usage": True}}


def request(body: Mapping[str, Any] = ASKED) -> bytes:
    raw = json.dumps(body).encode()
    return b"POST /v1/chat/completions HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n%b" % (
        len(raw),
        raw,
    )


def chunk(delta: Mapping[str, Any] | None, finish: str | None = None, **members: Any) -> bytes:
    """One event; `delta` None: no choice at all."""
    choice = {"index": 0, "delta": delta, "finish_reason": finish, "logprobs": None}
    value = {
        "id": "c",
        "object": "chat.completion.chunk",
        "created": 1700000000,
        "model": "m",
        "choices": [] if delta is None else [choice],
        **members,
    }
    return b"data: " + json.dumps(value).encode() + b"\n\n"


def text(words: str, **members: Any) -> bytes:
    return chunk({"content": words}, **members)


def usage(completion: int, prompt: int = 5) -> dict[str, Any]:
    total = completion + prompt
    counted = {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": total,
    }
    return {"usage": counted}


def capture(
    pieces: Sequence[tuple[float, bytes]],
    *,
    sent: float | None = 0.0,
    connected: float | None = None,
    ordinal: int = 1,
    end: End | None = None,
    head: bytes = HEAD,
    asked: Mapping[str, Any] = ASKED,
) -> Capture:
    """Each piece is one read at its time; the head comes with the first. The peer closes."""
    received, reads = bytearray(head if pieces else b""), []
    for at, data in pieces:
        received += data
        reads.append(Read(len(received), at, True))
    last = pieces[-1][0] if pieces else sent
    return Capture(
        bytes(received),
        reads=tuple(reads),
        request=(Segment(request(asked), sent),),
        connection=0,
        ordinal=ordinal,
        connected_at=connected,
        sent_at=sent,
        end=end or End(How.CLOSED, last),
        clock="user",
    )


def whole(
    times: Sequence[float], *, tokens: int | None = None, sent: float = 0.0, role_at: float = 0.01
) -> Capture:
    """A stream in order: the role, a word at each of the times, finish and usage with the last."""
    pieces = [(role_at, chunk({"role": "assistant", "content": ""}))]
    pieces += [(at, text(f" w{number}")) for number, at in enumerate(times)]
    counted = usage(len(times) if tokens is None else tokens)
    last = times[-1]
    pieces += [(last, chunk({}, "stop") + chunk(None, **counted) + DONE)]
    return capture(pieces, sent=sent)
