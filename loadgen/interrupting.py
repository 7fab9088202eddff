"""SIGINT and SIGTERM while a load is played: an early end, not an abrupt one.

Before there is anything to lose a signal ends the command, as everywhere. From the beginning of a
load to the last line of its report the first one never does: it ends what goes on, be it the load,
the judging or what follows, and what was recorded is told. The second one, where nothing can be
ended any more, stops at once.
"""

from __future__ import annotations

import signal
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from types import FrameType, TracebackType
from typing import Any, Self, TypeVar

import trio

Found = TypeVar("Found")
SIGNALS = (signal.SIGINT, signal.SIGTERM)


def running(work: Callable[..., Awaitable[Found]], *args: object) -> Found:
    """`trio.run`; a signal ends it as KeyboardInterrupt, where nurseries make a group of that."""
    try:
        return trio.run(partial(work, *args))
    except BaseExceptionGroup as group:
        if group.subgroup(KeyboardInterrupt) is None:
            raise
        raise KeyboardInterrupt from None


class Shelter:
    """A context manager: inside, what comes where nobody `listen`s is noted, and interrupts only if
    it is the second. `heard`: one was noted; whoever goes on only then is told at once.
    """

    def __init__(self) -> None:
        self.heard = False
        self._outside: list[Any] = []

    def __enter__(self) -> Self:
        self._outside = [signal.getsignal(number) for number in SIGNALS]
        self.take()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._leave()

    def take(self) -> None:
        for number in SIGNALS:
            signal.signal(number, self._hear)

    def _leave(self) -> None:
        for number, handler in zip(SIGNALS, self._outside, strict=True):
            signal.signal(number, handler)

    def _hear(self, number: int, frame: FrameType | None) -> None:
        if self.heard:
            raise KeyboardInterrupt
        self.heard = True

    @contextmanager
    def lifted(self, *, loses: bool = False) -> Iterator[None]:
        """Until `take` or the end of the block a signal is what it is outside. `loses`: there is
        something to lose already; so SIGTERM, which may end all at once there, is as SIGINT.
        """
        self._leave()
        if loses:
            signal.signal(signal.SIGTERM, _as_interrupt)
        try:
            if self.heard:
                raise KeyboardInterrupt
            yield
        finally:
            self.take()

    async def listen(
        self,
        call: Callable[[], object],
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Calls it at every signal, until cancelled."""
        with trio.open_signal_receiver(*SIGNALS) as signals:
            task_status.started()
            if self.heard:
                call()
            async for _ in signals:
                call()

    async def unless_interrupted(self, work: Callable[[], Awaitable[Found]]) -> Found | None:
        """What it returns; None where a signal ended it early."""
        found: list[Found] = []
        async with trio.open_nursery() as nursery:
            await nursery.start(self.listen, nursery.cancel_scope.cancel)
            found.append(await work())
            nursery.cancel_scope.cancel()
        return found[0] if found else None


def _as_interrupt(number: int, frame: FrameType | None) -> None:
    signal.raise_signal(signal.SIGINT)


def sheltered(outer: Shelter | None) -> AbstractContextManager[Shelter]:
    """From here on there is something to lose: in the shelter of the whole command, where it has
    one; else in one of its own, whose end nothing goes beyond.
    """
    return _own() if outer is None else _taken(outer)


@contextmanager
def _taken(outer: Shelter) -> Iterator[Shelter]:
    outer.take()
    yield outer


@contextmanager
def _own() -> Iterator[Shelter]:
    with Shelter() as own:
        yield own
    if own.heard:
        raise KeyboardInterrupt
