"""The packet clock: when every byte of every connection had arrived, whatever its reader did.

A packet socket sees each segment before TCP does. Its ring is emptied now and then, and whenever an
exchange has ended: by then all its packets lie there.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Iterable
from dataclasses import replace

import trio

from conformance.capture import Capture, How, Read

from .arrived import Arrivals
from .bpf import OUTGOING, packed, program
from .headers import FIN, HEADERS, RST, SYN, connection, said
from .headers import packed as packed_host
from .ring import BLOCK_SIZE, SLOT_SIZE, Ring
from .stamps import Stamps

AGAIN = 0.05  # seconds between two looks at the ring
STRANGERS = 1024  # connections of others to the same port whose beginning is kept


def reason_against_packets() -> str | None:
    """Why this process cannot see packets, in words; None where it can."""
    try:
        Ring(packed(program(0, (), 0)), slots=BLOCK_SIZE // SLOT_SIZE).close()
    except PermissionError:
        return "it needs the capability CAP_NET_RAW, which root has"
    except (OSError, AttributeError) as error:
        return f"no packet socket on this system ({error})"
    return None


class Packets:
    """Of all that one port of some hosts sends us. Raises OSError: EPERM without CAP_NET_RAW.

    `unknown`: exchanges that the packets seen do not cover, which have the times of their reads.
    """

    def __init__(self, port: int, hosts: Iterable[str], stamps: Stamps) -> None:
        self._port, self._stamps = port, stamps
        self._hosts = {packed_host(host) for host in hosts}
        self._ring = Ring(self._program)
        self._met: dict[bytes, Arrivals] = {}  # connections that nobody has claimed
        self._ours: dict[bytes, Arrivals] = {}
        self.unknown = 0

    @property
    def _program(self) -> bytes:
        return packed(program(self._port, self._hosts, HEADERS))

    @property
    def lost(self) -> int:
        """Packets that came while the ring was full."""
        return self._ring.lost

    def close(self) -> None:
        self._ring.close()

    async def keep_empty(self) -> None:
        """Until cancelled."""
        while True:
            await trio.sleep(AGAIN)
            self.drain()

    def drain(self) -> None:
        """Take in what has come."""
        self._stamps.refresh(time.monotonic())
        self._ring.drain(self._take)

    def _take(self, packet: bytes, length: int, kind: int, seconds: int, nanoseconds: int) -> None:
        # Loopback brings what we send a second time, on its way out.
        found = None if kind == OUTGOING else said(packet, length)
        if found is None:
            return
        name, sequence, data, flags = found
        arrivals = self._ours.get(name)
        if arrivals is None:
            if flags & SYN:
                self._meet(name, sequence)
            return
        at = self._stamps.moment(seconds, nanoseconds)
        if data:
            arrivals.add(sequence, data, at)
        if flags & (FIN | RST):
            arrivals.close(at)

    def _meet(self, name: bytes, sequence: int) -> None:
        self._met.pop(name, None)
        while len(self._met) >= STRANGERS:
            del self._met[next(iter(self._met))]
        self._met[name] = Arrivals(sequence)

    def claim(self, sock: socket.socket) -> Tapped | None:
        """A socket that has just been connected; None: its beginning was not seen."""
        try:
            theirs, ours = sock.getpeername()[:2], sock.getsockname()[:2]
        except OSError:  # the peer is gone already
            return None
        self.drain()
        name = connection(theirs, ours)
        arrivals = self._met.pop(name, None)
        if arrivals is None:
            self._widen(packed_host(theirs[0]))
            return None
        self._ours[name] = arrivals
        return Tapped(self, name, arrivals)

    def _widen(self, host: bytes) -> None:
        """The name has another address now: the next connection to it will be seen."""
        if host not in self._hosts:
            self._hosts.add(host)
            self._ring.attach(self._program)

    def release(self, name: bytes) -> None:
        """The connection is over."""
        self._ours.pop(name, None)


class Tapped:
    """One connection of ours and what its packets say of it."""

    __slots__ = ("_arrivals", "_name", "_packets", "_upto")

    def __init__(self, packets: Packets, name: bytes, arrivals: Arrivals) -> None:
        self._packets, self._name, self._arrivals = packets, name, arrivals
        self._upto: int | None = None  # bytes of the connection that have been read

    def begin(self, early: int, waiting: int) -> None:
        """An exchange begins: so many bytes were read just now, so many wait."""
        if self._upto is not None:
            self._upto += early
            return
        self._packets.drain()
        self._upto = self._arrivals.end - waiting

    def timed(self, capture: Capture) -> Capture:
        """The exchange that has ended, by the packet clock; as it is where packets are missing."""
        if self._upto is None:
            return capture
        self._packets.drain()
        start, end = self._upto, self._upto + len(capture.received)
        self._upto = end + len(capture.late)
        steps = self._arrivals.between(start, end)
        if steps is None:
            self._packets.unknown += 1
            return capture
        reads = tuple(Read(*step) for step in steps)
        ended = capture.end
        if ended.how is How.FRAMED and reads:
            ended = replace(ended, at=reads[-1].at)
        elif ended.how in (How.CLOSED, How.RESET) and self._arrivals.closed_at is not None:
            # A FIN may overtake bytes that were lost and sent again.
            last = reads[-1].at if reads and reads[-1].at is not None else 0.0
            ended = replace(ended, at=max(self._arrivals.closed_at, last))
        return replace(capture, reads=reads, end=ended, clock="packet")

    def close(self) -> None:
        """Idempotent."""
        self._packets.release(self._name)
