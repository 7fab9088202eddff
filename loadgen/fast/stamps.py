"""When the kernel received what a read brought: SO_TIMESTAMPING, mapped to the monotonic clock.

The kernel stamps each segment in real time as the network stack gets it, below TLS and whatever the
process does meanwhile; of several segments that one read takes it gives the last one's stamp.
"""

from __future__ import annotations

import socket
import struct
import sys
import time
from collections.abc import Callable, Sequence

# <linux/net_tstamp.h>; SO_TIMESTAMPING is 37 on every architecture that Python runs on but
# alpha, parisc and sparc, where `stamps_work` says no.
SO_TIMESTAMPING = 37
_RX_SOFTWARE, _SOFTWARE = 1 << 3, 1 << 4
ROOM = socket.CMSG_SPACE(48)  # bytes: three struct timespec, the first is the software stamp
AGAIN = 1.0  # seconds between two looks at how real time and the monotonic clock lie
JUMP = 1e-3  # seconds; both clocks are steered alike, so only a step moves one against the other
GRACE = 0.2  # seconds
_TRIES = 3
_timespec = struct.Struct("@qq").unpack_from

Ancillary = Sequence[tuple[int, int, bytes]]


def enable(sock: socket.socket) -> None:
    """Ask for stamps on everything received from now on. Raises OSError where there are none."""
    sock.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPING, _RX_SOFTWARE | _SOFTWARE)


class Stamps:
    """From ancillary data to seconds on the monotonic clock, less `origin`."""

    def __init__(
        self,
        origin: float,
        monotonic: Callable[[], float] = time.monotonic,
        real: Callable[[], int] = time.time_ns,
    ) -> None:
        self._origin = origin
        self._monotonic, self._real = monotonic, real
        self._seconds, self._fraction = self._look()
        self._looked = monotonic()
        self.jumps: list[tuple[float, float]] = []  # when seen, and by how many seconds

    def refresh(self, now: float) -> None:
        """Look again where that is due. `now`: of the monotonic clock."""
        if now - self._looked < AGAIN:
            return
        seconds, fraction = self._look()
        moved = (seconds - self._seconds) + (fraction - self._fraction)
        if abs(moved) > JUMP:
            self.jumps.append((now - self._origin, moved))
        self._seconds, self._fraction, self._looked = seconds, fraction, now

    def at(self, ancillary: Ancillary) -> float | None:
        """None where the kernel gave no stamp."""
        for _, kind, data in ancillary:
            if kind == SO_TIMESTAMPING:
                seconds, nanoseconds = _timespec(data)  # as `moment`, for each read
                return float((seconds - self._seconds) + (nanoseconds * 1e-9 - self._fraction))
        return None

    def moment(self, seconds: int, nanoseconds: int) -> float:
        """A moment of real time on our clock."""
        return (seconds - self._seconds) + (nanoseconds * 1e-9 - self._fraction)

    def _look(self) -> tuple[int, float]:
        """Real time at our origin, whole seconds apart: a float of today's has steps of 0.24 µs.

        The narrowest of a few looks: whoever is interrupted in between sees a wide one.
        """
        _, offset = min(self._once() for _ in range(_TRIES))
        seconds, nanoseconds = divmod(offset, 1_000_000_000)
        return seconds, nanoseconds * 1e-9

    def _once(self) -> tuple[float, int]:
        before = self._monotonic()
        real = self._real()
        after = self._monotonic()
        middle = (before + after) / 2 - self._origin
        return after - before, real - round(middle * 1e9)


def stamps_work() -> bool:
    """Does this machine stamp what its own loopback brings?"""
    keeper = keep_stamping()
    if keeper is not None:
        keeper.close()
    return keeper is not None


def keep_stamping() -> socket.socket | None:
    """A socket that keeps the machine stamping for as long as it is open; None: it does not stamp.

    The first socket that asks turns the stamping on, some time after it asks, and the last one
    turns it off: for up to `GRACE` seconds this blocks.
    """
    if not sys.platform.startswith("linux"):
        return None
    keeper = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    try:
        enable(keeper)
        keeper.bind(("127.0.0.1", 0))
        keeper.settimeout(GRACE)
        until = time.monotonic() + GRACE
        while not _is_stamped(keeper):
            if time.monotonic() > until:
                keeper.close()
                return None
            time.sleep(GRACE / 100)
    except OSError:
        keeper.close()
        return None
    return keeper


def _is_stamped(keeper: socket.socket) -> bool:
    """Is what it tells itself?"""
    stamps = Stamps(0.0)
    sent = time.monotonic()
    keeper.sendto(b"x", keeper.getsockname())
    _, ancillary, _, _ = keeper.recvmsg(1, ROOM)
    at = stamps.at(ancillary)
    return at is not None and sent - JUMP <= at <= time.monotonic() + JUMP
