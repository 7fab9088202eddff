"""A worker: plays its share of a load in a process of its own, then measures and judges it.

    run_shard(plan, emit, orders)

It speaks only in frames. When its orders end, its parent is gone: it stops at once.
"""

from __future__ import annotations

import resource
import time
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import trio

from conformance.errors import StreamproofError
from loadgen.frames import (
    Began,
    Done,
    Failed,
    Frame,
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
)
from loadgen.keeping import chosen, folder, keep
from loadgen.kept import HELD_AT_MOST, Kept
from loadgen.looking import Look
from loadgen.measure import Row
from loadgen.moved import moved
from loadgen.play import Offered, Player
from loadgen.players import player_of
from loadgen.recording import Recording, recording
from loadgen.setup import DESCRIPTORS_OF_OURS, Setup

EVERY = 1.0  # seconds between snapshots
ROWS, TIMES = 200, 50_000  # of a frame of rows, and the instants in it, at most

Emit = Callable[[Frame], None]
Orders = Callable[[], AsyncIterator[Order]]


def run_shard(plan: Plan, emit: Emit, orders: Orders, place: str) -> None:
    """The whole life of a worker. What goes wrong is its last frame, in one line.

    `emit` may wait, and raises OSError where nobody hears any more. `orders` is called inside the
    trio run. `place`: where this is, in words.
    """
    try:
        trio.run(play_shard, plan, emit, orders, place)
    except Exception as error:
        with suppress(OSError):  # it may have been this that failed: nobody hears
            emit(Failed(_line(error)))


def _line(error: BaseException) -> str:
    """An error of ours as it is; another with its kind and the place that raised it."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, StreamproofError):
        return str(error)
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    where = f" ({Path(trace.tb_frame.f_code.co_filename).name}:{trace.tb_lineno})" if trace else ""
    return " ".join(f"{type(error).__name__}: {error}{where}".split())


@dataclass(slots=True)
class _Heard:
    """What the parent has said so far."""

    player: Player
    go: Go | None = None
    going: trio.Event = field(default_factory=trio.Event)
    telling: trio.Event = field(default_factory=trio.Event)
    hurried: bool = False

    async def listen(self, orders: AsyncIterator[Order], over: trio.CancelScope) -> None:
        async for order in orders:
            match order:
                case Go():
                    self.go = order
                    self.going.set()
                case Stop():
                    self.player.interrupt()
                case Tell():
                    self.telling.set()
                case Hurry():
                    self.hurried = True
        over.cancel()


async def play_shard(plan: Plan, emit: Emit, orders: Orders, place: str) -> None:
    """The same inside a trio run."""
    setup = _own(plan)
    kept = Kept(setup.workload, HELD_AT_MOST // plan.workers)
    async with recording(setup.door, setup.clock, setup.secrets, paced=setup.paced) as made:
        player = player_of(setup, plan.endpoint, setup.workload, made, kept.take)
        heard = _Heard(player)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(heard.listen, orders(), nursery.cancel_scope)
            emit(Ready(place, clock_id()))
            nursery.start_soon(_snapshots, player, emit)
            await heard.going.wait()
            start = _start(heard.go, made)
            emit(Began(time.monotonic() + start - made.recorder.now()))
            offered = await player.play(setup.load, start)
            seconds = offered.end - offered.start
            emit(Over(seconds, offered.complete, tuple(offered.lags)))
            await heard.telling.wait()
            await _tell(plan, setup, kept, offered, emit, heard)
            emit(Done(kept.unjudged, made.described()))
            nursery.cancel_scope.cancel()


def _own(plan: Plan) -> Setup:
    """The setup, as far as it depends on where it is played."""
    setup = plan.setup
    door = replace(setup.door, tls=setup.certificates.context()) if plan.tls else setup.door
    descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = max(1, descriptors - DESCRIPTORS_OF_OURS)
    limits = replace(setup.limits, in_flight=min(setup.limits.in_flight, most))
    return replace(setup, door=door, limits=limits)


def _start(go: Go | None, made: Recording) -> float:
    """On the recorder's clock."""
    assert go is not None
    if go.clock is not None and go.clock == clock_id():
        return made.recorder.now() + go.at - time.monotonic()
    return made.recorder.now() + go.lead


async def _snapshots(player: Player, emit: Emit) -> None:
    while True:
        emit(Snapshot(player.sent, player.in_flight))
        await trio.sleep(EVERY)


async def _tell(
    plan: Plan, setup: Setup, kept: Kept, offered: Offered, emit: Emit, heard: _Heard
) -> None:
    """Its rows, in frames of bounded size; then some of the exchanges are kept."""
    rows: list[Row] = []
    broken: set[int] = set()
    frame: list[Look] = []
    for look in kept.told(setup.checks, lambda: heard.hurried):
        frame.append(replace(look, row=moved(look.row, offered.start)))
        if setup.captures:
            rows.append(look.row)
            broken |= {look.row.index} if look.is_broken else set()
        if _is_full(frame):
            emit(Rows(tuple(frame)))
            frame = []
        await trio.lowlevel.checkpoint()  # an order may have come, or the end of all orders
    emit(Rows(tuple(frame)))
    if setup.captures:
        path = folder(setup.captures)
        keep(path, setup.api, kept.waiting, chosen(rows, broken, plan.workers), plan.workers)


def _is_full(frame: list[Look]) -> bool:
    return len(frame) >= ROWS or _times(frame) >= TIMES


def _times(frame: list[Look]) -> int:
    return sum(len(look.row.token_times) for look in frame)
