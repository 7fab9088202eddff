"""One client's connection and its twin to the upstream: bytes, ends and resets pass at once.

What the client does, the upstream sees, and the other way round: FIN as FIN (half of the connection
stays open), RST as RST. Nothing is sent that nobody sent, but for a 502 where no upstream answers.
"""

from __future__ import annotations

import json
import socket
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import trio

from conformance.capture import End, How
from conformance.connect import Dialler, NotConnected, TlsCut, TlsFailed, Wire, connect, reason_of
from conformance.connect.wire import Plain
from conformance.tap.request import Asked, Piece, Reader
from conformance.tap.taking import MOST_STRAY, Budget, Taken, Taking

CONNECT = 10.0  # seconds for TCP and TLS to the upstream
HALF_OPEN = 60.0  # seconds that a client may go on after the upstream closed, as Linux' FIN-WAIT-2
REST = 0.5  # seconds of silence after which a request is answered with 502, whole or not


@dataclass(slots=True)
class Tap:
    """What all lines share. `done` gets every exchange as it ends and must not wait."""

    dialler: Dialler
    authority: str
    origin: str  # scheme and authority of the upstream, for the record
    now: Callable[[], float]
    wall: float
    done: Callable[[Taken], None]
    budget: Budget
    numbers: Callable[[], int]
    lines: Callable[[], int]


async def serve(tap: Tap, accepted: socket.socket) -> None:
    """One client's connection, to its end."""
    client = Plain(accepted)
    try:
        await _Line(tap, client).run()
    finally:
        client.close()


class _Line:
    def __init__(self, tap: Tap, client: Plain) -> None:
        self._tap, self._client = tap, client
        self._upstream: Wire | None = None
        self._number = tap.lines()
        self._requests = Reader(tap.authority.encode("latin-1"))
        self._queue: deque[Taking] = deque()  # exchanges whose answer is not whole yet
        self._early = b""  # of the answer side, while nothing was asked
        self._ordinal = 0
        self._connected_at: float | None = None
        self._left: str | None = None  # how the client left
        self._client_done = trio.Event()
        self._reset: list[str] = []  # sides to be reset once nobody waits on their socket

    async def run(self) -> None:
        """The upstream is dialled at once, as without a tap the client would have dialled it."""
        try:
            with trio.fail_after(CONNECT):
                self._upstream = await connect(self._tap.dialler.door, dialler=self._tap.dialler)
        except (NotConnected, TlsFailed) as error:
            return await self._refuse(type(error), str(error))
        except trio.TooSlowError:
            return await self._refuse(NotConnected, "ETIMEDOUT")
        self._connected_at = self._tap.now()
        try:
            await self._relay(self._upstream)
        finally:
            self._finish(End(How.LEFT, self._tap.now(), "tap", "fin"))  # nothing where all ended
            for side in self._reset:
                (self._client if side == "client" else self._upstream).leave("rst")
            self._upstream.close()

    async def _relay(self, upstream: Wire) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._answer, upstream, nursery.cancel_scope)
            # In this task, since what the client asked while we dialled has waited long enough.
            await self._up(upstream, nursery.cancel_scope)

    async def _answer(self, upstream: Wire, scope: trio.CancelScope) -> None:
        if await self._down(upstream):
            with trio.move_on_after(HALF_OPEN):
                await self._client_done.wait()
        scope.cancel()

    # -- from the client to the upstream -----------------------------------------------------------

    async def _up(self, upstream: Wire, scope: trio.CancelScope) -> None:
        try:
            while data := (await self._client.receive())[0]:
                if not await self._pass_on(upstream, self._requests.feed(data)):
                    break
            else:
                self._left = "fin"
                await self._pass_on(upstream, self._requests.close())
                upstream.leave("half")
        except OSError:
            self._left = "rst"
            self._reset.append("upstream")
            self._finish(End(How.LEFT, self._tap.now(), "client", "rst"))
            scope.cancel()
        self._client_done.set()

    async def _pass_on(self, upstream: Wire, pieces: list[Piece]) -> bool:
        """Send; False if the upstream takes no more: its own side tells how it ended."""
        takings = [(self._begin(piece), piece) for piece in pieces]
        data = b"".join([piece.data for piece in pieces])
        if not data:
            return True
        try:
            await upstream.send(data)
        except OSError:
            return False
        now = self._tap.now()
        for taking, piece in takings:
            if taking is not None:
                taking.sent(piece.data, now, last=piece.ends)
        return True

    def _begin(self, piece: Piece) -> Taking | None:
        """The exchange that the piece belongs to."""
        if piece.begins is not None:
            self._queue.append(self._taking(piece.begins))
        return self._queue[-1] if self._queue else None

    def _taking(self, asked: Asked) -> Taking:
        target = asked.target.partition(b"?")[0].decode("ascii", "replace")
        taking = Taking(
            number=self._tap.numbers(),
            asked=asked,
            url=self._tap.origin + target if target.startswith("/") else self._tap.origin,
            connection=self._number,
            ordinal=self._ordinal,
            connected_at=self._connected_at,
            began=self._tap.now(),
            wall=self._tap.wall,
            budget=self._tap.budget,
            early=self._early,
        )
        self._ordinal += 1
        self._early = b""
        return taking

    # -- from the upstream to the client -----------------------------------------------------------

    async def _down(self, upstream: Wire) -> bool:
        """True after the upstream's FIN: the client may still have something to say."""
        while True:
            try:
                data, emptied = await upstream.receive()
            except TlsCut:
                self._finish(self._end(How.TLS_CUT))
                self._client.leave("half")
                return True
            except OSError as error:
                self._finish(self._end(How.RESET, reason_of(error)))
                self._reset.append("client")
                return False
            if not data:
                self._finish(self._end(How.CLOSED))
                self._client.leave("half")
                return True
            now = self._tap.now()
            try:
                await self._client.send(data)
            except OSError:
                self._take(data, now, emptied)
                self._left = self._left or "rst"
                self._finish(End(How.LEFT, self._tap.now(), "client", self._left))
                self._reset.append("upstream")
                return False
            self._take(data, now, emptied)

    def _end(self, how: How, detail: str | None = None) -> End:
        """An end by the upstream. One that follows the client's own leaving was caused by it."""
        now = self._tap.now()
        if self._left is not None:
            return End(How.LEFT, now, "client", self._left)
        return End(how, now, detail)

    def _take(self, data: bytes, at: float, emptied: bool | None) -> None:
        while data and self._queue:
            taking = self._queue[0]
            data = taking.got(data, at, emptied)
            if taking.complete:
                self._queue.popleft()
                if not self._queue:
                    taking.late, data = data, b""
                left = "half" if self._left else None
                self._tap.done(taking.over(End(How.FRAMED, at, None, left)))
        self._early = (self._early + data)[:MOST_STRAY]

    def _finish(self, end: End) -> None:
        """Every exchange that is still open ends like this."""
        while self._queue:
            self._tap.done(self._queue.popleft().over(end))

    # -- no upstream -------------------------------------------------------------------------------

    async def _refuse(self, kind: type[NotConnected | TlsFailed], reason: str) -> None:
        """502 in the API's envelope, once the request is in, so that the client gets to read it."""
        how = How.TLS_FAILED if kind is TlsFailed else How.NOT_CONNECTED
        patience = float("inf")
        try:
            while True:
                data = b""
                with trio.move_on_after(patience):
                    data, _ = await self._client.receive()
                if not data or self._note(self._requests.feed(data)):
                    break
                patience = REST
            if self._queue:
                await self._client.send(bad_gateway(reason))
            self._client.leave("fin")
        except OSError:
            self._left = "rst"
        self._finish(End(how, self._tap.now(), reason, self._left))

    def _note(self, pieces: list[Piece]) -> bool:
        """Keep what would have been sent; is a request whole?"""
        now = self._tap.now()
        for piece in pieces:
            if (taking := self._begin(piece)) is not None:
                taking.sent(piece.data, now, last=piece.ends)
        return any(piece.ends for piece in pieces)


def bad_gateway(reason: str) -> bytes:
    """The tap's own answer, the only bytes that are not the upstream's."""
    error = {
        "message": f"conformance tap: the upstream cannot be reached ({reason})",
        "type": "upstream_error",
        "param": None,
        "code": "upstream_unreachable",
    }
    body = json.dumps({"error": error}).encode()
    head = (
        "HTTP/1.1 502 Bad Gateway\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + body
