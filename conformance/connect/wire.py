"""One open connection without TLS, and what can be said of any.

The sockets are the standard library's, non-blocking, waited for with trio: the recorder must know
how many bytes wait, must be able to look without waiting, and must choose between FIN and RST.
"""

from __future__ import annotations

import errno
import fcntl
import socket
import ssl
import struct
import termios
from contextlib import suppress
from typing import Any, Protocol

import trio

READ_SIZE = 64 * 1024
DRAIN_AT_MOST = 4 * 1024 * 1024
Address = tuple[int, Any]  # family and socket address, which are of many kinds


class NotConnected(Exception):
    """No connection to the peer; the message is an errno name or a resolver's reason."""


class TlsCut(Exception):
    """The peer closed TCP without close_notify (RFC 8446 section 6.1: a truncation)."""


class Wire(Protocol):
    """One open connection, after TLS. No method but `send` and `receive` waits."""

    async def send(self, data: bytes) -> None:
        """Hand all of `data` to the socket. Raises OSError."""

    async def receive(self, limit: int = READ_SIZE) -> tuple[bytes, bool | None]:
        """1 to `limit` bytes, or b"" at the peer's close; did this read empty the queue?

        Raises OSError (reset) and TlsCut.
        """

    def peek(self) -> bytes:
        """What waits now, taken off the queue; b"" if nothing does (or the peer has closed)."""

    def waiting(self) -> int | None:
        """Bytes in the socket's queue that nobody has read, None where the system cannot say."""

    def is_quiet(self) -> bool:
        """Is it open with nothing to read, as an idle connection should be?"""

    def leave(self, how: str) -> None:
        """Leave as a member of capture.LEAVES says; "half" keeps the reading side."""

    def close(self) -> None:
        """Close without ceremony. Idempotent."""


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


def tls_reason(error: ssl.SSLError) -> str:
    """OpenSSL's reason in one line, e.g. "certificate verify failed: Hostname mismatch…"."""
    reason = (error.reason or str(error)).replace("_", " ").lower()
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"{reason}: {error.verify_message}"
    return reason


class Plain:
    """A TCP or unix socket."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        if sock.family in (socket.AF_INET, socket.AF_INET6):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket = sock
        self._is_greedy = False  # the last read did not wait

    @property
    def raw(self) -> socket.socket:
        """The socket itself, for whoever reads it in a way of their own."""
        return self._socket

    def peer(self) -> Address | None:
        """The address at the other end, None where the connection is over already."""
        with suppress(OSError):
            return self._socket.family, self._socket.getpeername()
        return None

    async def send(self, data: bytes) -> None:
        """What the socket takes goes out before anybody else runs."""
        await trio.lowlevel.checkpoint_if_cancelled()
        view = memoryview(data)
        while view:
            try:
                view = view[self._socket.send(view) :]
            except BlockingIOError:
                await trio.lowlevel.wait_writable(self._socket)

    def send_now(self, data: bytes) -> bytes | None:
        """Send what the socket takes without waiting. What is left for `send`; None: nothing is.

        Raises OSError.
        """
        try:
            sent = self._socket.send(data)
        except BlockingIOError:
            return data
        return data[sent:] if sent < len(data) else None

    async def receive(self, limit: int = READ_SIZE) -> tuple[bytes, bool | None]:
        if self._is_greedy:
            # Without this a peer that always has a byte ready would keep our clocks from running.
            await trio.lowlevel.checkpoint()
        else:
            await trio.lowlevel.checkpoint_if_cancelled()
        self._is_greedy = True
        while True:
            try:
                data = self._socket.recv(limit)
            except BlockingIOError:
                await trio.lowlevel.wait_readable(self._socket)
                self._is_greedy = False
            else:
                waiting = self.waiting()
                return data, None if waiting is None else waiting == 0

    def peek(self) -> bytes:
        if self.waiting() == 0:
            return b""  # an error is there for the first who reads: the next receive
        try:
            return self._socket.recv(READ_SIZE)
        except OSError:
            return b""

    def waiting(self) -> int | None:
        try:
            answer = fcntl.ioctl(self._socket, termios.FIONREAD, b"\0" * 4)
        except OSError:
            return None
        return int(struct.unpack("i", answer)[0])

    def is_quiet(self) -> bool:
        try:
            self._socket.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return True
        except OSError:  # reset
            return False
        return False  # a byte that nobody asked for, or the peer's close

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
