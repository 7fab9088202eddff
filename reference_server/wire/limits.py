"""What connections may cost, one by one and together. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """What one connection may cost. Sizes in bytes, times in seconds."""

    head: int = 64 * 1024
    body: int = 4 * 1024 * 1024
    ahead: int = 256 * 1024  # bytes of the next request read while this answer is made
    idle: float = 75.0  # between two requests
    request: float = 30.0  # from a request's first byte to its last
    write: float = 30.0  # one write to a client that does not read
    bodies: int = 64 * 1024 * 1024  # bytes of request bodies over all connections
    small: int = 64 * 1024  # bytes of a body that are always taken
    send_buffer: int | None = None  # bytes in the kernel; None: as it thinks fit
    linger: float = 2.0  # reading on after an early refusal, so that the peer can read it


class Bodies:
    """The bytes of request bodies that all connections hold, beyond the small ones."""

    def __init__(self, most: int) -> None:
        self._most = most
        self.held = 0

    def grow(self, change: int) -> bool:
        """False where there is no room for that many more."""
        if change > 0 and self.held + change > self._most:
            return False
        self.held += change
        return True
