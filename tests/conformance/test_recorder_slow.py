"""The recorder as a slow client, and the three ways of leaving, ten times each."""

from __future__ import annotations

import errno
import socket

import pytest
import trio

from conformance.capture import Capture, How
from conformance.connect import Door, connect
from conformance.recorder import Recorder
from conformance.script import Exchange, Leave, Slow
from tests.conformance.test_recorder import (
    CLOCKS,
    REQUEST,
    STREAM_HEAD,
    Seen,
    against,
    chunk,
    door_to,
    recorded,
    request_of,
    run,
    script,
)

PIECES = 10
EVENT = chunk(b"data: {}\n\n")


async def ticking(stream: trio.SocketStream) -> None:
    """An event each second."""
    await request_of(stream)
    await stream.send_all(STREAM_HEAD)
    for _ in range(PIECES):
        await stream.send_all(EVENT)
        await trio.sleep(1)
    await stream.send_all(b"0\r\n\r\n")


def test_a_pause_after_two_events_reads_nothing_for_its_seconds_and_all_of_it_afterwards() -> None:
    notes: list[tuple[float, str]] = []

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            recorder = Recorder(await door_to(ticking, nursery))
            exchange = script(events=True, slow=Slow(pause=4.5, events=2))
            capture = await recorder.exchange(exchange, lambda at, what: notes.append((at, what)))
            assert capture.end.how is How.FRAMED
            assert capture.received.count(b"data:") == PIECES
            times = [read.at for read in capture.reads]
            assert not [at for at in times if at is not None and 1 < at < 5.5]
            nursery.cancel_scope.cancel()

    run(main)
    assert [what for _, what in notes] == ["answered", "pause", "resume"]
    assert [at for at, _ in notes] == pytest.approx([0, 1, 5.5])


def test_a_pause_from_the_start_begins_when_the_request_has_left() -> None:
    capture = recorded(ticking, script(events=True, slow=Slow(pause=3)))
    assert capture.reads[0].at == pytest.approx(3)
    assert capture.received.count(b"data:") == PIECES


def test_a_pause_does_not_keep_our_side_from_leaving() -> None:
    slow = Slow(pause=100, events=1)
    capture = recorded(ticking, script(events=True, slow=slow, leave=Leave("rst", seconds=7)))
    assert (capture.end.how, capture.end.left) == (How.LEFT, "rst")
    assert capture.end.at == pytest.approx(7)


def test_a_pause_is_no_lack_of_progress_of_the_peer() -> None:
    slow = Slow(pause=CLOCKS.progress - 1, events=9)
    assert recorded(ticking, script(events=True, slow=slow)).end.how is How.FRAMED


def test_a_rate_is_kept() -> None:
    async def all_at_once(stream: trio.SocketStream) -> None:
        await request_of(stream)
        await stream.send_all(STREAM_HEAD + chunk(b"x" * 1000) + b"0\r\n\r\n")

    capture = recorded(all_at_once, script(slow=Slow(rate=100)))
    assert capture.end.how is How.FRAMED
    assert capture.end.at == pytest.approx(len(capture.received) / 100, abs=0.2)
    assert max(b.end - a.end for a, b in zip(capture.reads, capture.reads[1:], strict=False)) <= 10


def test_a_small_buffer_makes_the_peer_wait() -> None:
    """What a peer can send before it must wait, against a socket that is never read."""

    def held(buffer: int | None) -> int:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            door = Door("127.0.0.1", listener.getsockname()[1])

            async def main() -> int:
                wire = await connect(door, buffer)
                theirs, _ = listener.accept()
                with theirs:
                    theirs.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
                    theirs.settimeout(0.2)
                    sent = 0
                    try:
                        while sent < 10_000_000:
                            sent += theirs.send(b"x" * 4096)
                    except TimeoutError:
                        pass
                wire.close()
                return sent

            return trio.run(main)

    assert held(4096) < 40_000 < held(None)


def test_segments_leave_apart_and_each_carries_its_time() -> None:
    async def handler(stream: trio.SocketStream) -> None:
        data = b""
        while len(data) < len(REQUEST):
            data += await stream.receive_some(100)
        await stream.send_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")

    pieces = tuple(REQUEST[at : at + 8] for at in range(0, len(REQUEST), 8))
    capture = recorded(handler, Exchange(pieces, between=0.5, clocks=CLOCKS))
    assert b"".join(segment.data for segment in capture.request) == REQUEST
    times = [segment.at for segment in capture.request]
    assert times == [pytest.approx(0.5 * number) for number in range(len(pieces))]
    assert capture.sent_at == times[-1]


async def unread_then_left(how: str) -> tuple[Capture, Seen]:
    """Leaves while bytes of the peer lie unread; what the peer's own recv says then."""
    seen = Seen()

    async def handler(stream: trio.SocketStream) -> None:
        await request_of(stream)
        await stream.send_all(STREAM_HEAD + EVENT)
        await trio.sleep(1)
        await stream.send_all(EVENT * 1000)  # lies there: our side reads nothing now
        try:
            seen.data = await stream.receive_some(100)
        except trio.BrokenResourceError as error:
            seen.errno = getattr(error.__cause__, "errno", None)

    exchange = script(events=True, slow=Slow(pause=50, events=1), leave=Leave(how, seconds=3))
    capture = await against(handler, exchange)
    return capture, seen


@pytest.mark.parametrize("time", range(10))
@pytest.mark.parametrize("how", ["fin", "rst"])
def test_leaving_with_bytes_unread_is_what_the_peers_recv_sees(how: str, time: int) -> None:
    out: list[tuple[Capture, Seen]] = []

    async def main() -> None:
        out.append(await unread_then_left(how))

    run(main)
    capture, seen = out[0]
    assert (capture.end.how, capture.end.left) == (How.LEFT, how)
    assert capture.end.unread == 1000 * len(EVENT)
    assert (seen.data, seen.errno) == ((b"", None) if how == "fin" else (None, errno.ECONNRESET))


@pytest.mark.parametrize("time", range(10))
def test_half_closing_with_bytes_unread_is_a_fin_and_nothing_is_lost(time: int) -> None:
    seen = Seen()

    async def handler(stream: trio.SocketStream) -> None:
        await request_of(stream)
        await stream.send_all(STREAM_HEAD + EVENT * 1000)
        seen.data = await stream.receive_some(100)
        await stream.send_all(EVENT + b"0\r\n\r\n")

    capture = recorded(handler, script(events=True, leave=Leave("half", events=1)))
    assert (capture.end.how, capture.end.left) == (How.FRAMED, "half")
    assert seen.data == b""
    assert capture.received.count(b"data:") == 1001
