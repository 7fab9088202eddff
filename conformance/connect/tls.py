"""TLS over memory buffers: a close without close_notify must stay visible, FIN and RST ours."""

from __future__ import annotations

import socket
import ssl
import sys
from contextlib import suppress
from copy import copy

import trio

from conformance.errors import UsageError

from .wire import READ_SIZE, Plain, TlsCut, reason_of, tls_reason

RECORD_SIZE = 1 << 14  # RFC 8446 section 5.1: a record's plaintext MUST NOT be longer
ALL = sys.maxsize


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
    """TLS over a `Plain`.

    `opened` makes plaintext of what a read of the socket brought, and does not wait: the socket may
    be read in another way than by `receive`.
    """

    def __init__(self, plain: Plain, context: ssl.SSLContext, name: str) -> None:
        self._plain = plain
        self._inward, self._outward = ssl.MemoryBIO(), ssl.MemoryBIO()
        try:
            self._tls = context.wrap_bio(self._inward, self._outward, server_hostname=name)
        except ValueError as error:  # a name that cannot be sent, e.g. empty
            raise TlsFailed(str(error)) from error
        self._unsent = memoryview(b"")
        self._failed: TlsCut | OSError | None = None
        self.is_over = False  # is all decrypted that ever will be?
        # Does what came end where what was decrypted does? Not where a record has begun, nor where
        # one without plaintext followed.
        self.ends_alike = True

    @property
    def raw(self) -> socket.socket:
        """The socket itself, for whoever reads it in a way of their own."""
        return self._plain.raw

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
            with suppress(OSError):  # the alert that tells the server why is a courtesy
                await self._flush()
            raise TlsFailed(tls_reason(error)) from error
        except OSError as error:
            raise TlsFailed(reason_of(error)) from error

    # -- sending -----------------------------------------------------------------------------------

    async def send(self, data: bytes) -> None:
        await trio.lowlevel.checkpoint_if_cancelled()
        if data:
            self._tls.write(data)
        await self._flush()

    def send_now(self, data: bytes) -> bytes | None:
        """As `Plain.send_now`; what the socket does not take is encrypted already, and kept."""
        self._tls.write(data)
        return None if self.flush_now() else b""

    async def _flush(self) -> None:
        while not self.flush_now():
            await trio.lowlevel.wait_writable(self.raw)

    def flush_now(self) -> bool:
        """Send of what is encrypted as much as the socket takes; was that all? Raises OSError."""
        if self._outward.pending:
            self._unsent = memoryview(bytes(self._unsent) + self._outward.read())
        with suppress(BlockingIOError):
            while self._unsent:
                self._unsent = self._unsent[self.raw.send(self._unsent) :]
        return not self._unsent

    def answer_now(self) -> None:
        """What TLS itself has to say, such as a key of its own (RFC 8446 section 4.6.3)."""
        with suppress(OSError):  # the peer stopped listening; the reading side learns why
            self.flush_now()

    # -- receiving ---------------------------------------------------------------------------------

    async def receive(self, limit: int = READ_SIZE) -> tuple[bytes, bool | None]:
        while True:
            data = self.decrypted(limit)
            if self._outward.pending:
                self.answer_now()
            if data is not None:
                waiting = self.waiting()
                return data, None if waiting is None else not waiting
            await self._fill()

    async def _fill(self) -> None:
        data, _ = await self._plain.receive()
        if not data and self._inward.eof:
            raise TlsCut
        self._put(data)

    def _put(self, data: bytes) -> None:
        if data:
            self._inward.write(data)
        else:
            self._inward.write_eof()

    def opened(self, data: bytes) -> bytes | None:
        """All that can be decrypted now that a read of the socket brought this; as `decrypted`."""
        self._put(data)
        found: bytes | None = self._record(RECORD_SIZE)
        if found and not self._inward.pending:
            self.ends_alike = True
        else:
            found = self.decrypted(found=found or b"")
        if self._outward.pending:
            self.answer_now()
        return found

    def decrypted(self, limit: int = ALL, found: bytes = b"") -> bytes | None:
        """1 to `limit` bytes, b"" after close_notify, None if the peer must send more first.

        `found` goes before it. Raises TlsCut and OSError, once all that came before has been told,
        and again from then on.
        """
        while not found or self._inward.pending or self._tls.pending():
            more = self._record(limit - len(found)) if len(found) < limit else b""
            if not more:
                break
            found += more
        else:
            self.ends_alike = True
            return found
        self.ends_alike = False
        if not found and self._failed is not None:
            raise copy(self._failed)  # itself it would hold our frames, and they us: a circle
        return found if found or self.is_over else None

    def _record(self, limit: int) -> bytes:
        """Of one record, b"" where there is none; `is_over` and `_failed` say if none will be."""
        if self.is_over:
            return b""
        try:
            if data := self._tls.read(min(limit, RECORD_SIZE)):
                return data
        except ssl.SSLWantReadError:
            if not self._inward.eof:
                return b""
            self._failed = TlsCut()
        except ssl.SSLZeroReturnError:
            pass  # close_notify, and ours has gone before
        except ssl.SSLEOFError:
            self._failed = TlsCut()
        except OSError as error:
            self._failed = error.with_traceback(None)
        self.is_over = True
        return b""

    def peek(self) -> bytes:
        if data := self._plain.peek():
            self._put(data)
        try:
            return self.decrypted() or b""
        except (TlsCut, OSError):  # the next receive will meet it as well
            return b""

    def is_quiet(self) -> bool:
        decrypted = self.is_over or self._inward.pending or self._tls.pending()
        return not decrypted and self._plain.is_quiet()

    def waiting(self) -> int | None:
        """Ciphertext counts as it lies in the queue; what is decrypted already counts too."""
        waiting = self._plain.waiting()
        return None if waiting is None else waiting + self._inward.pending + self._tls.pending()

    # -- leaving -----------------------------------------------------------------------------------

    def leave(self, how: str) -> None:
        if how != "rst":
            self._close_notify()
        self._plain.leave(how)

    def _close_notify(self) -> None:
        """RFC 8446 section 6.1: each party must send close_notify before closing its write side."""
        with suppress(OSError):  # SSLWantReadError: ours is written, the peer's has not come
            self._tls.unwrap()
        with suppress(OSError):  # the peer is gone or does not read
            self.flush_now()

    def close(self) -> None:
        self._plain.close()
