"""Workers as actors of a Ray cluster, each the same `run_shard` as a process has.

The actor and its parent speak in the same bytes as over a pipe. What needs streamproof on every
host needs the same release of it; the plan, the API key in it, crosses the cluster as Ray sends it.
"""

from __future__ import annotations

import logging
import os
import queue
import socket
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any

import trio

from conformance.errors import TargetError, UsageError
from conformance.target import parse_host_port
from loadgen.frames import Failed, Frame, FrameError, Order, Plan, packed, unpacked
from loadgen.hands import Gone, Hand
from loadgen.shard import run_shard

WAITS = 0.5  # seconds that an actor waits for a frame before it says that there is none
UNHEARD = 60.0  # seconds after which an actor whose frames nobody takes stops
FRAMES = 64  # that wait in an actor at most
AUTO = "auto"  # whatever cluster this machine is part of
CONNECT = 5.0  # seconds
TOLD = 200  # characters of what Ray says
MISSING = "--ray needs the extra: pip install 'streamproof[ray]'"


@asynccontextmanager
async def actors(address: str, count: int | None) -> AsyncIterator[list[Hand]]:
    """So many, spread over the nodes; None: one for each node. None is left afterwards.

    Raises UsageError where Ray is missing, TargetError where the cluster cannot be reached.
    """
    ray = _connected(address)
    try:
        wanted = count or max(1, sum(bool(node.get("Alive")) for node in ray.nodes()))
        _fits(wanted, ray.cluster_resources().get("CPU", 0.0))
        make = ray.remote(num_cpus=1, max_restarts=0, max_concurrency=4)(Worker)
        spread = make.options(scheduling_strategy="SPREAD")
        limit = trio.CapacityLimiter(4 * wanted)
        yield [_Actor(ray, spread.remote(), limit) for _ in range(wanted)]
    finally:
        ray.shutdown()  # the actors end with their driver


def _fits(wanted: int, cpus: float) -> None:
    """Ray would wait for a larger cluster."""
    if wanted > cpus:
        raise TargetError(f"--workers {wanted}: the cluster has {cpus:g} CPUs, one for each worker")


def _connected(address: str) -> Any:
    _answers(address)
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"  # read at the import
    try:
        import ray
    except ImportError:
        raise UsageError(MISSING) from None
    try:
        ray.init(address, log_to_driver=False, logging_level=logging.CRITICAL)
    except Exception as error:
        told = " ".join(str(error).split())[:TOLD]
        raise TargetError(f"--ray {address}: no cluster to work with: {told}") from None
    return ray


def _answers(address: str) -> None:
    """Ray itself would try for minutes."""
    if address == AUTO:
        return
    host, port = parse_host_port(address, "--ray")
    try:
        socket.create_connection((host, port), timeout=CONNECT).close()
    except OSError as error:
        raise TargetError(f"--ray {address}: nobody answers there: {error}") from None


class Worker:
    """What runs in the cluster. Its methods are called beside each other, each in a thread: with a
    single coroutine among them Ray would run them all in one event loop."""

    def __init__(self) -> None:
        self._frames: queue.Queue[bytes] = queue.Queue(FRAMES)
        self._orders: queue.Queue[bytes] = queue.Queue()

    def play(self, plan: bytes) -> None:
        """The whole share. What goes wrong is its last frame."""
        try:
            said = unpacked(plan)
        except FrameError as error:
            self._emit(Failed(str(error)))
            return
        assert isinstance(said, Plan)
        run_shard(said, self._emit, partial(_orders, self._orders), _place())

    def _emit(self, frame: Frame) -> None:
        try:
            self._frames.put(packed(frame), timeout=UNHEARD)
        except queue.Full:
            raise OSError(f"nobody took a frame for {UNHEARD:g} s") from None

    def order(self, data: bytes) -> None:
        self._orders.put(data)

    def frames(self) -> list[bytes]:
        """What has come since the last time; empty where nothing came for a while."""
        found = []
        with suppress(queue.Empty):
            found.append(self._frames.get(timeout=WAITS))
            while True:
                found.append(self._frames.get_nowait())
        return found


async def _orders(waiting: queue.Queue[bytes]) -> AsyncIterator[Order]:
    """They never end: a parent that is gone takes its actors with it."""
    while True:
        get = partial(waiting.get, timeout=WAITS)
        with suppress(queue.Empty):
            order = unpacked(await trio.to_thread.run_sync(get, abandon_on_cancel=True))
            assert isinstance(order, Order)
            yield order


def _place() -> str:
    import ray

    context = ray.get_runtime_context()
    node = context.get_node_id()[:8]
    return f"pid {os.getpid()} on {ray.util.get_node_ip_address()}, node {node}"


class _Actor:
    """A hand. `limit`: of the threads that wait for answers of actors."""

    def __init__(self, ray: Any, actor: Any, limit: trio.CapacityLimiter) -> None:
        self._ray = ray
        self._actor = actor
        self._limit = limit
        self._frames: deque[bytes] = deque()
        self._planned = False

    async def send(self, data: bytes) -> None:
        """The first is the plan. What the actor makes of it comes as frames."""
        method = self._actor.order if self._planned else self._actor.play
        self._planned = True
        method.remote(data)

    async def receive(self) -> bytes:
        while not self._frames:
            self._frames += await self._answer(self._actor.frames.remote())
        return self._frames.popleft()

    async def _answer(self, reference: Any) -> list[bytes]:
        get = partial(self._ray.get, reference)
        try:
            found: list[bytes] = await trio.to_thread.run_sync(
                get, abandon_on_cancel=True, limiter=self._limit
            )
        except self._ray.exceptions.RayError as error:
            raise Gone(_why(error)) from None
        return found

    def end(self) -> None:
        self._ray.kill(self._actor)


def _why(error: Exception) -> str:
    """The last line of what Ray says is the cause, its first sentence suffices."""
    lines = [line.strip() for line in str(error).split("\n") if line.strip()]
    told = lines[-1].split(". ")[0] if lines else "no reason given"
    return f"{type(error).__name__}: {told[:TOLD]}"
