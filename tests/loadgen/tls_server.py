"""A server's side of TLS over memory, so that a test says which bytes leave when."""

from __future__ import annotations

import socket
import ssl
from contextlib import suppress
from functools import cache

import trio
import trustme

from conformance.connect import Door, tls_context


@cache
def contexts() -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """A server's and a client's that trusts it."""
    authority, server = trustme.CA(), ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(server)
    with authority.cert_pem.tempfile() as path:
        return server, tls_context(cacert=path)


def door(listener: socket.socket, tls: bool) -> Door:
    """To it."""
    return Door("127.0.0.1", listener.getsockname()[1], tls=contexts()[1] if tls else None)


def accepted(listener: socket.socket, tls: bool) -> socket.socket:
    """The next connection; it waits, for the handshake too."""
    sock = listener.accept()[0]
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return contexts()[0].wrap_socket(sock, server_side=True) if tls else sock


class Sealing:
    """Of one connection. What it makes are records, to be sent over `raw` as the test likes."""

    def __init__(self, raw: trio.SocketStream, context: ssl.SSLContext) -> None:
        self.raw = raw
        self._inward, self._outward = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._inward, self._outward, server_side=True)

    async def handshake(self, *, tickets: bool = True) -> None:
        """`tickets`: leave at once, as is usual; else together with the first record."""
        while True:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                await self.raw.send_all(self._outward.read())
                await self._fill()
            else:
                break
        if tickets:
            await self.raw.send_all(self._outward.read())

    async def _fill(self) -> None:
        data = await self.raw.receive_some(65536)
        if not data:
            raise trio.ClosedResourceError
        self._inward.write(data)

    async def receive(self, length: int) -> None:
        """So many bytes of plaintext."""
        while length:
            try:
                length -= len(self._tls.read(length))
            except ssl.SSLWantReadError:
                await self._fill()

    def opened(self, data: bytes) -> bytes:
        """All the plaintext of that."""
        self._inward.write(data)
        found = bytearray()
        with suppress(ssl.SSLWantReadError):
            while True:
                found += self._tls.read(65536)
        return bytes(found)

    def sealed(self, *plaintexts: bytes) -> bytes:
        """A record of each, or several where it is too long."""
        for plaintext in plaintexts:
            self._tls.write(plaintext)
        return self._outward.read()

    def goodbye(self) -> bytes:
        """close_notify."""
        with suppress(ssl.SSLError):  # the peer's has not come
            self._tls.unwrap()
        return self._outward.read()

    def alert(self) -> bytes:
        """What a server says that was sent nonsense."""
        self._inward.write(b"\x17\x03\x03\x00\x20" + b"x" * 32)
        with suppress(ssl.SSLError):
            self._tls.read(1)
        return self._outward.read()
