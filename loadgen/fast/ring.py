"""A packet socket whose packets lie in memory that the kernel shares with us: PACKET_RX_RING.

Nothing has to run when a packet comes: the kernel notes the headers and the time of each in the
next slot of the ring, and we look at the slots when there is time.
"""

from __future__ import annotations

import ctypes
import mmap
import socket
import struct
from collections.abc import Callable

SLOTS, SLOT_SIZE, BLOCK_SIZE = 32768, 256, 4096
# <linux/if_packet.h>
_SOL_PACKET = 263
_RX_RING, _STATISTICS, _VERSION, _TIMESTAMP, _IGNORE_OUTGOING = 5, 6, 10, 17, 23
_V2 = 1
_ETH_P_ALL = 0x0003
_SO_ATTACH_FILTER = 26
_STAMP_SOFTWARE = 1 << 4  # SOF_TIMESTAMPING_SOFTWARE
_USER = 1  # TP_STATUS_USER: the slot is ours
# struct tpacket2_hdr: tp_status tp_len tp_snaplen tp_mac tp_net tp_sec tp_nsec; 32 bytes, behind
# it a struct sockaddr_ll, whose sll_pkttype is its eleventh byte.
_slot = struct.Struct("=IIIHHII")
_PACKET_TYPE = 32 + 10
_status = struct.Struct("=I")

Take = Callable[[bytes, int, int, int, int], None]


class Ring:
    """`program`: packed instructions of the filter. Raises OSError: EPERM without CAP_NET_RAW."""

    def __init__(self, program: bytes, slots: int = SLOTS) -> None:
        # Without the filter, packets come for a moment, but not into the ring.
        every = socket.htons(_ETH_P_ALL)
        self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, every)
        try:
            self._slots, self._at = slots, 0
            self._memory = self._set_up(program)
        except OSError:
            self._socket.close()
            raise
        self.lost = 0  # packets that found no free slot

    def _set_up(self, program: bytes) -> mmap.mmap:
        ours = self._socket
        self.attach(program)
        ours.setsockopt(_SOL_PACKET, _VERSION, _V2)
        ours.setsockopt(_SOL_PACKET, _TIMESTAMP, _STAMP_SOFTWARE)
        ours.setsockopt(_SOL_PACKET, _IGNORE_OUTGOING, 1)
        size = self._slots * SLOT_SIZE
        request = struct.pack("=IIII", BLOCK_SIZE, size // BLOCK_SIZE, SLOT_SIZE, self._slots)
        ours.setsockopt(_SOL_PACKET, _RX_RING, request)
        return mmap.mmap(ours.fileno(), size)

    def attach(self, program: bytes) -> None:
        """A filter in place of the one before. Raises OSError."""
        filtered = ctypes.create_string_buffer(program)
        fprog = struct.pack("@HP", len(program) // 8, ctypes.addressof(filtered))
        self._socket.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, fprog)

    def drain(self, take: Take) -> None:
        """`take(packet, length, kind, seconds, nanoseconds)` for each that came, in order: its
        beginning, the length that it had, its sll_pkttype, and when it came, in real time.
        """
        memory = self._memory
        while True:
            offset = self._at * SLOT_SIZE
            status, length, kept, _, net, seconds, nanoseconds = _slot.unpack_from(memory, offset)
            if not status & _USER:
                break
            packet = memory[offset + net : offset + net + kept]
            take(packet, length, memory[offset + _PACKET_TYPE], seconds, nanoseconds)
            _status.pack_into(memory, offset, 0)  # the slot is the kernel's again
            self._at = (self._at + 1) % self._slots
        self._count()

    def _count(self) -> None:
        """The kernel begins anew each time it has told."""
        told = self._socket.getsockopt(_SOL_PACKET, _STATISTICS, 8)
        self.lost += int(struct.unpack("=II", told)[1])

    def close(self) -> None:
        """Idempotent."""
        self._memory.close()
        self._socket.close()
