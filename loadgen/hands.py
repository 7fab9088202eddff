"""A worker as its parent holds it, wherever it runs."""

from __future__ import annotations

from typing import Protocol


class Gone(Exception):
    """It will say nothing more; the message is one line that says why."""


class Hand(Protocol):
    """One worker that was started."""

    async def send(self, data: bytes) -> None:
        """A frame for it. One that is gone does not get it; `receive` says so."""

    async def receive(self) -> bytes:
        """Its next frame. Raises Gone."""

    def end(self) -> None:
        """At once, whatever it does."""
