"""A server of a few lines for tests that need one nobody would ship: h11 over loopback."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field

import h11
import trio

from conformance.capture import Json


@dataclass(frozen=True, slots=True)
class Got:
    """One request as the server saw it; `body` None where it is no JSON object."""

    method: str
    path: str
    headers: dict[str, str]
    body: dict[str, Json] | None


@dataclass(frozen=True, slots=True)
class Say:
    """One answer; `body` bytes are sent as they are.

    `drop`: reset the connection instead. `hang_up`: close it behind the answer, unannounced.
    """

    status: int = 200
    body: Json | bytes = None
    content_type: str = "application/json"
    drop: bool = False
    hang_up: bool = False

    @property
    def raw(self) -> bytes:
        return self.body if isinstance(self.body, bytes) else json.dumps(self.body).encode()


def refused(status: int, message: str, param: str | None = None) -> Say:
    """An error in OpenAI's envelope."""
    kind = "invalid_request_error"
    return Say(status, {"error": {"message": message, "type": kind, "param": param, "code": None}})


@dataclass(slots=True)
class MiniServer:
    """`answer` decides; every request is kept in `got`."""

    answer: Callable[[Got], Say]
    got: list[Got] = field(default_factory=list)

    async def start(self, nursery: trio.Nursery) -> str:
        """Listen on a free port of loopback; returns the root URL."""
        listeners = await nursery.start(trio.serve_tcp, self.serve, 0)
        return f"http://127.0.0.1:{listeners[0].socket.getsockname()[1]}"

    async def serve(self, stream: trio.SocketStream) -> None:
        connection = h11.Connection(h11.SERVER)
        try:
            while (got := await self._read(connection, stream)) is not None:
                self.got.append(got)
                say = self.answer(got)
                if say.drop:
                    return
                await self._write(connection, stream, say)
                if say.hang_up:
                    return
                connection.start_next_cycle()
        except (trio.BrokenResourceError, h11.ProtocolError):
            pass  # the client left
        finally:
            await trio.aclose_forcefully(stream)

    async def _read(self, connection: h11.Connection, stream: trio.SocketStream) -> Got | None:
        request: h11.Request | None = None
        body = b""
        while True:
            event = connection.next_event()
            if event is h11.NEED_DATA:
                connection.receive_data(bytes(await stream.receive_some(65536)))
            elif isinstance(event, h11.Request):
                request = event
            elif isinstance(event, h11.Data):
                body += bytes(event.data)
            elif isinstance(event, h11.EndOfMessage) and request is not None:
                return _got(request, body)
            else:
                return None

    async def _write(self, connection: h11.Connection, stream: trio.SocketStream, say: Say) -> None:
        fields = [("Content-Type", say.content_type), ("Content-Length", str(len(say.raw)))]
        out = connection.send(h11.Response(status_code=say.status, headers=fields)) or b""
        out += connection.send(h11.Data(data=say.raw)) or b""
        await stream.send_all(out + (connection.send(h11.EndOfMessage()) or b""))


def _got(request: h11.Request, body: bytes) -> Got:
    try:
        value = json.loads(body)
    except ValueError:
        value = None
    headers = {name.decode(): text.decode() for name, text in request.headers}
    return Got(
        request.method.decode(),
        request.target.decode(),
        headers,
        value if isinstance(value, dict) else None,
    )
