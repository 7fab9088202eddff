"""Through an HTTP proxy: CONNECT, and who we are where it wants to know."""

from __future__ import annotations

import base64

from conformance import http1

from .door import Door
from .wire import NotConnected, Plain

PROXY_HEAD = 16 * 1024


async def tunnel(plain: Plain, door: Door) -> None:
    """RFC 9110 section 9.3.6: any 2xx answer to CONNECT opens the tunnel. Raises NotConnected."""
    host, port = door.connect_to or (door.host, door.port)
    authority = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    lines = [f"CONNECT {authority} HTTP/1.1", f"Host: {authority}", *_authorization(door), "", ""]
    await plain.send("\r\n".join(lines).encode())
    reader = http1.Reader("CONNECT", max_head=PROXY_HEAD)
    while reader.head is None and not reader.dead:
        # One byte at a time: what follows the head already belongs to the tunnel.
        data, _ = await plain.receive(1)
        if not data:
            raise NotConnected("the proxy closed the connection")
        reader.feed(data)
    if reader.head is None:
        raise NotConnected("the proxy answered CONNECT with an unreadable answer")
    if not 200 <= reader.head.status < 300:
        said = f"the proxy answered CONNECT with {reader.head.status}"
        raise NotConnected(said + (_why(door) if reader.head.status == 407 else ""))


def _authorization(door: Door) -> list[str]:
    """RFC 7617 section 2: user-id, a colon and the password, in base64; here in UTF-8."""
    if door.login is None:
        return []
    token = base64.b64encode(":".join(door.login).encode()).decode("ascii")
    return [f"Proxy-Authorization: Basic {token}"]


def _why(door: Door) -> str:
    if door.login is None:
        return ": it wants a user and a password, http://USER:PASSWORD@HOST:PORT"
    return ": it does not accept this user and password"
