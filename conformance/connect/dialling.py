"""From a door to a connected socket: by name, by a known address, or with a narrow queue."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial

import trio

from .door import Door
from .wire import Address, NotConnected, Plain, reason_of

FRESH = 30.0  # seconds for which nobody asks the resolver again
PATIENCE = 0.25  # seconds for an address, where its name may have others (RFC 8305 section 5)
Task = Callable[[], Awaitable[None]]


async def dial(door: Door, buffer: int | None = None) -> Plain:
    """A socket to `door`, all the addresses of its name in turn. Raises NotConnected.

    `buffer`: the size of the receive queue in bytes, else as the system likes.
    """
    try:
        if buffer is not None and door.unix is None:
            return await _dial_narrow(*door.dialled, buffer)
        if door.unix is not None:
            stream = await trio.open_unix_socket(door.unix)
        else:
            stream = await trio.open_tcp_stream(*door.dialled)
    except OSError as error:
        raise _not_connected(door, error) from error
    except UnicodeError as error:  # the resolver's IDNA step: empty label, label too long
        raise NotConnected("EAI_NONAME") from error
    return Plain(socket.socket(fileno=stream.socket.detach()))


def _not_connected(door: Door, error: OSError) -> NotConnected:
    proxy = f"the proxy {door.proxy[0]}:{door.proxy[1]}: " if door.proxy else ""
    return NotConnected(proxy + reason_of(error))


async def _dial_narrow(host: str, port: int, buffer: int) -> Plain:
    """A socket whose receive queue is small from the start: later the window is offered already.

    RFC 9293 section 3.8.6: "The receiver SHOULD NOT shrink the window".
    """
    failed: OSError | None = None
    for family, _, _, _, address in await trio.socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM
    ):
        try:
            return await _reach((family, address), buffer)
        except OSError as error:
            failed = error
    raise failed or OSError("no address")


async def _reach(address: Address, buffer: int | None = None) -> Plain:
    """One address, and nothing asked of anybody else. Raises OSError."""
    await trio.lowlevel.checkpoint_if_cancelled()
    sock = socket.socket(address[0], socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        if buffer is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
        number = sock.connect_ex(address[1])
        if number == errno.EINPROGRESS and not _is_connected(sock):
            await trio.lowlevel.wait_writable(sock)
        if number == errno.EINPROGRESS:
            number = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if number != 0:
            raise OSError(number, os.strerror(number))
        return Plain(sock)
    except BaseException:
        sock.close()
        raise


def _is_connected(sock: socket.socket) -> bool:
    """On the same machine the handshake is over before connect() returns, which does not say so."""
    try:
        sock.getpeername()
    except OSError:
        return False
    return True


class Dialler:
    """Dials one door again and again: the address that answered is dialled next time at once.

    A name that is still dialled is looked up again every `FRESH` seconds, beside the way: `spawn`
    gets the task. An address that fails, or that the name no longer has, is forgotten.
    """

    def __init__(self, door: Door, spawn: Callable[[Task], object]) -> None:
        self.door = door
        self._spawn = spawn
        self._fixed = _numeric(door)
        self._known: Address | None = None
        self._looked_up = -FRESH

    async def dial(self) -> Plain:
        """As `dial` of the door. Raises NotConnected."""
        if self._fixed is not None:
            try:
                return await _reach(self._fixed)
            except OSError as error:
                raise _not_connected(self.door, error) from error
        if self._known is not None:
            self._look_again(self._known)
            try:
                with trio.fail_after(PATIENCE):
                    return await _reach(self._known)
            except (OSError, trio.TooSlowError):
                self._known = None
        plain = await dial(self.door)
        if self.door.unix is None:
            self._known, self._looked_up = plain.peer(), trio.current_time()
        return plain

    def _look_again(self, known: Address) -> None:
        if trio.current_time() - self._looked_up >= FRESH:
            self._looked_up = trio.current_time()
            self._spawn(partial(self._look_up, known))

    async def _look_up(self, known: Address) -> None:
        """Forget the address if its name has others now; a resolver that is silent says nothing."""
        try:
            found = await trio.socket.getaddrinfo(*self.door.dialled, type=socket.SOCK_STREAM)
        except OSError:
            return
        if self._known == known and known not in [(family, at) for family, _, _, _, at in found]:
            self._known = None


def _numeric(door: Door) -> Address | None:
    """The address of a door that names one, so that there is nothing to look up."""
    host, port = door.dialled
    if door.unix is not None:
        return None
    for family, address in ((socket.AF_INET, (host, port)), (socket.AF_INET6, (host, port, 0, 0))):
        with suppress(OSError):
            socket.inet_pton(family, host)
            return family, address
    return None
