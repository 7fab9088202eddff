"""Kernel stamps and the timerfd, in real time: as few and as short as will do."""

from __future__ import annotations

import socket
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from struct import pack

import pytest
import trio
import trio.testing

from conformance.connect import Door, tls_context
from conformance.errors import UsageError
from conformance.script import Exchange
from loadgen.fast import FastRecorder, Pacer, stamps_work
from loadgen.fast.stamps import JUMP, SO_TIMESTAMPING, Stamps
from loadgen.recording import settle
from loadgen.selftest import zero_of
from tests.conformance.attacks import CHUNKED, TOKEN, framed_chunk
from tests.conformance.hostile_server import EVENTS, head
from tests.loadgen.tls_server import accepted, door

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="Linux has these clocks")
REQUEST = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}"
DOOR = Door("127.0.0.1", 1)


class Clocks:
    """A monotonic clock that ticks when told, and real time that may step."""

    def __init__(self) -> None:
        self.monotonic, self.offset = 100.0, 1_700_000_000_000_000_000

    def real(self) -> int:
        return self.offset + round(self.monotonic * 1e9)

    def stamp(self) -> list[tuple[int, int, bytes]]:
        seconds, nanoseconds = divmod(self.real(), 1_000_000_000)
        return [(1, SO_TIMESTAMPING, pack("@6q", seconds, nanoseconds, 0, 0, 0, 0))]


def test_a_stamp_in_real_time_becomes_seconds_since_the_origin() -> None:
    clocks = Clocks()
    stamps = Stamps(100.0, lambda: clocks.monotonic, clocks.real)
    clocks.monotonic = 107.123456789
    assert stamps.at(clocks.stamp()) == pytest.approx(7.123456789, abs=1e-9)
    assert stamps.at([]) is None


def test_a_step_of_real_time_is_marked_and_stamps_are_right_again_afterwards() -> None:
    clocks = Clocks()
    stamps = Stamps(100.0, lambda: clocks.monotonic, clocks.real)
    clocks.monotonic, clocks.offset = 102.0, clocks.offset + 3_000_000_000
    stamps.refresh(102.0)
    ((at, step),) = stamps.jumps
    assert at == pytest.approx(2.0)
    assert step == pytest.approx(3.0)
    assert stamps.at(clocks.stamp()) == pytest.approx(2.0, abs=1e-6)


def test_what_the_clocks_drift_apart_within_a_second_is_no_step() -> None:
    clocks = Clocks()
    stamps = Stamps(100.0, lambda: clocks.monotonic, clocks.real)
    clocks.monotonic, clocks.offset = 102.0, clocks.offset + round(JUMP * 0.4e9)
    stamps.refresh(102.0)
    assert stamps.jumps == []
    assert stamps.at(clocks.stamp()) == pytest.approx(2.0, abs=1e-6)


class Server:
    """One exchange: a head, `tokens` events, the end; each sent when told, with its time."""

    def __init__(self, tokens: int, tls: bool) -> None:
        self._listener, self._tls = socket.create_server(("127.0.0.1", 0)), tls
        self.parts = (head(EVENTS, CHUNKED), *tokens * (framed_chunk(TOKEN),), b"0\r\n\r\n")
        self.sends: list[tuple[float, float]] = []  # before the call, and after it
        self.door = door(self._listener, tls)
        self.told = threading.Semaphore(0)

    def serve(self) -> None:
        with self._listener, accepted(self._listener, self._tls) as ours:
            ours.recv(65536)
            for part in self.parts:
                self.told.acquire(timeout=20)
                before = time.monotonic()
                ours.sendall(part)
                self.sends.append((before, time.monotonic()))


@pytest.fixture(params=[False, True], ids=["plain", "tls"])
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    made = Server(tokens=4, tls=request.param)
    thread = threading.Thread(target=made.serve)
    thread.start()
    yield made
    thread.join()


@pytest.mark.skipif(not stamps_work(), reason="this system gives no receive stamps")
def test_a_stamp_tells_when_the_bytes_came_though_nobody_read_them(server: Server) -> None:
    """Our side sleeps through the last three parts, hard: no other task runs either."""

    async def main() -> None:
        recorder = FastRecorder(server.door, wall=0.0)
        origin = zero_of(time.monotonic, recorder.now)
        async with recorder.open(), recorder.connection() as connection, trio.open_nursery() as two:
            two.start_soon(deaf, server)
            capture = await connection.exchange(Exchange((REQUEST,), events=True))
        assert (capture.clock, recorder.engine.unstamped) == ("kernel", 0)
        times = [origin + read.at for read in capture.reads if read.at is not None]
        for at, (before, after) in zip(times[:3], server.sends, strict=False):
            assert before - 0.001 <= at <= after + 0.05
        # What came meanwhile was read at one go, with the stamp of the last of it.
        assert times[-1] <= server.sends[-1][1] + 0.05
        assert len(capture.reads) < len(server.sends)

    trio.run(main)


async def deaf(server: Server) -> None:
    for number in range(3):
        server.told.release()
        while len(server.sends) <= number:  # noqa: ASYNC110, the server is a thread
            await trio.sleep(0.002)
        await trio.testing.wait_all_tasks_blocked(0.01)  # what was sent so far has been read
    server.told.release(3)
    while len(server.sends) < len(server.parts):
        time.sleep(0.1)  # noqa: ASYNC251


def test_a_pacer_waits_for_the_moment_itself() -> None:
    async def main() -> None:
        with Pacer() as pacer:
            assert pacer.is_exact
            for seconds in (0.0123, 0.0007):
                start = time.monotonic()
                await pacer.sleep(seconds)
                assert seconds - 1e-6 <= time.monotonic() - start < seconds + 1.0
            start = time.monotonic()
            with trio.move_on_after(0.01):
                await pacer.sleep(60.0)
            await pacer.sleep(0.0)
            assert time.monotonic() - start < 10.0

    trio.run(main)


def test_the_kernel_is_asked_where_it_can_answer() -> None:
    tls, unix = replace(DOOR, tls=tls_context()), Door("", 0, unix="/x")
    assert settle("user", DOOR) == ("user", None)
    assert settle(None, unix) == ("user", "a unix socket has no stamps")
    with pytest.raises(
        UsageError, match="--clock kernel: a unix socket has no stamps; use --clock u"
    ):
        settle("kernel", unix)
    for each in (DOOR, tls):
        assert settle(None, each)[0] == ("kernel" if stamps_work() else "user")
