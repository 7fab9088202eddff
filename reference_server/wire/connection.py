"""One HTTP/1.1 connection over any trio stream. The only place that knows h11.

Requests are read within limits; answers go out through the exchange's seams. While an answer is
made, a second task reads on, so that a peer that hangs up is noticed at once.
"""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from email.utils import formatdate
from http import HTTPStatus
from typing import Any

import h11
import trio

from reference_server.clock import Clock
from reference_server.seams import CLEAN, Act, Answer, Part, Seams
from reference_server.wire import sse_writer
from reference_server.wire.errors import ApiError
from reference_server.wire.limits import Bodies, Limits

Fields = Sequence[tuple[bytes, bytes]]
_READ = 64 * 1024
_NARROW = 1024  # bytes


@dataclass(frozen=True, slots=True)
class Request:
    """A request, read whole. Header names are in lower case."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes

    @property
    def path(self) -> str:
        """Without the query. RFC 9112, section 3.2.2: "a server MUST accept the absolute-form"."""
        path = self.target.split("?", 1)[0]
        scheme, mark, rest = path.partition("://")
        absolute = mark and scheme.lower() in ("http", "https")
        return "/" + rest.partition("/")[2] if absolute else path


class Connection:
    """See the module. `seams` and `memory` are for faults; a clean server leaves them alone."""

    def __init__(
        self,
        stream: trio.abc.Stream,
        limits: Limits | None = None,
        clock: Clock | None = None,
        bodies: Bodies | None = None,
    ) -> None:
        self._stream = stream
        self._limits = limits or Limits()
        self._bodies = bodies or Bodies(self._limits.bodies)
        self._charged = 0  # bytes of the body that count for all
        if self._limits.send_buffer is not None:
            self.narrow(self._limits.send_buffer)
        self._clock = clock or Clock()
        self._h11 = h11.Connection(h11.SERVER, max_incomplete_event_size=self._limits.head)
        self._scope = trio.CancelScope()
        self._idle: trio.CancelScope | None = None
        self._last = False
        self._headless = False  # the request was HEAD
        self._ended = False  # the answer's last byte was written
        self._chunked = False  # the answer's body goes out in chunks
        self._socket = stream.socket if isinstance(stream, trio.SocketStream) else None
        self.memory: dict[str, Any] = {}  # from one exchange to the next
        self.seams: Seams = CLEAN
        self.left: str | None = None  # how the peer hung up: "fin" or "rst"

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        """Everything about the connection happens in here; hanging up cancels it."""
        try:
            with self._scope:
                yield
        finally:
            self._charge(0)
            with trio.move_on_after(1, shield=True):
                await self._stream.aclose()

    # -- reading -----------------------------------------------------------------------------

    async def read_request(self) -> Request | None:
        """The next request; None when the peer is done. Raises ApiError for a bad one."""
        if not await self._next_begins():
            return None
        try:
            with trio.fail_after(self._limits.request):
                return await self._read_whole()
        except trio.TooSlowError:
            self._last = True
            raise ApiError(408, "the request took too long to arrive") from None
        except h11.RemoteProtocolError as error:
            self._last = True
            status = error.error_status_hint
            raise ApiError(status, f"unreadable HTTP request: {error}") from None

    async def _next_begins(self) -> bool:
        if self._h11.trailing_data[0]:
            return True
        with trio.move_on_after(self._limits.idle) as self._idle:
            if self._last:
                return False
            data = await self._receive()
            self._h11.receive_data(data)
            return bool(data)
        return False

    def stop_when_idle(self) -> None:
        """Take no further request; an exchange that runs is finished first."""
        self._last = True
        if self._idle is not None:
            self._idle.cancel()

    async def _read_whole(self) -> Request | None:
        head = await self._event()
        if not isinstance(head, h11.Request):
            return None
        self._idle = None
        self._headless = head.method == b"HEAD"
        # RFC 9112, section 6.1, on Content-Length beside Transfer-Encoding: "the server MUST close
        # the connection after responding to such a request to avoid the potential attacks."
        names = {name for name, _ in head.headers}
        self._last = self._last or {b"content-length", b"transfer-encoding"} <= names
        body = bytearray()
        while isinstance(event := await self._event(), h11.Data):
            body += event.data
            if len(body) > self._limits.body:
                raise ApiError(413, f"the body is larger than {self._limits.body} bytes")
            self._charge(len(body) - self._limits.small)
        return Request(
            head.method.decode("ascii"),
            head.target.decode("latin-1"),
            {name.decode("latin-1"): value.decode("latin-1") for name, value in head.headers},
            bytes(body),
        )

    def _charge(self, size: int) -> None:
        more = max(0, size) - self._charged
        if not self._bodies.grow(more):
            self._last = True
            retry = ((b"retry-after", b"1"),)
            raise ApiError(503, "too many large requests are arriving at once", fields=retry)
        self._charged += more

    async def _event(self) -> object:
        while (event := self._h11.next_event()) is h11.NEED_DATA:
            if self._h11.they_are_waiting_for_100_continue:
                await self._write(
                    self._h11.send(h11.InformationalResponse(status_code=100, headers=[])) or b""
                )
            self._h11.receive_data(await self._receive())
        return event

    async def _receive(self) -> bytes:
        try:
            return bytes(await self._stream.receive_some(_READ))
        except trio.BrokenResourceError:
            self.left = "rst"
            return b""
        except trio.ClosedResourceError:
            return b""

    # -- watching ----------------------------------------------------------------------------

    @asynccontextmanager
    async def watched(self) -> AsyncIterator[None]:
        """While inside, a peer that closes or resets ends the whole connection.

        A half-close counts as leaving: from here it cannot be told from a close.
        """
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._watch)
            yield
            nursery.cancel_scope.cancel()

    async def _watch(self) -> None:
        while len(self._h11.trailing_data[0]) < self._limits.ahead:
            data = await self._receive()
            if not data:
                self.left = self.left or "fin"
                self.hang_up()
                return
            self._h11.receive_data(data)
        await trio.sleep_forever()

    def hang_up(self) -> None:
        """The connection is of no more use. Idempotent."""
        self._scope.cancel()

    # -- writing -----------------------------------------------------------------------------

    async def send(self, answer: Answer) -> None:
        """One answer that is whole already."""
        fields = [*answer.fields, (b"content-length", b"%d" % len(answer.body))]
        await self.start(answer.status, answer.content_type, fields)
        # RFC 9110, section 9.3.2: "the server MUST NOT send content in the response" to HEAD.
        if answer.body and not self._headless:
            await self.body(answer.body)
        await self.finish()

    async def start(self, status: int, content_type: bytes, fields: Fields = ()) -> None:
        """The head. Without a content-length among `fields` the body is sent chunked."""
        # RFC 9110, section 6.6.1: "An origin server with a clock MUST generate a Date header".
        date = formatdate(self._clock.unix(), usegmt=True).encode()
        headers = [(b"date", date), (b"content-type", content_type), *fields]
        if self._last or self._h11.their_state is not h11.DONE:
            self._last = True
            headers.append((b"connection", b"close"))
        reason = HTTPStatus(status).phrase.encode()
        response = h11.Response(status_code=status, headers=headers, reason=reason)
        sized = any(name == b"content-length" for name, _ in headers)
        self._chunked = not sized and self._h11.their_http_version == b"1.1"
        await self._frame(Part.HEAD, self._h11.send(response))

    async def body(self, data: bytes) -> None:
        """A piece of the body, as one chunk where the body is chunked."""
        if not self._ended:
            await self._frame(Part.BODY, self._framed(data))

    def _framed(self, data: bytes) -> bytes | None:
        """A chunk is spelled here: h11, which counts the bytes of other bodies, takes longer.

        RFC 9112, section 7.1: "chunk = chunk-size [ chunk-ext ] CRLF chunk-data CRLF".
        """
        if self._chunked:
            return b"%x\r\n%b\r\n" % (len(data), data)
        return self._h11.send(h11.Data(data=data))

    async def finish(self) -> None:
        """The end of the body. Idempotent."""
        if not self._ended:
            self._ended = True
            await self._frame(Part.END, self._h11.send(h11.EndOfMessage()))

    async def _frame(self, part: Part, raw: bytes | None) -> None:
        for piece in self.seams.frame(part, raw or b""):
            if isinstance(piece, Act):
                await self.act(piece)
            elif piece:
                await self._write(piece)

    def _at_once(self, data: bytes) -> int:
        """How many bytes the kernel takes without any waiting: nearly always all of them."""
        if self._socket is None:
            return 0
        try:
            return os.write(self._socket.fileno(), data)
        except OSError:  # a full queue, or an end that `send_all` will name
            return 0

    async def _write(self, data: bytes) -> None:
        try:
            if (sent := self._at_once(data)) < len(data):
                with trio.fail_after(self._limits.write):
                    await self._stream.send_all(data[sent:])
        except (trio.BrokenResourceError, trio.ClosedResourceError, trio.TooSlowError):
            self.left = self.left or "rst"
            self.hang_up()
        # A hang-up, ours or the peer's, takes effect here, before anything else is done.
        await trio.lowlevel.checkpoint_if_cancelled()

    def narrow(self, size: int = _NARROW) -> None:
        """A send queue of that many bytes; by default one that is soon full, for faults."""
        if isinstance(self._stream, trio.SocketStream):
            self._stream.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, size)

    async def act(self, act: Act) -> None:
        """What only a faulty server does. All but FINISH never return."""
        if act is Act.FINISH:
            await self.finish()
            return
        if act is Act.RESET and isinstance(self._stream, trio.SocketStream):
            linger = struct.pack("ii", 1, 0)
            self._stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        if act in (Act.CLOSE, Act.RESET):
            self.hang_up()
        while act is Act.BEAT:
            await self._clock.sleep(1)
            await self.body(sse_writer.comment("still here"))
        await trio.sleep_forever()

    # -- between exchanges -------------------------------------------------------------------

    async def next_exchange(self) -> bool:
        """Ready for another request? Closes politely when not."""
        self.seams = CLEAN
        self._charge(0)
        self._ended = False
        both_done = self._h11.our_state is h11.DONE and self._h11.their_state is h11.DONE
        if both_done and not self._last:
            self._h11.start_next_cycle()
            return True
        await self._linger()
        return False

    async def _linger(self) -> None:
        """Read on for a moment: closing with unread bytes sends RST, which eats our answer.

        RFC 9112, section 9.6: "…a server … closes the connection in stages".
        """
        with trio.move_on_after(self._limits.linger):
            if isinstance(self._stream, trio.abc.HalfCloseableStream):
                try:
                    await self._stream.send_eof()
                except (trio.BrokenResourceError, trio.ClosedResourceError):
                    return
            while await self._receive():
                pass
