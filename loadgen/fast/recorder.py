"""FastRecorder: what conformance's Recorder does, for thousands of streams at once.

    async with FastRecorder(door).open() as recorder:
        async with recorder.connection() as connection:
            capture = await connection.exchange(script)

Connecting and sending are conformance's own; reading is the engine's.
"""

from __future__ import annotations

import itertools
import socket
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any

import trio

from conformance.capture import Capture, End, How, Json, Segment
from conformance.connect import (
    Dialler,
    Door,
    Encrypted,
    NotConnected,
    TlsFailed,
    connect,
)
from conformance.connect.wire import Plain
from conformance.masking import Secret, mask
from conformance.recorder import Connection, Recorder
from conformance.script import Exchange

from . import stamps
from .engine import Engine
from .packets import Packets, Tapped
from .pause import Pause
from .stream import Stream
from .tls import Decrypted
from .watched import Watched


def reason_against(door: Door) -> str | None:
    """Why this door cannot be recorded the fast way, in words; None where it can."""
    if not sys.platform.startswith("linux"):
        return "no epoll and no kernel stamps on this system"
    if door.unix is not None:
        return "a unix socket has no stamps"
    return None


async def addresses(door: Door) -> list[str]:
    """Of the host that is dialled; none where nobody knows any."""
    try:
        found = await trio.socket.getaddrinfo(*door.dialled, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return []  # connecting says why
    return [str(address[0]) for _, _, _, _, address in found]


class FastRecorder:
    """Records exchanges with one door; times count from the recorder's making.

    `kernel`: reads are timed by the kernel's stamps, else by `clock`, which is read for everything
    else. `packet`: besides, by the packets themselves, where they were seen; not of a door under
    TLS. Both need the monotonic clock.
    """

    def __init__(
        self,
        door: Door,
        *,
        kernel: bool = True,
        packet: bool = False,
        clock: Callable[[], float] = time.monotonic,
        wall: float | None = None,
        secrets: Iterable[Secret] = (),
    ) -> None:
        assert door.tls is None or not packet
        self.door = door
        self._clock = clock
        self._origin = clock()
        self.wall = time.time() if wall is None else wall
        self.secrets = secrets = tuple(secrets)
        if door.login is not None:
            self.secrets = (*self.secrets, Secret("proxy:password", door.login[1].encode()))
        self.stamps = stamps.Stamps(self._origin) if kernel else None
        self.engine = Engine(self.now, self.stamps, Pause(heeds=not packet))
        self.packets: Packets | None = None  # while it is open
        self._wants_packets = packet
        self.plain = Recorder(door, clock=clock, wall=self.wall, secrets=secrets)
        self.plain._origin = self._origin
        self.dialler: Dialler | None = None
        self._numbers = itertools.count()

    def now(self) -> float:
        """Seconds since the recorder was made."""
        return self._clock() - self._origin

    @property
    def clock(self) -> str:
        """The name of the clock that reads are timed by."""
        return "user" if self.stamps is None else "kernel"

    @property
    def packets_told(self) -> dict[str, Json] | None:
        """How many packets were not seen, and in how many exchanges that matters."""
        if self.packets is None:
            return None
        return {"lost": self.packets.lost, "exchanges_by_stamps": self.packets.unknown}

    @asynccontextmanager
    async def open(self) -> AsyncIterator[FastRecorder]:
        """Nothing is read before it is open. Raises OSError without the right to see packets."""
        keeper = None if self.stamps is None else stamps.keep_stamping()
        try:
            if self._wants_packets and self.stamps is not None:
                port, hosts = self.door.dialled[1], await addresses(self.door)
                self.packets = Packets(port, hosts, self.stamps)
            async with trio.open_nursery() as nursery:
                self.dialler = Dialler(self.door, nursery.start_soon)
                nursery.start_soon(self.engine.run)
                if self.packets is not None:
                    nursery.start_soon(self.packets.keep_empty)
                yield self
                nursery.cancel_scope.cancel()
        finally:
            self.engine.close()
            if self.packets is not None:
                self.packets.close()
            if keeper is not None:
                keeper.close()

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[FastConnection]:
        """A connection that is dialled by its first exchange and closed at the end."""
        connection = FastConnection(self, next(self._numbers))
        try:
            yield connection
        finally:
            connection.close()


Begun = tuple[Watched, bytes | None]  # and what of the request did not go at once


class _Aside(Connection):
    """Of the plain recorder; but packets tell of it as of any other."""

    def __init__(self, recorder: FastRecorder, number: int) -> None:
        super().__init__(recorder.plain, recorder.door, number)
        self._packets = recorder.packets
        self.tapped: Tapped | None = None

    async def _connect(self, recording: Any) -> End | None:
        end = await super()._connect(recording)
        if end is None and self._packets is not None and isinstance(self._wire, Plain):
            self.tapped = self._packets.claim(self._wire.raw)
            if self.tapped is not None:
                self.tapped.begin(0, self._wire.waiting() or 0)
        return end


class FastConnection:
    """One socket and the exchanges on it, in order."""

    def __init__(self, recorder: FastRecorder, number: int) -> None:
        self._recorder = recorder
        self.number = number
        self.ordinal = 0
        self._wire: Plain | Encrypted | None = None
        self._decrypted: Decrypted | None = None
        self._tapped: Tapped | None = None
        self._connected_at: float | None = None
        self._over = False
        self._begun: Begun | None = None

    @property
    def usable(self) -> bool:
        """May another exchange be sent here? The peer's close may be on its way all the same."""
        return not self._over

    @property
    def is_quiet(self) -> bool:
        """Is it usable, connected, and nothing heard of the peer since the last exchange?"""
        return self.usable and self._wire is not None and self._wire.is_quiet()

    def begin(self, script: Exchange) -> None:
        """Send the request now, before anybody else has a turn; `exchange` of the same script must
        follow. Where that takes waiting, `exchange` does it all.
        """
        aside = script.slow is not None or script.linger
        if self._wire is not None and not self._over and not aside:
            self._begun = self._start(Stream(script, self._recorder.now()), self._wire)

    async def exchange(self, script: Exchange) -> Capture:
        """Send the script's request and record until its end.

        On a connection that is over the capture says NOT_CONNECTED with detail "used up".
        """
        if script.slow is not None or script.linger:
            return await self._aside(script)
        begun, self._begun = self._begun, None
        stream = Stream(script, self._recorder.now()) if begun is None else begun[0].stream
        end = await self._connect(stream)
        if end is None and self._wire is not None:
            end = await self._run(stream, self._wire, begun)
            self._over = end.how is not How.FRAMED or not stream.reusable
        if end is None:
            end = stream.ended(How.NOT_CONNECTED, self._recorder.now(), "used up")
        capture = stream.capture(self._about(), end)
        if self._tapped is not None:
            capture = self._tapped.timed(capture)
        if self._decrypted is not None:
            capture = self._decrypted.timed(capture)
        self.ordinal += 1
        if self._over:
            self.close()
        return mask(capture, self._recorder.secrets)

    async def _aside(self, script: Exchange) -> Capture:
        """Reading slowly and lingering are the plain recorder's, on a socket of their own."""
        self.close()
        connection = _Aside(self._recorder, self.number)
        try:
            capture = await connection.exchange(script)
            return capture if connection.tapped is None else connection.tapped.timed(capture)
        finally:
            connection.close()
            if connection.tapped is not None:
                connection.tapped.close()

    def _about(self) -> Capture:
        return Capture(
            received=b"",
            connection=self.number,
            ordinal=self.ordinal,
            connected_at=self._connected_at,
            clock=self._recorder.clock,
            wall=self._recorder.wall,
        )

    async def _connect(self, stream: Stream) -> End | None:
        if self._wire is not None or self._over:
            return None
        recorder, clocks = self._recorder, stream.script.clocks
        self._over = True  # until there is a socket, whatever gets in the way
        with trio.move_on_after(min(clocks.connect, clocks.total)):
            try:
                wire = await connect(recorder.door, None, recorder.dialler)
            except NotConnected as error:
                return stream.ended(How.NOT_CONNECTED, recorder.now(), str(error))
            except TlsFailed as error:
                return stream.ended(How.TLS_FAILED, recorder.now(), str(error))
            assert isinstance(wire, Plain | Encrypted)
            if recorder.stamps is not None:
                stamps.enable(wire.raw)
            if recorder.packets is not None:
                self._tapped = recorder.packets.claim(wire.raw)
            if isinstance(wire, Encrypted):
                self._decrypted = Decrypted(wire)
            self._wire, self._over = wire, False
            self._connected_at = recorder.now()
            return None
        return stream.ended(How.CLOCK, recorder.now(), "connect")

    def _start(self, stream: Stream, wire: Plain | Encrypted) -> Begun:
        stream.early = wire.peek()
        if self._tapped is not None:
            self._tapped.begin(len(stream.early), wire.waiting() or 0)
        watched, engine = Watched(stream, wire), self._recorder.engine
        engine.watch(watched)
        if self._decrypted is not None:
            self._decrypted.begin(partial(engine.again, watched))
            watched.read = self._decrypted.read
        return watched, self._send_at_once(watched)

    async def _run(self, stream: Stream, wire: Plain | Encrypted, begun: Begun | None) -> End:
        engine = self._recorder.engine
        watched, rest = begun or self._start(stream, wire)
        try:
            if rest is None:
                end = await watched.ended()
            else:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(partial(self._send, watched, rest))
                    end = await watched.ended()
                    nursery.cancel_scope.cancel()
        finally:
            engine.unwatch(watched)
            if self._decrypted is not None:
                self._decrypted.end()
        if end.how is How.FRAMED:
            stream.late += wire.peek()
        return end

    def _send_at_once(self, watched: Watched) -> bytes | None:
        """The whole request, as it nearly always goes. What did not go, None: nothing is left."""
        script = watched.stream.script
        data = script.request[0]
        try:
            rest = watched.wire.send_now(data)
        except OSError:
            return None  # the peer stopped listening; the reading side learns why
        if rest is not None or len(script.request) > 1:
            return rest or b""
        self._is_sent(watched, data)
        self._is_whole(watched)
        return None

    async def _send(self, watched: Watched, rest: bytes) -> None:
        script = watched.stream.script
        with suppress(OSError):  # the peer stopped listening; the reading side learns why
            for number, data in enumerate(script.request):
                if number and script.between:
                    await trio.sleep(script.between)
                await watched.wire.send(data if number else rest)
                self._is_sent(watched, data)
            self._is_whole(watched)

    def _is_sent(self, watched: Watched, data: bytes) -> None:
        watched.stream.segments.append(Segment(data, self._recorder.now()))

    def _is_whole(self, watched: Watched) -> None:
        watched.stream.sent_at = watched.stream.segments[-1].at
        self._recorder.engine.check(watched)

    def close(self) -> None:
        """Close the socket. Idempotent."""
        self._over = True
        if self._wire is not None:
            self._wire.close()
            self._wire = self._decrypted = None
        if self._tapped is not None:
            self._tapped.close()
            self._tapped = None
