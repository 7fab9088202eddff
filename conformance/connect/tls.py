"""TLS over memory buffers: a close without close_notify must stay visible, FIN and RST ours."""

from __future__ import annotations

import ssl
from contextlib import suppress

import trio

from conformance.errors import UsageError

from .wire import READ_SIZE, Plain, TlsCut, reason_of, tls_reason


class TlsFailed(Exception):
    """The TLS handshake failed; the message is OpenSSL's reason in one line."""


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


class Encrypted:
    """TLS over a `Plain`."""

    def __init__(self, plain: Plain, context: ssl.SSLContext, name: str) -> None:
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
        except (TlsCut, ssl.SSLEOFError) as error:
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

    async def receive(self, limit: int = READ_SIZE) -> tuple[bytes, bool | None]:
        while True:
            data = self._decrypted(limit)
            if data is not None:
                waiting = self._plain.waiting()
                pending = self._tls.pending() or self._inward.pending
                return data, None if waiting is None else not (waiting or pending)
            await self._flush()
            await self._fill()

    def _decrypted(self, limit: int = READ_SIZE) -> bytes | None:
        """Decrypted bytes, b"" after close_notify, None if the peer must send more first."""
        try:
            return self._tls.read(limit)
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

    def is_quiet(self) -> bool:
        return not (self._tls.pending() or self._inward.pending) and self._plain.is_quiet()

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
