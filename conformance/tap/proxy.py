"""The tap as a whole: it listens, relays, and has what passed judged beside the way."""

from __future__ import annotations

import itertools
import socket
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import trio

from conformance.connect import Dialler, Door
from conformance.tap.judging import Told
from conformance.tap.line import Tap, serve
from conformance.tap.taking import Budget, Taken
from conformance.target import Url

JudgeOf = Callable[[Taken], Awaitable[Told | None]]  # None: it could not be judged
Log = Callable[[str], None]
Start = Callable[[socket.socket], None]
AT_ONCE = 64  # clients let in before the others get their turn
FULL = 0.1  # seconds until the next try where the system has no more sockets


@dataclass(slots=True)
class Proxy:
    """`judge` is asked for one exchange after the other; `tell` gets each as it is judged.

    `clock` is read for every stamp. After `run` was cancelled, `settle` judges what is left.
    """

    door: Door
    upstream: Url
    judge: JudgeOf
    tell: Callable[[Told], None]
    log: Log
    clock: Callable[[], float] = trio.current_time
    wall: Callable[[], float] = time.time
    budget: Budget = field(default_factory=Budget)
    _send: trio.MemorySendChannel[Taken] = field(init=False)
    _receive: trio.MemoryReceiveChannel[Taken] = field(init=False)
    _judging: trio.CancelScope = field(default_factory=trio.CancelScope, init=False)

    def __post_init__(self) -> None:
        # Unbounded: what waits in it is bounded by the budget, and the way must not wait for it.
        self._send, self._receive = trio.open_memory_channel[Taken](float("inf"))

    async def run(self, listeners: list[trio.SocketListener]) -> None:
        """Relay until cancelled."""
        async with trio.open_nursery() as nursery:
            tap = self._tap(Dialler(self.door, nursery.start_soon))

            async def guarded(client: socket.socket) -> None:
                try:
                    await serve(tap, client)
                except Exception as error:  # a defect of ours costs one connection, and is told
                    self.log(f"internal error on a connection: {type(error).__name__}: {error}")

            def start(client: socket.socket) -> None:
                nursery.start_soon(guarded, client)

            nursery.start_soon(self._judge_all)
            for listener in listeners:
                nursery.start_soon(self._accept, listener, start)

    async def _accept(self, listener: trio.SocketListener, start: Start) -> None:
        """Each client as it comes. Plain sockets: the next step is to dial the upstream."""
        is_full = False
        with socket.socket(fileno=listener.socket.detach()) as listening:
            while True:
                await trio.lowlevel.wait_readable(listening)
                try:
                    for _ in range(AT_ONCE):
                        start(listening.accept()[0])
                        is_full = False
                except (BlockingIOError, ConnectionAbortedError):  # nobody else waits
                    continue
                except OSError as error:  # e.g. no descriptor left: others must end first
                    if not is_full:
                        self.log(f"a client has to wait: {error.strerror}")
                    is_full = True
                    await trio.sleep(FULL)

    def _tap(self, dialler: Dialler) -> Tap:
        started = self.clock()
        return Tap(
            dialler=dialler,
            authority=self.upstream.authority,
            origin=f"{self.upstream.scheme}://{self.upstream.authority}",
            now=lambda: self.clock() - started,
            wall=self.wall(),
            done=self._send.send_nowait,
            budget=self.budget,
            numbers=itertools.count(1).__next__,
            lines=itertools.count().__next__,
        )

    def abandon(self) -> None:
        """Do not wait for what is being judged."""
        self._judging.shield = False

    async def settle(self) -> None:
        """After the end: judge what has passed and was not judged yet."""
        self._send.close()
        await self._judge_all()

    async def _judge_all(self) -> None:
        async for taken in self._receive:
            # Cancelled in between, it would be lost.
            with trio.CancelScope(shield=True) as self._judging:
                one = await self.judge(taken)
                if one is not None:
                    self.tell(one)
            self.budget.left += taken.size
