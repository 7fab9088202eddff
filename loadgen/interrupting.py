"""SIGINT and SIGTERM while a load is played: an early end, not an abrupt one."""

from __future__ import annotations

import signal
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeVar

import trio

Found = TypeVar("Found")


def running(work: Callable[..., Awaitable[Found]], *args: object) -> Found:
    """`trio.run`; a signal ends it as KeyboardInterrupt, where nurseries make a group of that."""
    try:
        return trio.run(partial(work, *args))
    except BaseExceptionGroup as group:
        if group.subgroup(KeyboardInterrupt) is None:
            raise
        raise KeyboardInterrupt from None


async def listen(
    call: Callable[[], object], task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
) -> None:
    """Calls it at every signal, until cancelled."""
    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        task_status.started()
        async for _ in signals:
            call()


async def unless_interrupted(work: Callable[[], Awaitable[Found]]) -> Found | None:
    """What it returns; None where a signal ended it early."""
    found: list[Found] = []
    async with trio.open_nursery() as nursery:
        await nursery.start(listen, nursery.cancel_scope.cancel)
        found.append(await work())
        nursery.cancel_scope.cancel()
    return found[0] if found else None
