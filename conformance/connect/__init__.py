"""Connecting: one TCP or unix socket, TLS over it where asked, and the ways of leaving it."""

from __future__ import annotations

from conformance import http1

from .dialling import Dialler, dial
from .door import Door
from .tls import Encrypted, TlsFailed, tls_context
from .wire import READ_SIZE, NotConnected, Plain, TlsCut, Wire, reason_of

__all__ = [
    "READ_SIZE",
    "Dialler",
    "Door",
    "NotConnected",
    "TlsCut",
    "TlsFailed",
    "Wire",
    "connect",
    "reason_of",
    "tls_context",
]

PROXY_HEAD = 16 * 1024


async def connect(door: Door, buffer: int | None = None, dialler: Dialler | None = None) -> Wire:
    """A wire to `door`. Raises NotConnected and TlsFailed; waits as long as it takes.

    `buffer`: the size of the receive queue in bytes, else as the system likes. `dialler`: who
    knows the way to the door already.
    """
    plain = await (dial(door, buffer) if dialler is None else dialler.dial())
    try:
        if door.proxy is not None:
            await _tunnel(plain, door)
        if door.tls is None:
            return plain
        encrypted = Encrypted(plain, door.tls, door.host)
        await encrypted.handshake()
        return encrypted
    except BaseException:
        plain.close()
        raise


async def _tunnel(plain: Plain, door: Door) -> None:
    """RFC 9110 section 9.3.6: any 2xx answer to CONNECT opens the tunnel."""
    host, port = door.connect_to or (door.host, door.port)
    authority = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    await plain.send(f"CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n\r\n".encode())
    reader = http1.Reader("CONNECT", max_head=PROXY_HEAD)
    while reader.head is None and not reader.dead:
        # One byte at a time: what follows the head already belongs to the tunnel.
        data, _ = await plain.receive(1)
        if not data:
            raise NotConnected("the proxy closed the connection")
        reader.feed(data)
    if reader.head is None or not 200 <= reader.head.status < 300:
        status = "an unreadable answer" if reader.head is None else str(reader.head.status)
        raise NotConnected(f"the proxy answered CONNECT with {status}")
