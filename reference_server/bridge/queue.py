"""The events that a client has not been sent yet, in order, counted and weighed. Pure."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from reference_server.bridge.policy import BEHIND, SlowPolicy, merged, weight
from reference_server.engine.interface import Delta, Event


@dataclass(slots=True)
class Books:
    """What all streams together hold and what became of the slow ones. One for each server."""

    events: int = 0
    bytes: int = 0
    most_events: int = 0  # that one stream ever held
    most_bytes: int = 0
    merged: int = 0  # events that were put into an earlier one
    pauses: int = 0
    dropped: int = 0  # streams that ended for their reader's slowness


@dataclass(frozen=True, slots=True)
class Share:
    """What one exchange holds. `id` is the last part of its answer's id."""

    id: str
    events: int
    bytes: int
    paused: bool


@dataclass(slots=True)
class _Held:
    event: Event
    weight: int


class Queue:
    """Events by their arrival. `choices` of the request may each give one event a step."""

    def __init__(self, policy: SlowPolicy, choices: int, books: Books) -> None:
        self._policy, self._choices, self._books = policy, choices, books
        self._held: deque[_Held] = deque()
        self._last: dict[tuple[str, int], _Held] = {}  # each choice's latest one that is held
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._held)

    @property
    def bytes(self) -> int:
        """About what the events take when they are written."""
        return self._bytes

    def put(self, event: Event) -> None:
        if isinstance(event, Delta):
            self._delta(event)
        else:
            self._append(event)
        self._books.most_events = max(self._books.most_events, len(self._held))
        self._books.most_bytes = max(self._books.most_bytes, self._bytes)

    def _delta(self, delta: Delta) -> None:
        key = (delta.work, delta.choice)
        last = self._last.get(key)
        if last is not None and self._policy.merges and self._late(BEHIND):
            assert isinstance(last.event, Delta)
            self._books.merged += 1
            self._weigh(-last.weight)
            last.event = merged(last.event, delta)
            last.weight = weight(last.event)
            self._weigh(last.weight)
        else:
            self._last[key] = self._append(delta)

    def _append(self, event: Event) -> _Held:
        held = _Held(event, weight(event))
        self._held.append(held)
        self._books.events += 1
        self._weigh(held.weight)
        return held

    def take(self) -> Event:
        """The oldest. Raises IndexError when nothing is held."""
        held = self._held.popleft()
        self._books.events -= 1
        self._weigh(-held.weight)
        event = held.event
        if isinstance(event, Delta) and self._last.get((event.work, event.choice)) is held:
            del self._last[event.work, event.choice]
        return event

    def clear(self) -> None:
        while self._held:
            self.take()

    @property
    def full(self) -> bool:
        """At a high-water mark. A few steps may always be held, however long their events are."""
        most = self._policy
        return self._late(most.steps) or (self._bytes >= most.size and self._late(4))

    @property
    def low(self) -> bool:
        """Down at the low-water marks."""
        most = self._policy
        return not self._late(most.steps / 4) and (
            self._bytes <= most.size / 4 or not self._late(1)
        )

    def _late(self, steps: float) -> bool:
        return len(self._held) >= steps * self._choices

    def _weigh(self, change: int) -> None:
        self._bytes += change
        self._books.bytes += change
