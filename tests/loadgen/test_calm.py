"""Streams that nobody has to watch, read after pauses: all that comes is there, by its own time."""

from __future__ import annotations

import socket
import threading
import time
from dataclasses import replace
from itertools import pairwise

import pytest
import trio

from conformance.capture import Capture
from conformance.connect import Door
from conformance.connect.wire import Plain
from conformance.script import Exchange, Leave
from loadgen.fast import FastRecorder, stamps_work
from loadgen.fast.engine import Engine
from loadgen.fast.pause import FIRST, LONG, MARGIN, MOST, UNTOLD, WINDOW
from loadgen.fast.stamps import Stamps
from loadgen.fast.stream import Stream
from loadgen.fast.watched import Watched
from loadgen.recording import recording
from loadgen.selftest import zero_of
from tests.conformance.attacks import CHUNKED, TOKEN, framed_chunk
from tests.conformance.hostile_server import EVENTS, head
from tests.loadgen.tls_server import accepted, door

REQUEST = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}"
SCRIPT = Exchange((REQUEST,), events=True)
ROUNDS, STREAMS, STEP = 24, 20, 0.0005


def settled(script: Exchange, answer: bytes) -> Stream:
    """A stream that has read its head and some events."""
    stream = Stream(script, 0.0)
    stream.take(answer, 0.0, True)
    for number in range(FIRST):
        stream.take(framed_chunk(TOKEN), float(number), True)
    return stream


IMPATIENT = replace(SCRIPT, patience=9.0)


@pytest.mark.parametrize(
    ("script", "usual", "first"),
    [
        (SCRIPT, 0, FIRST),
        (SCRIPT, LONG - 10, FIRST),
        (SCRIPT, 4 * LONG, 1),
        (IMPATIENT, 4 * LONG, 99),
    ],
)
def test_an_answer_of_events_is_calm_after_its_first_reads(
    script: Exchange, usual: int, first: int
) -> None:
    engine = Engine(lambda: 0.0, Stamps(0.0))
    engine._trio_time = lambda moment: 0.0  # type: ignore[method-assign]
    for _ in range(50):
        engine.pause.ended(usual, 9.0)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        watched = Watched(Stream(script, 0.0), Plain(ours))
        engine.watch(watched)
        for number in range(1, 2 * FIRST):
            theirs.send(head(EVENTS, CHUNKED) if number == 1 else framed_chunk(TOKEN))
            engine._read(watched, 0.0)
            assert (watched.last is not None) is (number >= first)
    engine.close()


@pytest.mark.parametrize(
    ("script", "answer"),
    [
        (replace(SCRIPT, leave=Leave("fin", events=50)), head(EVENTS, CHUNKED)),
        (replace(SCRIPT, patience=9.0), head(EVENTS, CHUNKED)),
        (replace(SCRIPT, events=False), head(EVENTS, CHUNKED)),
        (SCRIPT, head(EVENTS, b"Content-Length: 90000")),
        (SCRIPT, b"HTTP/1.1 200"),
    ],
    ids=["leaves after events", "patience", "no events", "by length", "no head"],
)
def test_where_our_side_may_have_to_react_nobody_pauses(script: Exchange, answer: bytes) -> None:
    assert not settled(script, answer).is_calm


class Server:
    """Answers STREAMS connections; a round, when told: an event to each in turn, STEP apart."""

    def __init__(self, tls: bool) -> None:
        self._listener, self._tls = socket.create_server(("127.0.0.1", 0), backlog=STREAMS), tls
        self.door = door(self._listener, tls)
        self.sends: dict[int, list[tuple[float, float]]] = {}  # by port: before and after each
        self.told, self.rounds = threading.Semaphore(0), 0

    def serve(self) -> None:
        with self._listener:
            ours = [accepted(self._listener, self._tls) for _ in range(STREAMS)]
        for sock in ours:
            sock.recv(65536)
            sock.sendall(head(EVENTS, CHUNKED))
        while self.rounds < ROUNDS:
            self.told.acquire(timeout=20)
            for sock in ours:
                time.sleep(STEP)
                before = time.monotonic()
                sock.sendall(framed_chunk(TOKEN))
                sent = self.sends.setdefault(sock.getpeername()[1], [])
                sent.append((before, time.monotonic()))
            self.rounds += 1
        for sock in ours:
            sock.sendall(b"0\r\n\r\n")
            sock.close()


async def rounds(server: Server, engine: Engine) -> None:
    """Nothing of ours runs while one is sent; the next waits until all of it has been read."""
    watched = engine._watched
    for number in range(ROUNDS):
        # Nobody says when it has read.
        while (  # noqa: ASYNC110
            len(watched) < STREAMS or any(e.stream.reads <= number for e in watched.values())
        ):
            await trio.sleep(0.001)
        server.told.release()
        while server.rounds <= number:
            time.sleep(0.001)  # noqa: ASYNC251


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
@pytest.mark.skipif(not stamps_work(), reason="this system gives no receive stamps")
def test_one_look_serves_several_streams_and_every_event_has_its_own_time(
    monkeypatch: pytest.MonkeyPatch, tls: bool
) -> None:
    server = Server(tls)
    looks: list[None] = []
    look = Engine._look

    def counted(engine: Engine, until: float) -> None:
        looks.append(None)
        look(engine, until)

    monkeypatch.setattr(Engine, "_look", counted)
    thread = threading.Thread(target=server.serve)
    thread.start()
    captures: dict[int, Capture] = {}

    async def main() -> tuple[float, FastRecorder]:
        fast = FastRecorder(server.door)
        fast.engine.pause.ended(LONG, 9.0)
        while fast.engine.pause.seconds < MOST:  # it has grown before
            fast.engine.pause.after(0.0, WINDOW)
        origin = zero_of(time.monotonic, fast.now)

        async def one() -> None:
            async with fast.connection() as connection:
                await connection._connect(Stream(SCRIPT, 0.0))
                assert connection._wire is not None
                port = connection._wire.raw.getsockname()[1]
                captures[port] = await connection.exchange(SCRIPT)

        with trio.fail_after(30):
            async with fast.open(), trio.open_nursery() as nursery:
                nursery.start_soon(rounds, server, fast.engine)
                for _ in range(STREAMS):
                    nursery.start_soon(one)
        return origin, fast

    origin, fast = trio.run(main)
    thread.join()
    engine = fast.engine
    assert engine.reads > STREAMS * ROUNDS / 2
    assert 2 * len(looks) < engine.reads
    assert 0.0 < engine.waited / engine.reads <= engine.longest
    for port, sends in server.sends.items():
        found = captures[port]
        assert found.received.count(TOKEN) == ROUNDS
        times = [read.at or 0.0 for read in found.reads]
        assert all(read.emptied for read in found.reads)
        assert all(a <= b for a, b in pairwise(times))
        own = [any(b - 0.001 <= origin + at <= a + 0.001 for b, a in sends) for at in times]
        assert sum(own) >= len(times) - 2  # the head and the end are no events


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
@pytest.mark.skipif(not stamps_work(), reason="this system gives no receive stamps")
def test_an_event_of_many_reads_comes_whole(tls: bool) -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    large = framed_chunk(b"data: " + b"x" * 1_000_000 + b"\n\n")

    def serve() -> None:
        with listener, accepted(listener, tls) as ours:
            ours.recv(65536)
            for piece in (head(EVENTS, CHUNKED), *(framed_chunk(TOKEN),) * (FIRST + 1)):
                ours.sendall(piece)
                time.sleep(0.01)
            ours.sendall(large + b"0\r\n\r\n")

    async def main() -> Capture:
        recorder = FastRecorder(door(listener, tls))
        with trio.fail_after(20):
            async with recorder.open(), recorder.connection() as connection:
                return await connection.exchange(SCRIPT)

    thread = threading.Thread(target=serve)
    thread.start()
    capture = trio.run(main)
    thread.join()
    assert capture.received.endswith(large + b"0\r\n\r\n")
    assert not all(read.emptied for read in capture.reads)


def test_events_of_one_stream_that_come_closer_shorten_the_pause() -> None:
    engine = Engine(lambda: 0.0, Stamps(0.0))
    engine.pause.ended(LONG, 9.0)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        watched = Watched(Stream(SCRIPT, 0.0), Plain(ours))
        for step, expected in ((10 * MOST, MOST), (MOST, MOST / MARGIN)):
            at = 0.0
            for _ in range(20 * WINDOW):
                engine._note(watched, at, at + step)
                at += step
                engine.pause.after(at, 1)
            assert engine.pause.seconds <= expected
            assert (engine.pause.seconds == MOST) is (expected == MOST)
    engine.close()


def test_the_report_says_how_long_bytes_lay() -> None:
    async def main() -> None:
        async with recording(Door("127.0.0.1", 1), "kernel", ()) as made:
            said = made.described()
            assert {"read_delay", "packets", "unstamped_reads"} <= set(said)
            nothing = {"pause": UNTOLD, "mean": None, "most": None, "reads": 0}
            assert said["read_delay"] == nothing
            assert isinstance(made.recorder, FastRecorder)
            engine = made.recorder.engine
            engine._noted, engine._moments, engine._oldest = 2, 3.0 + 5.0, 3.0
            engine._account(6.0)
            delay = made.described()["read_delay"]
            assert delay == {"pause": UNTOLD, "mean": 2.0, "most": 3.0, "reads": 2}

    if stamps_work():
        trio.run(main)
