"""A server on real sockets with its engine in a thread, and an engine that takes notes."""

from __future__ import annotations

import socket
import struct
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import trio

from reference_server.engine.batching import BatchingEngine
from reference_server.engine.interface import Delta, Engine, Event, Gauges, Started, Work
from reference_server.engine.scripted import ScriptedEngine
from tests.reference_server.client import Client, Running, serving
from tests.reference_server.fake_model import FakeRunner, FakeVocabulary

Hang = Callable[[trio.SocketStream], None]


def reset(stream: trio.SocketStream) -> None:
    """RST: closing with a linger time of nothing."""
    stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    stream.socket.close()


def finish(stream: trio.SocketStream) -> None:
    """FIN: nothing more is sent; what comes is not read."""
    stream.socket.shutdown(socket.SHUT_WR)


@dataclass
class Notes:
    """What the engine did for each prompt, by the clock of `time.perf_counter`."""

    names: dict[str, str] = field(default_factory=dict)  # work id → prompt
    started: dict[str, float] = field(default_factory=dict)
    tokens: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    cancelled: dict[str, float] = field(default_factory=dict)
    released: dict[str, float] = field(default_factory=dict)
    ended: list[str] = field(default_factory=list)  # in order
    steps: list[float] = field(default_factory=list)  # when each began

    def steps_between(self, begin: float, end: float) -> int:
        return sum(begin < at <= end for at in self.steps)


class Noting:
    """An engine behind a notebook; `seconds` is what a step takes beside the engine's own.

    `within` is called in the middle of each step, after each of its events; `after` at its end.
    """

    def __init__(self, engine: Engine, seconds: float = 0.0) -> None:
        self.engine, self.notes = engine, Notes()
        self._seconds = seconds
        self.within: Callable[[], object] = lambda: None
        self.after: Callable[[], object] = lambda: None

    def submit(self, work: Work) -> None:
        self.notes.names[work.id] = work.prompt
        self.engine.submit(work)

    def cancel(self, work: str) -> None:
        self.notes.cancelled[self.notes.names[work].split()[0]] = time.perf_counter()
        self.engine.cancel(work)

    def pause(self, work: str) -> None:
        self.engine.pause(work)

    def resume(self, work: str) -> None:
        self.engine.resume(work)

    def step(self) -> Iterator[Event]:
        self.notes.steps.append(time.perf_counter())
        time.sleep(self._seconds)
        for event in self.engine.step():
            self._note(event)
            yield event
            self.within()
        self.after()

    def _note(self, event: Event) -> None:
        name, now = self.notes.names[event.work], time.perf_counter()
        if isinstance(event, Started):
            self.notes.started[name] = now
        elif isinstance(event, Delta):
            self.notes.tokens[name] += [now] * event.tokens
        else:
            self.notes.ended.append(name)

    def releases(self, work: str) -> None:
        self.notes.released.setdefault(self.notes.names[work], time.perf_counter())

    @property
    def idle(self) -> bool:
        return self.engine.idle

    @property
    def context(self) -> int:
        return self.engine.context

    @property
    def longest(self) -> int | None:
        return self.engine.longest

    @property
    def vocabulary(self) -> int | None:
        return self.engine.vocabulary

    @property
    def gauges(self) -> Gauges:
        return self.engine.gauges

    def count_tokens(self, text: str) -> int:
        return self.engine.count_tokens(text)

    def token_ids(self, text: str) -> tuple[int, ...] | None:
        return self.engine.token_ids(text)

    def text_of(self, ids: Any) -> str | None:
        return self.engine.text_of(ids)

    def chat_prompt(self, messages: Any) -> str:
        return self.engine.chat_prompt(messages)


def scripted(max_batch: int, seconds: float) -> Noting:
    engine = ScriptedEngine(max_batch, seed=1)
    noting = Noting(engine, seconds)
    forget = engine._forget

    def watched(work: str) -> None:
        forget(work)
        noting.releases(work)

    engine._forget = watched  # type: ignore[method-assign]
    return noting


def batching(
    max_batch: int, seconds: float, blocks: int = 2048, chunk: int = 64, sharing: bool = True
) -> Noting:
    """Each pass takes `seconds`. Blocks of four tokens."""
    runner = FakeRunner(block_count=blocks, context=4096)
    runner.fault = lambda _: time.sleep(seconds)
    engine = BatchingEngine(
        runner,
        FakeVocabulary(),
        max_batch=max_batch,
        prefill_chunk=chunk,
        prefix_sharing=sharing,
        seed=1,
    )
    noting = Noting(engine)
    forget = engine._forget

    def watched(request: Any) -> None:
        forget(request)
        noting.releases(request.work.id)

    engine._forget = watched  # type: ignore[method-assign]
    return noting


Connect = Callable[..., Any]


@asynccontextmanager
async def listening(engine: Engine, **more: Any) -> AsyncIterator[tuple[Running, Connect]]:
    """`connect(buffer=None)` gives a client and its socket; `buffer`: bytes it takes unread."""
    streams: list[trio.SocketStream] = []

    async def connect(port: int, buffer: int | None = None) -> tuple[Client, trio.SocketStream]:
        sock = trio.socket.socket()
        if buffer is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
        await sock.connect(("127.0.0.1", port))
        streams.append(trio.SocketStream(sock))
        return Client(streams[-1]), streams[-1]

    async with serving(engine=engine, threaded=True, step=0, **more) as running:
        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
        port = listeners[0].socket.getsockname()[1]
        serve = running.server.serve_connection
        running.nursery.start_soon(trio.serve_listeners, serve, listeners)
        try:
            yield running, partial(connect, port)
        finally:
            for stream in streams:
                stream.socket.close()
