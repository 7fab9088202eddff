"""Who works when: nobody who has to send waits for what several others do with their answers."""

from __future__ import annotations

import socket
from contextlib import ExitStack

import trio
import trio.testing

from conformance.connect.wire import Plain
from conformance.script import Exchange
from loadgen.fast.engine import Engine
from loadgen.fast.stream import Stream
from loadgen.fast.watched import Watched
from tests.conformance.hostile_server import JSON, framed

ENDS = 5


class Passes(trio.abc.Instrument):
    """Counts the passes of the event loop."""

    def __init__(self) -> None:
        self.count = 0

    def before_io_wait(self, timeout: float) -> None:
        self.count += 1


def test_exchanges_that_end_together_are_handed_out_one_a_pass_in_the_order_of_their_ends() -> None:
    passes = Passes()
    handed: list[tuple[int, int]] = []

    async def one(engine: Engine, watched: Watched, number: int) -> None:
        await watched.ended()
        handed.append((passes.count, number))

    async def main() -> None:
        engine = Engine(trio.current_time, None)
        with ExitStack() as stack:
            async with trio.open_nursery() as nursery:
                for number in range(ENDS):
                    ours, theirs = map(stack.enter_context, socket.socketpair())
                    theirs.send(framed(b"{}", JSON))
                    watched = Watched(Stream(Exchange((b"",)), trio.current_time()), Plain(ours))
                    engine.watch(watched)
                    nursery.start_soon(one, engine, watched, number)
                await trio.testing.wait_all_tasks_blocked()
                nursery.start_soon(engine.run)
                while len(handed) < ENDS:
                    await trio.lowlevel.checkpoint()
                nursery.cancel_scope.cancel()
        engine.close()

    trio.run(main, instruments=[passes])
    assert [number for _, number in handed] == list(range(ENDS))
    assert len({at for at, _ in handed}) == ENDS


def test_one_who_went_away_while_its_end_was_kept_is_not_told() -> None:
    async def one(engine: Engine, watched: Watched) -> None:
        await watched.ended()
        raise AssertionError("it was cancelled before")

    async def main() -> None:
        engine = Engine(trio.current_time, None)
        ours, theirs = socket.socketpair()
        with ours, theirs:
            theirs.send(framed(b"{}", JSON))
            watched = Watched(Stream(Exchange((b"",)), trio.current_time()), Plain(ours))
            engine.watch(watched)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(one, engine, watched)
                await trio.testing.wait_all_tasks_blocked()
                engine._drain()
                assert watched.stream.end is not None
                nursery.cancel_scope.cancel()
            with trio.move_on_after(0):
                await engine._turn()
            assert not engine._over
        engine.close()

    trio.run(main)
