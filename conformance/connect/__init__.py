"""Connecting: one TCP or unix socket, TLS over it where asked, and the ways of leaving it."""

from __future__ import annotations

import socket
import ssl
from dataclasses import dataclass

import trio

from conformance import http1

from .tls import Encrypted, TlsFailed, tls_context
from .wire import READ_SIZE, NotConnected, Plain, TlsCut, Wire, reason_of

__all__ = [
    "READ_SIZE",
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


@dataclass(frozen=True, slots=True)
class Door:
    """Where to connect: `host` and `port` as the URL names them, and the detours.

    `unix` is the path of a socket file; `connect_to` another (host, port) to dial in place of the
    URL's; `proxy` the (host, port) of an HTTP proxy that is asked with CONNECT. `tls` None is
    plain TCP; the name that is sent (SNI) and verified is `host`.
    """

    host: str
    port: int
    unix: str | None = None
    connect_to: tuple[str, int] | None = None
    proxy: tuple[str, int] | None = None
    tls: ssl.SSLContext | None = None


async def connect(door: Door, buffer: int | None = None) -> Wire:
    """A wire to `door`. Raises NotConnected and TlsFailed; waits as long as it takes.

    `buffer`: the size of the receive queue in bytes, else as the system likes.
    """
    plain = await _dial(door, buffer)
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


async def _dial(door: Door, buffer: int | None) -> Plain:
    try:
        if buffer is not None and door.unix is None:
            return await _dial_narrow(*_address(door), buffer)
        if door.unix is not None:
            stream = await trio.open_unix_socket(door.unix)
        else:
            stream = await trio.open_tcp_stream(*_address(door))
    except OSError as error:
        proxy = f"the proxy {door.proxy[0]}:{door.proxy[1]}: " if door.proxy else ""
        raise NotConnected(proxy + reason_of(error)) from error
    except UnicodeError as error:  # the resolver's IDNA step: empty label, label too long
        raise NotConnected("EAI_NONAME") from error
    return Plain(socket.socket(fileno=stream.socket.detach()))


def _address(door: Door) -> tuple[str, int]:
    return door.proxy or door.connect_to or (door.host, door.port)


async def _dial_narrow(host: str, port: int, buffer: int) -> Plain:
    """A socket whose receive queue is small from the start: later the window is offered already.

    RFC 9293 section 3.8.6: "The receiver SHOULD NOT shrink the window".
    """
    failed: OSError | None = None
    for family, kind, proto, _, address in await trio.socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM
    ):
        sock = trio.socket.socket(family, kind, proto)
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
            await sock.connect(address)
            return Plain(socket.socket(fileno=sock.detach()))
        except OSError as error:
            failed = error
        finally:
            sock.close()  # nothing is left of it once it was detached
    raise failed or OSError("no address")


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
