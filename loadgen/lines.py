"""Connections as recorders give them, and those that idle between two requests."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Protocol, TypeGuard, runtime_checkable

from conformance.capture import Capture
from conformance.script import Exchange


class Line(Protocol):
    """A connection as a recorder gives it; see conformance.recorder.Connection."""

    @property
    def usable(self) -> bool: ...
    @property
    def is_quiet(self) -> bool: ...
    async def exchange(self, script: Exchange, /) -> Capture: ...
    def close(self) -> None: ...


@runtime_checkable
class Prompt(Protocol):
    """A connection that can send at once; its `exchange` goes on from there."""

    def begin(self, script: Exchange, /) -> None: ...


def can_send_at_once(line: Line | None) -> TypeGuard[Prompt]:
    return isinstance(line, Prompt)


class Records(Protocol):
    """Who records: conformance's Recorder or the fast one."""

    def now(self) -> float: ...
    def connection(self) -> AbstractAsyncContextManager[Line]: ...


class Pool:
    """Idle connections, the freshest first."""

    def __init__(self, recorder: Records) -> None:
        self._recorder = recorder
        self._idle: list[Line] = []
        self._stack = AsyncExitStack()

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """All are closed at the end."""
        async with self._stack:
            yield

    def ready(self) -> Line | None:
        """An idle connection for one exchange; None: there is none."""
        while self._idle:
            connection = self._idle.pop()
            if connection.is_quiet:  # the peer may have closed what it promised to keep
                return connection
            connection.close()
        return None

    async def new(self) -> Line:
        return await self._stack.enter_async_context(self._recorder.connection())

    def give(self, connection: Line) -> None:
        if connection.usable:
            self._idle.append(connection)
