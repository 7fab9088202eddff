"""A server that answers rightly except where an attack takes the connection over: raw sockets."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import trio

Attack = Callable[[trio.SocketStream], Awaitable[None]]

MODELS: dict[str, Any] = {"object": "list", "data": [{"id": "m", "object": "model"}]}
ABOUT: dict[str, Any] = {"id": "r-1", "created": 1700000000, "model": "m"}
USAGE = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}


def plain_answer(text: str = "hi there") -> bytes:
    """A whole chat completion as a JSON document."""
    message = {"role": "assistant", "content": text}
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}
    body = {**ABOUT, "object": "chat.completion", "choices": [choice], "usage": USAGE}
    return json.dumps(body).encode()


def chunk(delta: dict[str, Any], finish: str | None = None, **members: object) -> bytes:
    """One event of a chat stream."""
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
    body = {**ABOUT, "object": "chat.completion.chunk", "choices": [choice], **members}
    return b"data: " + json.dumps(body).encode() + b"\n\n"


def stream_answer(text: str = "hi there") -> bytes:
    """A whole chat stream, the sentinel included."""
    return b"".join(
        (
            chunk({"role": "assistant", "content": ""}),
            chunk({"content": text}),
            chunk({}, "stop"),
            b"data: [DONE]\n\n",
        )
    )


def head(*fields: bytes, status: bytes = b"200 OK") -> bytes:
    """A head, the blank line included."""
    return b"\r\n".join((b"HTTP/1.1 " + status, *fields, b"", b""))


def framed(body: bytes, *fields: bytes, status: bytes = b"200 OK") -> bytes:
    """An answer with the length that it has."""
    return head(b"Content-Length: %d" % len(body), *fields, status=status) + body


JSON = b"Content-Type: application/json"
EVENTS = b"Content-Type: text/event-stream"


@dataclass(frozen=True, slots=True)
class Asked:
    """One request."""

    method: str
    target: str
    body: dict[str, Any] | None

    @property
    def streams(self) -> bool:
        return self.body is not None and self.body.get("stream") is True


@dataclass(slots=True)
class HostileServer:
    """`choose` names the attack that takes the connection over; None: a right answer."""

    choose: Callable[[Asked], Attack | None]
    asked: list[Asked] = field(default_factory=list)

    async def start(self, nursery: trio.Nursery) -> str:
        """Listen on a free port of loopback; returns the API's base URL."""
        listeners = await nursery.start(trio.serve_tcp, self._serve, 0)
        return f"http://127.0.0.1:{listeners[0].socket.getsockname()[1]}/v1"

    async def _serve(self, stream: trio.SocketStream) -> None:
        try:
            while (asked := await read_request(stream)) is not None:
                self.asked.append(asked)
                attack = self.choose(asked)
                if attack is not None:
                    await attack(stream)
                    return
                await stream.send_all(_right(asked))
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass  # the checker hung up, as it should
        finally:
            await trio.aclose_forcefully(stream)


def _right(asked: Asked) -> bytes:
    if asked.target == "/v1/models":
        return framed(json.dumps(MODELS).encode(), JSON)
    if "/chat/" not in asked.target:
        error = {"message": "no such route", "type": "invalid_request_error"}
        return framed(json.dumps({"error": error}).encode(), JSON, status=b"404 Not Found")
    if not asked.streams:
        return framed(plain_answer(), JSON)
    return framed(stream_answer(), EVENTS)


async def read_request(stream: trio.SocketStream) -> Asked | None:
    """The next request of a client that frames with Content-Length; None at its end."""
    data = b""
    while b"\r\n\r\n" not in data:
        more = bytes(await stream.receive_some(65536))
        if not more:
            return None
        data += more
    top, _, body = data.partition(b"\r\n\r\n")
    line, *fields = top.decode("latin-1").split("\r\n")
    named = dict(f.lower().split(": ", 1) for f in fields)
    while len(body) < int(named.get("content-length", "0")):
        body += bytes(await stream.receive_some(65536))
    method, target, _ = line.split(" ")
    try:
        value = json.loads(body)
    except ValueError:
        value = None
    return Asked(method, target, value if isinstance(value, dict) else None)
