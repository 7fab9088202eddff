"""A step gate: an engine that steps when it gets a ticket, and what came out of each step.

End states hide what clients feel: who was served first, and how many steps it took. With the gate a
test lets one step through, looks, says something, and lets the next one through.
"""

from __future__ import annotations

from collections.abc import Iterable

from reference_server.engine.interface import Delta, Engine, Event, Work


class Gate:
    """`steps` keeps the events of each step that was let through."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.steps: list[list[Event]] = []

    def step(self, tickets: int = 1) -> list[Event]:
        """Let so many steps through. What the last of them gave."""
        for _ in range(tickets):
            self.steps.append(list(self.engine.step()))
        return self.steps[-1]

    def finish(self) -> list[Event]:
        """Step until nothing moves any more."""
        before = len(self.steps)
        while not self.engine.idle:
            self.step()
        return [event for events in self.steps[before:] for event in events]

    def run(self, *works: Work) -> list[Event]:
        for work in works:
            self.engine.submit(work)
        return self.finish()


def deltas(events: Iterable[Event], name: str, choice: int = 0) -> list[Delta]:
    mine = (event for event in events if isinstance(event, Delta) and event.work == name)
    return [delta for delta in mine if delta.choice == choice]


def text(events: Iterable[Event], name: str, choice: int = 0) -> str:
    return "".join(delta.text for delta in deltas(events, name, choice))


def ids(events: Iterable[Event], name: str, choice: int = 0) -> tuple[int, ...]:
    return tuple(token for delta in deltas(events, name, choice) for token in delta.token_ids)


def kinds(events: Iterable[Event]) -> list[tuple[str, str]]:
    return [(type(event).__name__, event.work) for event in events]
