"""A load and its server in one trio run, over loopback sockets and a virtual clock."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

import trio
import trio.testing

from conformance.options import OneLineParser
from loadgen.interrupting import Shelter
from loadgen.result import Result
from loadgen.run_command import execute, judged
from loadgen.run_options import configure
from loadgen.setup import Setup, setup_from_args
from reference_server.bridge import Bridge
from reference_server.engine.scripted import ScriptedEngine
from reference_server.seams import CLEAN, Seams
from reference_server.wire.connection import Request
from reference_server.wire.server import Server
from tests.conformance.hostile_server import Asked, Attack, HostileServer

STEP = 0.02  # seconds a token
NO_CHECKS = ("--checks", "none")


def setup(url: str, *words: str, environment: dict[str, str] | None = None) -> Setup:
    """A setup for a virtual clock, of which neither the kernel nor a timerfd knows."""
    parser = OneLineParser()
    configure(parser)
    made = setup_from_args(parser.parse_args([url, *words]), environment or {}, 4096)
    return replace(made, clock="user", paced=False)


def virtually(main: Callable[[], Awaitable[None]], most: float = 3600) -> None:
    async def bounded() -> None:
        with trio.fail_after(most):
            await main()

    trio.run(bounded, clock=trio.testing.MockClock(autojump_threshold=0))


@dataclass(slots=True)
class Ran:
    """A run, and how long it took by the virtual clock."""

    result: Result
    took: float
    asked: list[Asked]

    @property
    def outcomes(self) -> dict[str, int]:
        return {fate.value: count for fate, count in self.result.summary.books.of.items()}


Meanwhile = Callable[[trio.CancelScope], Awaitable[None]]  # the scope is the server's


def against(
    choose: Callable[[Asked], Attack | None],
    *words: str,
    meanwhile: Meanwhile | None = None,
    shelter: Shelter | None = None,
    **changes: Any,
) -> Ran:
    """A run against a hostile server; the checks are off unless the words say otherwise."""
    out: list[Ran] = []

    async def main() -> None:
        server, scope = HostileServer(choose), trio.CancelScope()

        async def serve(task_status: trio.TaskStatus[str]) -> None:
            with scope:
                async with trio.open_nursery() as serving:
                    task_status.started(await server.start(serving))

        async with trio.open_nursery() as nursery:
            url: str = await nursery.start(serve)
            if meanwhile is not None:
                nursery.start_soon(meanwhile, scope)
            out.append(await _ran(url, words, changes, shelter))
            out[0].asked = [asked for asked in server.asked if asked.method == "POST"]
            nursery.cancel_scope.cancel()

    virtually(main)
    return out[0]


async def _ran(
    url: str, words: tuple[str, ...], changes: dict[str, Any], shelter: Shelter | None = None
) -> Ran:
    checks = () if "--checks" in words else NO_CHECKS
    made = replace(setup(url, *words, *checks), **changes)
    start = trio.current_time()
    ran = await execute(made, shelter=shelter)
    return Ran(judged(made, ran), trio.current_time() - start, [])


@asynccontextmanager
async def reference(
    fault: Seams = CLEAN, batch: int = 64, step: float = STEP
) -> AsyncIterator[str]:
    """The reference server; gives the API's base URL."""
    bridge = Bridge(ScriptedEngine(batch, seed=7), step)

    def seams(request: Request, memory: dict[str, Any]) -> Seams:
        return fault

    server = Server(bridge, seams=seams)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bridge.run)
        listeners = await nursery.start(trio.serve_tcp, server.serve_connection, 0)
        yield f"http://127.0.0.1:{listeners[0].socket.getsockname()[1]}/v1"
        nursery.cancel_scope.cancel()


def against_reference(*words: str, fault: Seams = CLEAN, batch: int = 64) -> Ran:
    """The same against the reference server, with the checks on."""
    out: list[Ran] = []

    async def main() -> None:
        async with reference(fault, batch) as url:
            checks = () if "--checks" in words else ("--checks", "wire,shape")
            out.append(await _ran(url, (*words, *checks), {}))

    virtually(main)
    return out[0]
