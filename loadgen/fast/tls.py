"""A connection under TLS, read as its socket would be: plaintext, with the stamp of the ciphertext.

A record can be decrypted once its last byte is there, and the stamp of a read is of the last
segment that it took from: the very moment at which the plaintext could have been had. Only where
ciphertext followed that told nothing yet, or may lie there still, the stamp is too late: a bound.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

from conformance.capture import Capture
from conformance.connect import Encrypted


class Decrypted:
    """One connection of ours, and what was read of it in this exchange."""

    __slots__ = ("_again", "_given", "_late", "_recvmsg", "_wire")

    def __init__(self, wire: Encrypted) -> None:
        self._wire = wire
        self._recvmsg = wire.raw.recvmsg
        self._again: Callable[[], None]
        self._given = 0  # bytes of plaintext
        self._late: set[int] = set()  # so many had been given after reads with too late a stamp

    def begin(self, again: Callable[[], None]) -> None:
        """An exchange begins. `again`: to be called where more may wait than was read."""
        self._again = again
        self._given = 0
        self._late.clear()
        self._tell_end()

    def end(self) -> None:
        """It is over. Whoever is called holds this: a circle, not freed while a load lasts."""
        del self._again

    def read(self, size: int, room: int) -> tuple[bytes, Any, int, Any]:
        """As recvmsg of a socket. Raises TlsCut besides."""
        wire = self._wire
        if wire.is_over:
            return wire.decrypted() or b"", (), 0, None
        data, ancillary, flags, address = self._recvmsg(size, room)
        found = wire.opened(data)
        if len(data) == size:
            self._again()
        if found is None:
            raise BlockingIOError
        self._given += len(found)
        if len(data) == size or not wire.ends_alike:
            self._late.add(self._given)
            self._tell_end()
        return found, ancillary, flags, address

    def _tell_end(self) -> None:
        """Who waits for the socket hears of an end that came together with other bytes."""
        if self._wire.is_over:
            with suppress(OSError):  # the peer is gone: nothing need be told
                self._wire.raw.shutdown(socket.SHUT_RD)

    def timed(self, capture: Capture) -> Capture:
        """The exchange that has ended: stamps that are too late leave their reads bounds."""
        if not self._late:
            return capture
        late = {min(given, len(capture.received)) for given in self._late}
        reads = (
            read._replace(emptied=False) if read.end in late and read.emptied else read
            for read in capture.reads
        )
        return replace(capture, reads=tuple(reads))
