"""The tap as a whole: it listens, relays, and has what passed judged beside the way."""

from __future__ import annotations

import itertools
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import trio

from conformance.connect import Door
from conformance.tap.judging import Told
from conformance.tap.line import Tap, serve
from conformance.tap.taking import Budget, Taken
from conformance.target import Url

JudgeOf = Callable[[Taken], Awaitable[Told | None]]  # None: it could not be judged
Log = Callable[[str], None]


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
        origin, started = f"{self.upstream.scheme}://{self.upstream.authority}", self.clock()
        tap = Tap(
            door=self.door,
            authority=self.upstream.authority,
            origin=origin,
            now=lambda: self.clock() - started,
            wall=self.wall(),
            done=self._send.send_nowait,
            budget=self.budget,
            numbers=itertools.count(1).__next__,
            lines=itertools.count().__next__,
        )

        async def guarded(stream: trio.SocketStream) -> None:
            try:
                await serve(tap, stream)
            except Exception as error:  # a defect of ours costs one connection, and is told
                self.log(f"internal error on a connection: {type(error).__name__}: {error}")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._judge_all)
            await trio.serve_listeners(guarded, listeners)

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
