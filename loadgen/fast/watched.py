"""A stream on its socket, and the task that waits for its end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import trio

from conformance.capture import End
from conformance.connect import Encrypted
from conformance.connect.wire import Plain

from .stream import Stream


@dataclass(slots=True, weakref_slot=True)
class Watched:
    """`read`: as its recvmsg. `last`: when what was read last had come, once it is calm."""

    stream: Stream
    wire: Plain | Encrypted
    read: Callable[[int, int], tuple[bytes, Any, int, Any]] = field(init=False)
    number: int = field(init=False)  # the descriptor
    last: float | None = None
    _task: trio.lowlevel.Task | None = None

    def __post_init__(self) -> None:
        self.read = self.wire.raw.recvmsg
        self.number = self.wire.raw.fileno()

    async def ended(self) -> End:
        """Wait for the end."""
        if self.stream.end is None:
            self._task = trio.lowlevel.current_task()

            def abort(_: object) -> trio.lowlevel.Abort:
                self._task = None
                return trio.lowlevel.Abort.SUCCEEDED

            await trio.lowlevel.wait_task_rescheduled(abort)
        assert self.stream.end is not None
        return self.stream.end

    def tell(self) -> None:
        """Whoever waits for the end goes on, if he has not gone away."""
        if self._task is not None:
            trio.lowlevel.reschedule(self._task)
            self._task = None
