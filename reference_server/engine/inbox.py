"""What others ask of an engine while it steps, in order, from any thread."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from reference_server.engine.interface import Work


@dataclass(frozen=True, slots=True)
class Submit:
    work: Work


@dataclass(frozen=True, slots=True)
class Cancel:
    work: str


@dataclass(frozen=True, slots=True)
class Pause:
    work: str


@dataclass(frozen=True, slots=True)
class Resume:
    work: str


Command = Submit | Cancel | Pause | Resume


class Inbox:
    """Commands in the order of their arrival.

    No lock: `deque.append` and `deque.popleft` are atomic ("Deques support thread-safe,
    memory efficient appends and pops from either side", Python's `collections`).
    """

    def __init__(self) -> None:
        self._commands: deque[Command] = deque()

    def put(self, command: Command) -> None:
        self._commands.append(command)

    def drain(self) -> list[Command]:
        """What is there now. What arrives meanwhile may be left for the next time."""
        return [self._commands.popleft() for _ in range(len(self._commands))]

    def __bool__(self) -> bool:
        return bool(self._commands)


class Verbs:
    """What `interface.Engine` says of submit, cancel, pause and resume, over an inbox."""

    def __init__(self) -> None:
        self._inbox = Inbox()

    def submit(self, work: Work) -> None:
        self._inbox.put(Submit(work))

    def cancel(self, work: str) -> None:
        self._inbox.put(Cancel(work))

    def pause(self, work: str) -> None:
        self._inbox.put(Pause(work))

    def resume(self, work: str) -> None:
        self._inbox.put(Resume(work))
