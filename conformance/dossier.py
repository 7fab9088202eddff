"""Dossier: everything that one provocation produced, frozen; the unit that is saved and judged."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from conformance.capture import Capture, Json

CHAT, COMPLETIONS = "chat", "completions"
APIS = (CHAT, COMPLETIONS)
PATHS = {CHAT: "/chat/completions", COMPLETIONS: "/completions"}


@dataclass(frozen=True, slots=True)
class Sample:
    """One scrape of the server's own metrics, on the captures' clock."""

    at: float
    values: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Action:
    """What one of our sockets did and when: `what` is e.g. "connect", "send", "fin", "rst"."""

    at: float
    what: str
    role: str


@dataclass(frozen=True, slots=True)
class Dossier:
    """The record of one scenario run (or of one judged file: scenario "file", role "stream")."""

    scenario: str
    roles: Mapping[str, tuple[Capture, ...]]
    api: str | None = None  # a member of APIS; None: decided from the path, or unknown
    parameters: Mapping[str, Json] = field(default_factory=dict)
    seed: int | None = None
    trial: int = 0
    picked: Mapping[str, Json] = field(default_factory=dict)  # e.g. {"plain_text": "…"}
    samples: tuple[Sample, ...] = ()
    actions: tuple[Action, ...] = ()
    dialect: str | None = None  # overlay's name, e.g. "azure"
    name: str = ""  # stable within a run; file name when saved

    def own(self) -> Iterator[tuple[str, Capture]]:
        """(role, capture) of what this provocation sent itself.

        `picked["shared"]` (role → how many, the first ones) are answers that another dossier of the
        run holds as well: equal requests are sent once, and each record is whole in itself.
        """
        for role, captures in self.roles.items():
            yield from ((role, capture) for capture in captures[self.shared(role) :])

    def shared(self, role: str) -> int:
        """How many captures of a role another dossier of the run brought."""
        counts = self.picked.get("shared")
        count = counts.get(role) if isinstance(counts, dict) else None
        return count if isinstance(count, int) else 0
