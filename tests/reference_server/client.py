"""A small HTTP client on h11 and a server in the same trio run, over memory streams."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import h11
import trio
import trio.testing

from reference_server.bridge import Bridge
from reference_server.bridge.policy import DEFAULT, POLICIES
from reference_server.clock import Clock
from reference_server.engine.interface import Engine
from reference_server.engine.scripted import ScriptedEngine
from reference_server.wire.server import SeamsFor, Server, Settings, clean

CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"
STEP = 0.02  # seconds, of the virtual clock


@dataclass(slots=True)
class Reply:
    """One answer, read to its end."""

    status: int
    headers: dict[str, str]
    body: bytes = b""
    whole: bool = False  # the framing said that it was complete

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def blocks(self) -> list[str]:
        """The data of each event, comments left out."""
        parts = self.body.decode().split("\n\n")
        assert parts.pop() == ""
        return [part.removeprefix("data: ") for part in parts if not part.startswith(":")]

    @property
    def chunks(self) -> list[Any]:
        """The chunks of a stream that ended with the sentinel."""
        *chunks, last = self.blocks
        assert last == "[DONE]"
        return [json.loads(chunk) for chunk in chunks]

    def text(self, index: int = 0) -> str:
        """What one choice of a stream said."""
        choices = [c for chunk in self.chunks for c in chunk["choices"] if c["index"] == index]
        return "".join(c.get("delta", c).get("content", c.get("text")) or "" for c in choices)


class Client:
    """One connection."""

    def __init__(self, stream: trio.abc.HalfCloseableStream) -> None:
        self.stream = stream
        self._h11 = h11.Connection(h11.CLIENT)

    async def post(self, path: str, body: object, **headers: str) -> Reply:
        await self.send(path, body, **headers)
        return await self.read()

    async def get(self, path: str, method: str = "GET", **headers: str) -> Reply:
        await self._start(method, path, headers, b"")
        return await self.read()

    async def send(self, path: str, body: object, **headers: str) -> None:
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        await self._start("POST", path, {"content-length": str(len(raw)), **headers}, raw)

    async def _start(self, method: str, path: str, headers: dict[str, str], body: bytes) -> None:
        if self._h11.our_state is h11.DONE:
            self._h11.start_next_cycle()
        pairs = [("host", "test"), *((k.replace("_", "-"), v) for k, v in headers.items())]
        out = self._h11.send(h11.Request(method=method, target=path, headers=pairs)) or b""
        out += (self._h11.send(h11.Data(data=body)) or b"") if body else b""
        await self.stream.send_all(out + (self._h11.send(h11.EndOfMessage()) or b""))

    async def read(self) -> Reply:
        """The answer; `whole` is False when the connection ended in the middle of it."""
        reply = Reply(0, {})
        async for event in self.events():
            if isinstance(event, h11.Response):
                fields = {k.decode(): v.decode() for k, v in event.headers}
                reply = Reply(event.status_code, fields)
            elif isinstance(event, h11.Data):
                reply.body += bytes(event.data)
            elif isinstance(event, h11.EndOfMessage):
                reply.whole = True
        return reply

    async def events(self) -> AsyncGenerator[object, None]:
        """h11's events up to the end of the answer or of the connection."""
        while True:
            event = self._h11.next_event()
            if event is h11.NEED_DATA:
                data = bytes(await self.stream.receive_some(65536))
                if not data and self._h11.their_state is h11.SEND_BODY:
                    return
                self._h11.receive_data(data)
                continue
            yield event
            if isinstance(event, h11.EndOfMessage | h11.ConnectionClosed):
                return

    async def hang_up(self) -> None:
        await self.stream.aclose()


@dataclass(slots=True)
class Running:
    """A server under test and the ways to reach it."""

    server: Server
    engine: Engine
    nursery: trio.Nursery

    def connect(self) -> Client:
        ours, theirs = trio.testing.memory_stream_pair()
        self.nursery.start_soon(self.server.serve_connection, theirs)
        return Client(ours)

    async def post(self, path: str, body: object, **headers: str) -> Reply:
        """On a connection of its own."""
        client = self.connect()
        reply = await client.post(path, body, **headers)
        await client.hang_up()
        return reply


@asynccontextmanager
async def serving(
    settings: Settings | None = None,
    *,
    engine: Engine | None = None,
    max_batch: int = 4,
    step: float = STEP,
    seams: SeamsFor = clean,
    clock: Clock | None = None,
    threaded: bool = False,
    slow: str = DEFAULT,
    **more: Any,
) -> AsyncIterator[Running]:
    engine = engine or ScriptedEngine(max_batch, seed=7)
    bridge = Bridge(engine, step, threaded=threaded, slow=POLICIES[slow])
    server = Server(bridge, settings, clock, seams, **more)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bridge.run)
        yield Running(server, engine, nursery)
        nursery.cancel_scope.cancel()


def run(main: Callable[[], Awaitable[None]]) -> None:
    """Under the virtual clock; a test that hangs fails after a virtual hour."""

    async def bounded() -> None:
        with trio.fail_after(3600):
            await main()

    trio.run(bounded, clock=trio.testing.MockClock(autojump_threshold=0))


def run_in_real_time(main: Callable[[], Awaitable[None]], seconds: float = 20.0) -> None:
    """Under the real clock: an engine in a thread knows no other."""

    async def bounded() -> None:
        with trio.fail_after(seconds):
            await main()

    trio.run(bounded)


async def until(condition: Callable[[], bool]) -> None:
    """Wait in small steps of time: an engine posts no event to wait for."""
    while not condition():  # noqa: ASYNC110
        await trio.sleep(STEP / 10)


async def stepped(running: Running, steps: int = 1) -> None:
    """Let the engine do so many steps, none beyond, and everybody take what they gave.

    The first call stops the engine: from then on it steps only here.
    """
    bridge = running.server.bridge
    before = running.engine.gauges.steps
    bridge.allow(steps)
    await until(lambda: running.engine.gauges.steps >= before + steps)
    await trio.sleep(STEP / 2)


async def counted(running: Running, counter: str, least: int) -> None:
    """Until the engine's `counter` has reached `least`."""
    await until(lambda: getattr(running.engine.gauges, counter) >= least)


def ask(post: dict[str, object], **settings: Any) -> Reply:
    """One request to a fresh server. The route follows from the body."""
    out: list[Reply] = []
    path = CHAT if "messages" in post else COMPLETIONS

    async def main() -> None:
        async with serving(**settings) as running:
            out.append(await running.post(path, post))

    run(main)
    return out[0]


def chat(text: str = "Tell me something.", **members: object) -> dict[str, object]:
    messages = [{"role": "user", "content": text}]
    return {"model": "scripted", "messages": messages, "temperature": 0, **members}


def completion(prompt: object = "Once", **members: object) -> dict[str, object]:
    base = {"model": "scripted", "prompt": prompt, "temperature": 0, "max_tokens": 40}
    return {**base, **members}
