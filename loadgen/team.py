"""The workers of one load as their parent sees them: told together, watched one by one.

A worker that dies, fails or says nothing for too long is lost: the others play on, and what it has
not told is counted as missing.
"""

from __future__ import annotations

import math
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import trio

from conformance.errors import TargetError
from loadgen.frames import (
    Began,
    Done,
    Failed,
    FrameError,
    Go,
    Hurry,
    Order,
    Over,
    Plan,
    Ready,
    Rows,
    Snapshot,
    Stop,
    Tell,
    clock_id,
    packed,
    unpacked,
)
from loadgen.hands import Gone, Hand
from loadgen.looking import Look

LEAD = 0.3  # seconds between the word and the start of the load
READY_WITHIN = 60.0  # seconds
SILENT = 30.0  # seconds; a snapshot comes each second


@dataclass(slots=True)
class Seen:
    """All that one worker has said. `span`: when it began, not before and not after, in seconds
    from the agreed start on the parent's clock."""

    hand: Hand
    number: int
    place: str | None = None  # not ready yet
    clock: str | None = None
    span: tuple[float, float] | None = None
    snapshot: Snapshot = field(default_factory=lambda: Snapshot(0, 0))
    over: Over | None = None
    looks: list[Look] = field(default_factory=list)
    done: Done | None = None
    lost: str | None = None


class Team:
    """`start`: the agreed moment, on this process's monotonic clock."""

    def __init__(self, hands: Sequence[Hand], nursery: trio.Nursery, silent: float) -> None:
        self.seen = [Seen(hand, number) for number, hand in enumerate(hands)]
        self.start = math.inf
        self._told_at = math.inf
        self._nursery = nursery
        self._silent = silent
        self._interrupted = False
        self._changed = trio.Event()

    # -- what a load under way tells, and takes -------------------------------------------------

    @property
    def sent(self) -> int:
        return sum(each.snapshot.sent for each in self.seen)

    @property
    def in_flight(self) -> int:
        under_way = [each for each in self.seen if each.over is None and each.lost is None]
        return sum(each.snapshot.in_flight for each in under_way)

    @property
    def complete(self) -> bool:
        """Nobody has interrupted it."""
        overs = [each.over for each in self.seen if each.over is not None]
        return not self._interrupted and all(over.complete for over in overs)

    def interrupt(self) -> None:
        self._interrupted = True
        self._tell_all(Stop())

    def hurry(self) -> None:
        self._tell_all(Hurry())

    def now(self) -> float:
        """Seconds since the start of the load."""
        return time.monotonic() - self.start

    # -- the run, in order ----------------------------------------------------------------------

    async def brief(self, plans: Sequence[Plan]) -> None:
        """Raises TargetError unless all are ready in time: nothing was sent yet."""
        for each, plan in zip(self.seen, plans, strict=True):
            self._nursery.start_soon(each.hand.send, packed(plan))
            self._nursery.start_soon(self._follow, each)
        with trio.move_on_after(READY_WITHIN):
            await self._until(lambda each: each.place is not None)
        for each in self.seen:
            if each.lost is not None:
                raise TargetError(f"worker {each.number}: {each.lost}")
            if each.place is None:
                raise TargetError(f"worker {each.number} did not start within {READY_WITHIN:g} s")

    async def play(self) -> None:
        """Returns when all have played their share, or are lost."""
        self._told_at = time.monotonic()
        self.start = self._told_at + LEAD
        self._tell_all(Go(self.start, clock_id(), LEAD))
        await self._until(lambda each: each.over is not None)

    async def tell(self) -> None:
        """Returns when all have told what they have, or are lost."""
        self._tell_all(Tell())
        await self._until(lambda each: each.done is not None)

    # -- one worker -----------------------------------------------------------------------------

    def _tell_all(self, order: Order) -> None:
        data = packed(order)
        for each in self.seen:
            if each.lost is None and each.done is None:
                self._nursery.start_soon(each.hand.send, data)

    async def _until(self, met: Callable[[Seen], bool]) -> None:
        while not all(met(each) or each.lost is not None for each in self.seen):
            await self._changed.wait()

    async def _follow(self, seen: Seen) -> None:
        """Until it is done or lost."""
        while seen.done is None and seen.lost is None:
            data = None
            try:
                with trio.move_on_after(self._patience(seen)):
                    data = await seen.hand.receive()
                if data is None:
                    seen.lost = f"it said nothing for {self._silent:g} s"
                else:
                    self._take(seen, data)
            except (Gone, FrameError) as error:
                seen.lost = str(error)
            if seen.lost is not None:
                seen.hand.end()
            self._changed.set()
            self._changed = trio.Event()

    def _patience(self, seen: Seen) -> float:
        return math.inf if seen.place is None else self._silent  # until then `brief` counts

    def _take(self, seen: Seen, data: bytes) -> None:
        match unpacked(data):
            case Ready() as ready:
                seen.place, seen.clock = ready.place, ready.clock
            case Began() as began:
                seen.span = self._span(seen, began)
            case Snapshot() as snapshot:
                seen.snapshot = snapshot
            case Over() as over:
                seen.over = over
            case Rows() as rows:
                seen.looks += rows.looks
            case Done() as done:
                seen.done = done
            case Failed() as failed:
                seen.lost = failed.why
            case other:
                seen.lost = f"it said what no worker says: {type(other).__name__}"

    def _span(self, seen: Seen, began: Began) -> tuple[float, float]:
        """Exact by a common clock; else it heard the word after it was told, and we of it later."""
        if seen.clock is not None and seen.clock == clock_id():
            return (began.at - self.start,) * 2
        return self._told_at + LEAD - self.start, time.monotonic() + LEAD - self.start


@asynccontextmanager
async def team(hands: Sequence[Hand], silent: float = SILENT) -> AsyncIterator[Team]:
    """Watched as long as it is open. What is raised meanwhile is raised as it is."""
    try:
        async with trio.open_nursery() as nursery:
            yield Team(hands, nursery, silent)
            nursery.cancel_scope.cancel()
    except BaseExceptionGroup as group:
        raise _first(group) from None


def _first(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
