"""Connecting: one TCP or unix socket, TLS over it where asked, and the ways of leaving it.

The sockets are the standard library's, non-blocking, waited for with trio: the recorder must know
how many bytes wait, must be able to look without waiting, and must choose between FIN and RST.
TLS runs over memory buffers for the same reasons, and because "closed without close_notify" must
stay visible.
"""

from __future__ import annotations

import errno
import fcntl
import socket
import ssl
import struct
import termios
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

import trio

from conformance import http1
from conformance.errors import UsageError

READ_SIZE = 64 * 1024
DRAIN_AT_MOST = 4 * 1024 * 1024
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


class NotConnected(Exception):
    """No connection to the peer; the message is an errno name or a resolver's reason."""


class TlsFailed(Exception):
    """The TLS handshake failed; the message is OpenSSL's reason in one line."""


class TlsCut(Exception):
    """The peer closed TCP without close_notify (RFC 8446 section 6.1: a truncation)."""


class Wire(Protocol):
    """One open connection, after TLS. No method but `send` and `receive` waits."""

    async def send(self, data: bytes) -> None:
        """Hand all of `data` to the socket. Raises OSError."""

    async def receive(self) -> tuple[bytes, bool | None]:
        """At least one byte, or b"" at the peer's close; did this read empty the queue?

        Raises OSError (reset) and TlsCut.
        """

    def peek(self) -> bytes:
        """What waits now, taken off the queue; b"" if nothing does (or the peer has closed)."""

    def waiting(self) -> int | None:
        """Bytes in the socket's queue that nobody has read, None where the system cannot say."""

    def leave(self, how: str) -> None:
        """Leave as a member of capture.LEAVES says; "half" keeps the reading side."""

    def close(self) -> None:
        """Close without ceremony. Idempotent."""


def tls_context(
    *,
    cacert: str | None = None,
    cert: str | None = None,
    key: str | None = None,
    insecure: bool = False,
) -> ssl.SSLContext:
    """A client's context that offers HTTP/1.1 alone. Raises UsageError for unreadable files."""
    try:
        context = ssl.create_default_context(cafile=cacert)
        if cert is not None:
            context.load_cert_chain(cert, key)
    except (OSError, ssl.SSLError) as error:
        files = ", ".join(name for name in (cacert, cert, key) if name)
        raise UsageError(f"cannot load TLS files ({files}): {error}") from error
    if insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["http/1.1"])
    context.options |= ssl.OP_NO_RENEGOTIATION
    return context


async def connect(door: Door) -> Wire:
    """A wire to `door`. Raises NotConnected and TlsFailed; waits as long as it takes."""
    plain = await _dial(door)
    try:
        if door.proxy is not None:
            await _tunnel(plain, door)
        if door.tls is None:
            return plain
        encrypted = _Encrypted(plain, door.tls, door.host)
        await encrypted.handshake()
        return encrypted
    except BaseException:
        plain.close()
        raise


async def _dial(door: Door) -> _Plain:
    try:
        if door.unix is not None:
            stream = await trio.open_unix_socket(door.unix)
        else:
            host, port = door.proxy or door.connect_to or (door.host, door.port)
            stream = await trio.open_tcp_stream(host, port)
    except OSError as error:
        raise NotConnected(reason_of(error)) from error
    except UnicodeError as error:  # the resolver's IDNA step: empty label, label too long
        raise NotConnected("EAI_NONAME") from error
    return _Plain(socket.socket(fileno=stream.socket.detach()))


def reason_of(error: OSError) -> str:
    """The errno's name, e.g. ECONNREFUSED; the resolver's or OpenSSL's reason for theirs."""
    if isinstance(error, ssl.SSLError):  # its errno is OpenSSL's own number
        return tls_reason(error)
    causes = [error, *_leaves(error.__cause__)]
    for cause in reversed(causes):
        if isinstance(cause, socket.gaierror):
            return _resolver_name(cause)
        if isinstance(cause, OSError) and cause.errno is not None:
            return errno.errorcode.get(cause.errno, str(cause.errno))
    return str(error) or type(error).__name__


def _leaves(error: BaseException | None) -> list[BaseException]:
    if error is None:
        return []
    if isinstance(error, BaseExceptionGroup):
        return [leaf for inner in error.exceptions for leaf in _leaves(inner)]
    return [error]


def _resolver_name(error: socket.gaierror) -> str:
    names = {getattr(socket, n): n for n in dir(socket) if n.startswith("EAI_")}
    return str(names.get(error.errno, "EAI_NONAME"))


async def _tunnel(plain: _Plain, door: Door) -> None:
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


class _Plain:
    """A TCP or unix socket."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        if sock.family in (socket.AF_INET, socket.AF_INET6):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket = sock

    async def send(self, data: bytes) -> None:
        view = memoryview(data)
        await trio.lowlevel.checkpoint()
        while view:
            try:
                view = view[self._socket.send(view) :]
            except BlockingIOError:
                await trio.lowlevel.wait_writable(self._socket)

    def push(self, data: bytes) -> None:
        """Send what the socket takes without waiting; the rest is dropped."""
        with suppress(OSError):  # the peer is gone or does not read
            self._socket.send(data)

    async def receive(self, limit: int = READ_SIZE) -> tuple[bytes, bool | None]:
        # Without this a peer that always has a byte ready would keep our clocks from running.
        await trio.lowlevel.checkpoint()
        while True:
            try:
                data = self._socket.recv(limit)
            except BlockingIOError:
                await trio.lowlevel.wait_readable(self._socket)
            else:
                waiting = self.waiting()
                return data, None if waiting is None else waiting == 0

    def peek(self) -> bytes:
        try:
            return self._socket.recv(READ_SIZE)
        except OSError:  # nothing there, or an error that the next receive will meet as well
            return b""

    def waiting(self) -> int | None:
        try:
            answer = fcntl.ioctl(self._socket, termios.FIONREAD, b"\0" * 4)
        except OSError:
            return None
        return int(struct.unpack("i", answer)[0])

    def leave(self, how: str) -> None:
        if how == "rst":
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self._socket.close()
            return
        with suppress(OSError):  # ENOTCONN: the peer was faster
            self._socket.shutdown(socket.SHUT_WR if how == "half" else socket.SHUT_RDWR)
        if how == "fin":
            self._drain()
            self._socket.close()

    def _drain(self) -> None:
        """Linux answers close() with RST if anything lies unread, even after shutdown()."""
        left = DRAIN_AT_MOST
        while left > 0 and (data := self.peek()):
            left -= len(data)

    def close(self) -> None:
        self._socket.close()


class _Encrypted:
    """TLS over a `_Plain`."""

    def __init__(self, plain: _Plain, context: ssl.SSLContext, name: str) -> None:
        self._plain = plain
        self._inward, self._outward = ssl.MemoryBIO(), ssl.MemoryBIO()
        try:
            self._tls = context.wrap_bio(self._inward, self._outward, server_hostname=name)
        except ValueError as error:  # a name that cannot be sent, e.g. empty
            raise TlsFailed(str(error)) from error
        self._sending = trio.Lock()

    async def handshake(self) -> None:
        try:
            while True:
                try:
                    self._tls.do_handshake()
                except ssl.SSLWantReadError:
                    await self._flush()
                    await self._fill()
                else:
                    return await self._flush()
        except TlsCut as error:
            raise TlsFailed("the peer closed the connection during the handshake") from error
        except ssl.SSLError as error:
            await self._say_goodbye()
            raise TlsFailed(tls_reason(error)) from error
        except OSError as error:
            raise TlsFailed(reason_of(error)) from error

    async def _say_goodbye(self) -> None:
        """Send the alert that tells the server why, if the socket takes it."""
        with suppress(OSError):  # the reason is already known; the alert was a courtesy
            await self._flush()

    async def send(self, data: bytes) -> None:
        self._tls.write(data)
        await self._flush()

    async def receive(self) -> tuple[bytes, bool | None]:
        while True:
            data = self._decrypted()
            if data is not None:
                waiting = self._plain.waiting()
                pending = self._tls.pending() or self._inward.pending
                return data, None if waiting is None else not (waiting or pending)
            await self._flush()
            await self._fill()

    def _decrypted(self) -> bytes | None:
        """Decrypted bytes, b"" after close_notify, None if the peer must send more first."""
        try:
            return self._tls.read(READ_SIZE)
        except ssl.SSLWantReadError:
            if self._inward.eof:
                raise TlsCut from None
            return None
        except ssl.SSLZeroReturnError:
            return b""
        except ssl.SSLEOFError as error:
            raise TlsCut from error

    async def _fill(self) -> None:
        data, _ = await self._plain.receive()
        if data:
            self._inward.write(data)
        elif self._inward.eof:
            raise TlsCut
        else:
            self._inward.write_eof()

    async def _flush(self) -> None:
        async with self._sending:
            if data := self._outward.read():
                await self._plain.send(data)

    def peek(self) -> bytes:
        if data := self._plain.peek():
            self._inward.write(data)
        try:
            return self._decrypted() or b""
        except (TlsCut, OSError):  # the next receive will meet it as well
            return b""

    def waiting(self) -> int | None:
        """Ciphertext counts as it lies in the queue; what is decrypted already counts too."""
        waiting = self._plain.waiting()
        return None if waiting is None else waiting + self._tls.pending()

    def leave(self, how: str) -> None:
        if how != "rst":
            self._close_notify()
        self._plain.leave(how)

    def _close_notify(self) -> None:
        """RFC 8446 section 6.1: each party must send close_notify before closing its write side."""
        with suppress(OSError):  # SSLWantReadError: ours is written, the peer's has not come
            self._tls.unwrap()
        self._plain.push(self._outward.read())

    def close(self) -> None:
        self._plain.close()


def tls_reason(error: ssl.SSLError) -> str:
    """OpenSSL's reason in one line, e.g. "certificate verify failed: Hostname mismatch…"."""
    reason = (error.reason or str(error)).replace("_", " ").lower()
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"{reason}: {error.verify_message}"
    return reason
