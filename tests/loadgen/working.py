"""Workers in the same trio run as their parent and their server, over a virtual clock."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest
import trio

from loadgen import shard, sharded, team
from loadgen.frames import Frame, Order, Plan, packed, unpacked
from loadgen.hands import Gone, Hand
from loadgen.setup import Setup
from loadgen.shard import play_shard
from tests.loadgen import playing


class Here:
    """A worker that is a task of this run. `ended`: its parent put an end to it."""

    def __init__(self, nursery: trio.Nursery, number: int) -> None:
        self._nursery = nursery
        self._number = number
        self._tell, self._told = trio.open_memory_channel[Order](math.inf)
        self._say, self._said = trio.open_memory_channel[bytes](math.inf)
        self._scope = trio.CancelScope()
        self.ended = False

    async def send(self, data: bytes) -> None:
        said = unpacked(data)
        if isinstance(said, Plan):
            self._nursery.start_soon(self._work, said)
        elif isinstance(said, Order):
            self._tell.send_nowait(said)

    async def _work(self, plan: Plan) -> None:
        with self._scope:
            place = f"task {self._number}"
            await play_shard(plan, self.emit, lambda: self._told.__aiter__(), place)

    def emit(self, frame: Frame) -> None:
        self._say.send_nowait(packed(frame))

    async def receive(self) -> bytes:
        return await self._said.receive()

    def end(self) -> None:
        self.ended = True
        self._scope.cancel()


class Dying(Here):
    """Killed after so many frames."""

    frames = 4

    async def receive(self) -> bytes:
        self.frames -= 1
        if self.frames < 0:
            self._scope.cancel()
            raise Gone("killed by SIGKILL")
        return await super().receive()


class Mute(Here):
    """Says nothing after so many frames, and plays on."""

    frames = 4

    def emit(self, frame: Frame) -> None:
        self.frames -= 1
        if self.frames >= 0:
            super().emit(frame)


Make = Callable[[trio.Nursery, int], Here]


class Workers:
    """`playing.against` and its like are played by these from now on."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.kinds: list[Make] = [Here, Here]
        self.hands: list[Here] = []
        for module in (team, shard):  # what this machine's clock says is not what the test's does
            patch.setattr(module, "clock_id", lambda: None)
        patch.setattr(sharded, "hired", self._hired)
        self._execute: Any = partial(sharded.execute, silent=5.0)

    @asynccontextmanager
    async def _hired(self, setup: Setup) -> AsyncIterator[list[Hand]]:
        async with trio.open_nursery() as nursery:
            self.hands = [make(nursery, number) for number, make in enumerate(self.kinds)]
            yield list(self.hands)
            nursery.cancel_scope.cancel()

    def play(self, patch: pytest.MonkeyPatch, *kinds: Make) -> None:
        """`kinds`: one for each worker."""
        self.kinds = list(kinds)
        patch.setattr(playing, "execute", self._execute)
