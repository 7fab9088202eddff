"""A tap between a client and a server, all in one trio run over loopback sockets."""

from __future__ import annotations

import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import trio
import trio.testing

from conformance.connect import Door
from conformance.judge import Policy
from conformance.recorder import Recorder
from conformance.specs import known_cases
from conformance.tap.judging import Job, Told, judged
from conformance.tap.proxy import Proxy
from conformance.tap.taking import Budget, Taken
from conformance.target import parse_url
from reference_server.bridge import Bridge
from reference_server.engine.scripted import ScriptedEngine
from reference_server.faults.table import find, seams_for
from reference_server.wire.server import Server, Settings

KNOWN = known_cases()
PASSIVE = tuple(case for case in KNOWN if case.on != "dossier")
JOB = Job(PASSIVE, KNOWN, Policy())
Handler = Callable[[trio.SocketStream], Awaitable[None]]


@dataclass
class Tapped:
    """`told` and `taken` of every exchange so far, in the order of their ends."""

    port: int
    upstream: int
    budget: Budget
    told: list[Told] = field(default_factory=list)
    taken: list[Taken] = field(default_factory=list)
    logged: list[str] = field(default_factory=list)
    clients: list[trio.SocketStream] = field(default_factory=list)
    judged: trio.Event = field(default_factory=trio.Event)
    engine: ScriptedEngine | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def dial(self) -> trio.SocketStream:
        self.clients.append(await trio.open_tcp_stream("127.0.0.1", self.port))
        return self.clients[-1]

    def recorder(self) -> Recorder:
        """A client that records what it gets through the tap."""
        return Recorder(Door("127.0.0.1", self.port))

    async def settled(self, count: int) -> None:
        """Wait until that many exchanges were judged."""
        with trio.fail_after(600):
            while len(self.told) < count:
                await self.judged.wait()

    def tell(self, one: Told) -> None:
        self.told.append(one)
        self.judged.set()
        self.judged = trio.Event()


@asynccontextmanager
async def tap_to(
    port: int, *, job: Job = JOB, budget: Budget | None = None, door: Door | None = None,
    scheme: str = "http",
) -> AsyncIterator[Tapped]:  # fmt: skip
    """A tap before whatever listens on that port."""
    tapped = Tapped(0, port, budget or Budget())

    async def judge(taken: Taken) -> Told:
        tapped.taken.append(taken)
        return judged(taken, job)

    url = parse_url(f"{scheme}://127.0.0.1:{port}")
    proxy = Proxy(
        door or Door("127.0.0.1", port), url, judge, tapped.tell, tapped.logged.append,
        budget=tapped.budget,
    )  # fmt: skip
    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    tapped.port = listeners[0].socket.getsockname()[1]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(proxy.run, listeners)
        yield tapped
        nursery.cancel_scope.cancel()
    for client in tapped.clients:
        await trio.aclose_forcefully(client)
    await proxy.settle()
    assert tapped.logged == []


@asynccontextmanager
async def tap_before(handler: Handler, **options: object) -> AsyncIterator[Tapped]:
    """A tap before a server of a few lines."""

    async def guarded(stream: trio.SocketStream) -> None:
        try:
            await handler(stream)
        except trio.BrokenResourceError:
            pass  # the client left; the handler had nothing to say about it
        finally:
            await trio.aclose_forcefully(stream)

    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(trio.serve_tcp, guarded, 0)
        port = listeners[0].socket.getsockname()[1]
        async with tap_to(port, **options) as tapped:  # type: ignore[arg-type]
            yield tapped
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def tap_before_reference(
    faults: Sequence[str] = (), settings: Settings | None = None, **options: object
) -> AsyncIterator[Tapped]:
    """A tap before the reference server."""
    engine = ScriptedEngine(32, seed=7)
    bridge = Bridge(engine, 0.01)
    server = Server(bridge, settings, seams=seams_for([find(each) for each in faults]))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bridge.run)
        listeners = await nursery.start(trio.serve_tcp, server.serve_connection, 0)
        port = listeners[0].socket.getsockname()[1]
        async with tap_to(port, **options) as tapped:  # type: ignore[arg-type]
            tapped.engine = engine
            yield tapped
        nursery.cancel_scope.cancel()


def virtually(main: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        with trio.fail_after(3600):
            await main()

    trio.run(bounded, clock=trio.testing.MockClock(autojump_threshold=0))


def reset(stream: trio.SocketStream) -> None:
    """Leave by RST."""
    stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    stream.socket.close()
