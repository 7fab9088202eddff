"""Connecting: one TCP or unix socket, TLS over it where asked, and the ways of leaving it."""

from __future__ import annotations

from .dialling import Dialler, dial
from .door import Door
from .tls import Encrypted, TlsFailed, tls_context
from .tunnel import tunnel
from .wire import READ_SIZE, NotConnected, TlsCut, Wire, reason_of

__all__ = [
    "READ_SIZE",
    "Dialler",
    "Door",
    "Encrypted",
    "NotConnected",
    "TlsCut",
    "TlsFailed",
    "Wire",
    "connect",
    "reason_of",
    "tls_context",
]


async def connect(door: Door, buffer: int | None = None, dialler: Dialler | None = None) -> Wire:
    """A wire to `door`. Raises NotConnected and TlsFailed; waits as long as it takes.

    `buffer`: the size of the receive queue in bytes, else as the system likes. `dialler`: who
    knows the way to the door already.
    """
    plain = await (dial(door, buffer) if dialler is None else dialler.dial())
    try:
        if door.proxy is not None:
            await tunnel(plain, door)
        if door.tls is None:
            return plain
        encrypted = Encrypted(plain, door.tls, door.host)
        await encrypted.handshake()
        return encrypted
    except BaseException:
        plain.close()
        raise
