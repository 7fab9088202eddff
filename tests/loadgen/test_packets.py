"""The packet clock on real loopback: a client that does not run still has exact times."""

from __future__ import annotations

import socket
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import cast

import pytest
import trio

from conformance.capture import Capture, End, How, Read
from conformance.connect import Door, tls_context
from conformance.errors import UsageError
from conformance.reading import read
from conformance.script import Exchange, Slow
from loadgen.exactness import moments
from loadgen.fast import FastRecorder, reason_against_packets, ring, stamps_work
from loadgen.fast.arrived import Arrivals
from loadgen.fast.packets import Packets, Tapped
from loadgen.recording import settle
from loadgen.selftest import zero_of
from tests.conformance.attacks import CHUNKED, TOKEN, framed_chunk
from tests.conformance.hostile_server import EVENTS, head

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="Linux has packet sockets")
AGAINST = reason_against_packets()
REQUEST = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}"
SCRIPT = Exchange((REQUEST,), events=True)
TOKENS, PAUSE = 12, 0.01


class Server:
    """Answers one connection as often as it is asked, an event every `pause` seconds."""

    def __init__(
        self,
        family: socket.AddressFamily,
        exchanges: int,
        tokens: int = TOKENS,
        pause: float = PAUSE,
    ) -> None:
        host = "127.0.0.1" if family is socket.AF_INET else "::1"
        self._listener = socket.create_server((host, 0), family=family)
        self._exchanges, self.tokens, self._pause = exchanges, tokens, pause
        self.door = Door(host, self._listener.getsockname()[1])
        self.sends: list[tuple[float, float]] = []  # of the events: before the call, and after it

    def serve(self) -> None:
        with self._listener, self._listener.accept()[0] as ours:
            ours.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for _ in range(self._exchanges):
                ours.recv(65536)
                ours.sendall(head(EVENTS, CHUNKED))
                for _ in range(self.tokens):
                    time.sleep(self._pause)
                    before = time.monotonic()
                    ours.sendall(framed_chunk(TOKEN))
                    self.sends.append((before, time.monotonic()))
                ours.sendall(b"0\r\n\r\n")


async def starve(server: Server) -> None:
    """Nothing of ours runs for the length of some events, again and again."""
    while True:
        await trio.sleep(0.001)
        time.sleep(0.08)  # noqa: ASYNC251


async def stop(server: Server) -> None:
    """Nothing of ours runs from the first event until the last has been sent."""
    while not server.sends:  # noqa: ASYNC110, the server is a thread
        await trio.sleep(0.001)
    while len(server.sends) < server.tokens:
        time.sleep(0.001)  # noqa: ASYNC251


def starved(
    server: Server,
    exchanges: int,
    script: Exchange = SCRIPT,
    starve: Callable[[Server], Awaitable[None]] = starve,
) -> tuple[list[Capture], float, FastRecorder]:
    """The captures, the recorder's zero on the monotonic clock, and the recorder."""
    captures: list[Capture] = []
    recorder = FastRecorder(server.door, packet=True)
    origin = zero_of(time.monotonic, recorder.now)

    async def main() -> None:
        async with recorder.open(), recorder.connection() as connection, trio.open_nursery() as two:
            two.start_soon(starve, server)
            for _ in range(exchanges):
                captures.append(await connection.exchange(script))
            two.cancel_scope.cancel()

    thread = threading.Thread(target=server.serve)
    thread.start()
    trio.run(main)
    thread.join()
    return captures, origin, recorder


@pytest.mark.skipif(AGAINST is not None, reason=f"this machine: {AGAINST}")
@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6])
def test_a_starved_client_has_every_event_at_the_time_of_its_packet(
    family: socket.AddressFamily,
) -> None:
    server = Server(family, exchanges=2)
    captures, origin, recorder = starved(server, exchanges=2)
    assert recorder.packets_told == {"lost": 0, "exchanges_by_stamps": 0}
    sends = iter(server.sends)
    for capture in captures:
        assert (capture.clock, capture.end.how) == ("packet", How.FRAMED)
        assert capture.end.at == capture.reads[-1].at
        found = moments(read(replace(capture, request=()), api="chat"))
        assert len(found) == TOKENS
        for moment, (before, after) in zip(found, sends, strict=False):
            assert moment is not None
            assert moment.is_value
            assert before - 0.0005 <= origin + moment.at <= after + 0.005


@pytest.mark.skipif(AGAINST is not None, reason=f"this machine: {AGAINST}")
def test_a_client_that_reads_slowly_has_the_times_of_packets_too() -> None:
    server = Server(socket.AF_INET, exchanges=1)
    slow = Exchange((REQUEST,), events=True, slow=Slow(pause=0.05, events=2))
    (capture,), origin, recorder = starved(server, exchanges=1, script=slow)
    assert recorder.packets_told == {"lost": 0, "exchanges_by_stamps": 0}
    assert (capture.clock, capture.end.how) == ("packet", How.FRAMED)
    found = moments(read(replace(capture, request=()), api="chat"))
    for moment, (before, after) in zip(found, server.sends, strict=True):
        assert moment is not None
        assert moment.is_value
        assert before - 0.0005 <= origin + moment.at <= after + 0.005


@pytest.mark.skipif(AGAINST is not None, reason=f"this machine: {AGAINST}")
def test_packets_that_found_no_slot_are_told_and_no_time_is_made_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ring.Ring.__init__, "__defaults__", (16,))
    server = Server(socket.AF_INET, exchanges=1, tokens=60, pause=0.001)
    (capture,), _, recorder = starved(server, exchanges=1, starve=stop)
    told = recorder.packets_told
    assert told is not None
    assert told["lost"] != 0
    assert told["exchanges_by_stamps"] == 1
    assert (capture.clock, capture.end.how) == ("kernel", How.FRAMED)


def test_by_the_packet_clock_every_time_is_a_value() -> None:
    received = head(EVENTS, CHUNKED) + 2 * framed_chunk(TOKEN)
    first = len(received) - len(framed_chunk(TOKEN))
    reads = (Read(first, 1.0), Read(len(received), 2.0))
    for clock, earliest in (("packet", [1.0, 2.0]), ("user", [None, None])):
        found = moments(read(Capture(received, reads=reads, clock=clock), api="chat"))
        assert [each.at for each in found if each] == [1.0, 2.0]
        assert [each.earliest for each in found if each] == earliest
        assert [each.is_value for each in found if each] == [clock == "packet"] * 2


def test_no_exchange_ends_before_its_last_byte_came_whichever_packet_was_lost() -> None:
    class Silent:
        def drain(self) -> None: ...

    arrivals = Arrivals(0)
    arrivals.add(1, 10, 1.0)
    arrivals.add(21, 10, 2.0)
    arrivals.close(2.0)
    arrivals.add(11, 10, 3.0)
    tapped = Tapped(cast(Packets, Silent()), b"", arrivals)
    tapped._upto = 0
    made = tapped.timed(Capture(bytes(30), end=End(How.CLOSED, 9.0)))
    assert (made.reads[-1].at, made.end.at) == (3.0, 3.0)


def test_without_the_capability_there_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr("loadgen.fast.ring.socket.socket", refused)
    assert reason_against_packets() == "it needs the capability CAP_NET_RAW, which root has"
    monkeypatch.undo()
    monkeypatch.setattr("loadgen.recording.reason_against_packets", lambda: "no CAP_NET_RAW")
    if stamps_work():
        with pytest.raises(UsageError, match="--clock packet: no CAP_NET_RAW; use --clock kernel"):
            settle("packet", Door("127.0.0.1", 1))
        with pytest.raises(
            UsageError, match="packet: TLS hides what a packet brings; use --clock k"
        ):
            settle("packet", Door("127.0.0.1", 1, tls=tls_context()))
    with pytest.raises(
        UsageError, match="--clock packet: a unix socket has no stamps; use --clock user"
    ):
        settle("packet", Door("", 0, unix="/x"))
