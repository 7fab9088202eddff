"""The recorder against hostile servers on real loopback sockets, under a virtual clock."""

from __future__ import annotations

import errno
import random
import socket
import struct
import tempfile
import time
import tracemalloc
from collections.abc import Awaitable, Callable
from itertools import pairwise
from pathlib import Path

import pytest
import trio
import trio.testing

from conformance.capture import Capture, How
from conformance.connect import Door
from conformance.connect.wire import Plain
from conformance.recorder import Recorder
from conformance.script import Bounds, Clocks, Exchange, Leave

REQUEST = b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}"
OK = b"HTTP/1.1 200 OK\r\n"
PLAIN = OK + b"Content-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"
STREAM_HEAD = OK + b"Content-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
CLOCKS = Clocks(connect=5, first_byte=20, progress=30, closing=3, total=300)

Handler = Callable[[trio.SocketStream], Awaitable[None]]


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def run(main: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        with trio.fail_after(100_000):  # virtual seconds
            await main()

    trio.run(bounded, clock=trio.testing.MockClock(autojump_threshold=0))


def script(events: bool = False, **changes: object) -> Exchange:
    fields: dict[str, object] = {"events": events, "clocks": CLOCKS, **changes}
    return Exchange((REQUEST,), **fields)  # type: ignore[arg-type]


async def request_of(stream: trio.SocketStream) -> bytes:
    return bytes(await stream.receive_some(65536))


async def against(handler: Handler, exchange: Exchange) -> Capture:
    """The capture of one exchange with a server that answers each connection with `handler`."""
    async with trio.open_nursery() as nursery:
        recorder = Recorder(await door_to(handler, nursery))
        capture = await recorder.exchange(exchange)
        nursery.cancel_scope.cancel()
    return capture


async def door_to(handler: Handler, nursery: trio.Nursery) -> Door:
    async def guarded(stream: trio.SocketStream) -> None:
        try:
            await handler(stream)
        except trio.BrokenResourceError:
            pass  # we hung up on it, as half of these tests want
        finally:
            await trio.aclose_forcefully(stream)

    listeners = await nursery.start(trio.serve_tcp, guarded, 0)
    return Door("127.0.0.1", listeners[0].socket.getsockname()[1])


def recorded(handler: Handler, exchange: Exchange | None = None) -> Capture:
    captures: list[Capture] = []

    async def main() -> None:
        captures.append(await against(handler, exchange or script()))

    run(main)
    return captures[0]


def answering(*pieces: bytes) -> Handler:
    """Reads the request, sends the pieces in one go and closes."""

    async def handler(stream: trio.SocketStream) -> None:
        await request_of(stream)
        await stream.send_all(b"".join(pieces))

    return handler


# -- whole answers -------------------------------------------------------------------------------


def test_an_answer_with_content_length_ends_by_its_framing() -> None:
    capture = recorded(answering(PLAIN))
    assert capture.end.how is How.FRAMED
    assert capture.received == PLAIN
    assert capture.request[0].data == REQUEST
    assert capture.sent_at is not None
    assert (capture.connection, capture.ordinal) == (0, 0)
    assert capture.reads[-1].end == len(PLAIN)


def test_a_chunked_stream_ends_by_its_zero_chunk_although_the_socket_stays_open() -> None:
    body = chunk(b"data: {}\n\n") + chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n"

    async def handler(stream: trio.SocketStream) -> None:
        await request_of(stream)
        await stream.send_all(STREAM_HEAD + body)
        await trio.sleep_forever()

    capture = recorded(handler, script(events=True))
    assert capture.end.how is How.FRAMED
    assert capture.received == STREAM_HEAD + body


def test_every_read_carries_its_own_time() -> None:
    async def handler(stream: trio.SocketStream) -> None:
        await request_of(stream)
        await stream.send_all(STREAM_HEAD)
        for _ in range(3):
            await trio.sleep(2)
            await stream.send_all(chunk(b"data: {}\n\n"))
        await stream.send_all(b"0\r\n\r\n")

    capture = recorded(handler, script(events=True))
    times = [read.at for read in capture.reads]
    assert times[0] is not None
    assert times[-1] is not None
    assert times[-1] - times[0] == pytest.approx(6)
    assert all(read.emptied for read in capture.reads)


def test_a_body_delimited_by_close_ends_closed() -> None:
    capture = recorded(answering(OK + b"Content-Type: text/event-stream\r\n\r\ndata: {}\n\n"))
    assert capture.end.how is How.CLOSED
    assert capture.received.endswith(b"data: {}\n\n")


def test_bytes_after_the_end_of_the_message_are_late_and_not_part_of_it() -> None:
    capture = recorded(answering(PLAIN, b"HTTP/1.1 200 OK\r\n"))
    assert capture.received == PLAIN
    assert capture.late == b"HTTP/1.1 200 OK\r\n"
    assert capture.reads[-1].end == len(PLAIN)


def test_late_bytes_are_awaited_only_on_request() -> None:
    async def handler(stream: trio.SocketStream) -> None:
        await request_of(stream)
        await stream.send_all(PLAIN)
        await trio.sleep(0.2)
        await stream.send_all(b"junk")

    assert recorded(handler).late == b""
    assert recorded(handler, script(linger=0.25)).late == b"junk"


def test_bytes_that_wait_before_the_request_has_left_are_early() -> None:
    async def main() -> None:
        async def handler(stream: trio.SocketStream) -> None:
            await request_of(stream)
            await stream.send_all(PLAIN)
            await trio.sleep(1)
            await stream.send_all(b"left over")
            await request_of(stream)
            await stream.send_all(PLAIN)
            await trio.sleep_forever()

        async with trio.open_nursery() as nursery:
            recorder = Recorder(await door_to(handler, nursery))
            async with recorder.connection() as connection:
                await connection.exchange(script())
                await trio.sleep(2)
                second = await connection.exchange(script())
            nursery.cancel_scope.cancel()
        assert second.early == b"left over"
        assert second.received == PLAIN
        assert (second.connection, second.ordinal) == (0, 1)

    run(main)


def test_an_announced_close_ends_the_connection() -> None:
    async def main() -> None:
        closing = PLAIN.replace(b"\r\n\r\n", b"\r\nConnection: Close\r\n\r\n")
        async with trio.open_nursery() as nursery:
            recorder = Recorder(await door_to(answering(closing), nursery))
            async with recorder.connection() as connection:
                first = await connection.exchange(script())
                assert first.end.how is How.FRAMED
                assert not connection.usable
                again = await connection.exchange(script())
            nursery.cancel_scope.cancel()
        assert (again.end.how, again.end.detail) == (How.NOT_CONNECTED, "used up")

    run(main)


@pytest.mark.parametrize(("field", "usable"), [(b"", False), (b"Connection: Keep-Alive\r\n", True)])
def test_an_http10_answer_keeps_the_connection_only_if_it_says_so(
    field: bytes, usable: bool
) -> None:
    async def main() -> None:
        answer = b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n" + field + b"\r\n{}"
        async with trio.open_nursery() as nursery:
            recorder = Recorder(await door_to(answering(answer), nursery))
            async with recorder.connection() as connection:
                await connection.exchange(script())
                assert connection.usable is usable
            nursery.cancel_scope.cancel()

    run(main)


def test_a_unix_socket_is_a_door_like_any_other() -> None:
    async def main() -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = str(Path(folder) / "socket")
            listener = socket.socket(socket.AF_UNIX)
            listener.bind(path)  # trio's own bind would use a thread, which no virtual clock knows
            listener.listen()
            served = trio.SocketListener(trio.socket.from_stdlib_socket(listener))
            async with trio.open_nursery() as nursery:
                nursery.start_soon(trio.serve_listeners, answering(PLAIN), [served])
                capture = await Recorder(Door("x", 80, unix=path)).exchange(script())
                nursery.cancel_scope.cancel()
        assert capture.end.how is How.FRAMED

    run(main)


# -- refusals and clocks -------------------------------------------------------------------------


def test_a_refused_connection_names_its_errno() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    captures: list[Capture] = []

    async def main() -> None:
        captures.append(await Recorder(Door("127.0.0.1", port)).exchange(script()))

    run(main)
    assert (captures[0].end.how, captures[0].end.detail) == (How.NOT_CONNECTED, "ECONNREFUSED")
    assert captures[0].connected_at is None


def test_a_name_that_does_not_resolve_is_not_connected() -> None:
    captures: list[Capture] = []

    async def main() -> None:
        captures.append(await Recorder(Door("no-such-host.invalid", 80)).exchange(script()))

    trio.run(main)  # the resolver's thread knows no virtual clock
    assert captures[0].end.how is How.NOT_CONNECTED
    assert (captures[0].end.detail or "").startswith("EAI_")


def test_a_connection_that_nobody_accepts_runs_out_of_the_connect_clock() -> None:
    """A unix listener with a full backlog blocks the next connect, as a lost SYN does."""

    async def never(path: str) -> trio.SocketStream:
        await trio.sleep_forever()
        raise AssertionError("unreachable")

    captures: list[Capture] = []

    async def main() -> None:
        captures.append(await Recorder(Door("x", 1, unix="/nowhere")).exchange(script()))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trio, "open_unix_socket", never)
        run(main)
    assert (captures[0].end.how, captures[0].end.detail) == (How.CLOCK, "connect")
    assert captures[0].end.at == pytest.approx(CLOCKS.connect)


def test_silence_after_accept_runs_out_of_the_first_byte_clock() -> None:
    async def handler(stream: trio.SocketStream) -> None:
        await trio.sleep_forever()

    capture = recorded(handler)
    assert (capture.end.how, capture.end.detail) == (How.CLOCK, "first-byte")
    assert capture.end.at == pytest.approx(CLOCKS.first_byte)


def test_a_head_that_dribbles_is_no_progress() -> None:
    async def handler(stream: trio.SocketStream) -> None:
        await request_of(stream)
        while True:
            await stream.send_all(b"H")
            await trio.sleep(1)

    capture = recorded(handler)
    assert (capture.end.how, capture.end.detail) == (How.CLOCK, "progress")
    assert capture.end.at == pytest.approx(CLOCKS.progress)


def test_heartbeats_blank_lines_and_half_events_are_no_progress() -> None:
    async def handler(stream: trio.SocketStream) -> None:
        await request_of(stream)
        await stream.send_all(STREAM_HEAD + chunk(b"data: {}\n\n"))
        while True:
            await trio.sleep(1)
            await stream.send_all(chunk(b": ping\n\n\nevent: x\n"))

    capture = recorded(handler, script(events=True))
    assert (capture.end.how, capture.end.detail) == (How.CLOCK, "progress")
    assert capture.end.at == pytest.approx(CLOCKS.progress, abs=1)


def test_a_byte_a_second_in_a_plain_body_ends_with_the_total_clock() -> None:
    async def handler(stream: trio.SocketStream) -> None:
        await request_of(stream)
        await stream.send_all(OK + b"Content-Length: 100000\r\n\r\n")
        while True:
            await trio.sleep(1)
            await stream.send_all(b"x")

    capture = recorded(handler)
    assert (capture.end.how, capture.end.detail) == (How.CLOCK, "total")
    assert capture.end.at == pytest.approx(CLOCKS.total)


def test_a_socket_left_open_after_the_sentinel_ends_with_the_closing_clock() -> None:
    async def handler(stream: trio.SocketStream) -> None:
        await request_of(stream)
        await stream.send_all(STREAM_HEAD + chunk(b"data: [DONE]\n\n"))
        await trio.sleep_forever()

    capture = recorded(handler, script(events=True))
    assert (capture.end.how, capture.end.detail) == (How.CLOCK, "progress")
    assert capture.end.at == pytest.approx(CLOCKS.closing)


def test_a_server_that_reads_nothing_does_not_hold_a_long_request_for_ever() -> None:
    async def handler(stream: trio.SocketStream) -> None:
        await trio.sleep_forever()

    capture = recorded(handler, Exchange((b"x" * 64_000_000,), clocks=CLOCKS))
    assert (capture.end.how, capture.end.detail) == (How.CLOCK, "first-byte")
    assert capture.sent_at is None
    assert capture.request == ()


# -- broken ends ---------------------------------------------------------------------------------


@pytest.mark.parametrize("sent", [b"", b"HTTP/1.1 20", PLAIN[:-1]])
def test_a_reset_is_recorded_with_what_came_before(sent: bytes) -> None:
    async def handler(stream: trio.SocketStream) -> None:
        await request_of(stream)
        await stream.send_all(sent)
        await trio.sleep(1)
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        stream.socket.close()

    capture = recorded(handler)
    assert (capture.end.how, capture.end.detail) == (How.RESET, "ECONNRESET")
    assert capture.received == sent


def test_a_reset_while_the_connection_was_idle_is_a_reset_of_the_next_exchange() -> None:
    captures: list[Capture] = []

    async def handler(stream: trio.SocketStream) -> None:
        await request_of(stream)
        await stream.send_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            recorder = Recorder(await door_to(handler, nursery))
            async with recorder.connection() as connection:
                for _ in range(2):
                    captures.append(await connection.exchange(script()))
                    await trio.sleep(1)
            nursery.cancel_scope.cancel()

    run(main)
    assert [capture.end.how for capture in captures] == [How.FRAMED, How.RESET]


def test_a_body_shorter_than_its_length_ends_closed() -> None:
    short = OK + b"Content-Length: 10\r\n\r\nabc"
    capture = recorded(answering(short))
    assert capture.end.how is How.CLOSED
    assert capture.received == short


def test_a_body_longer_than_its_length_ends_framed_and_the_rest_is_late() -> None:
    capture = recorded(answering(OK + b"Content-Length: 2\r\n\r\n{}more"))
    assert capture.end.how is How.FRAMED
    assert capture.late == b"more"


def test_a_close_without_any_answer_ends_closed_and_empty() -> None:
    capture = recorded(answering(b""))
    assert capture.end.how is How.CLOSED
    assert capture.received == b""


@pytest.mark.parametrize("seed", range(20))
def test_no_bytes_crash_or_hang_it_and_none_are_lost(seed: int) -> None:
    pieces = _garbage(random.Random(seed))

    async def handler(stream: trio.SocketStream) -> None:
        await request_of(stream)
        for piece in pieces:
            await stream.send_all(piece)
            await trio.sleep(0.01)

    capture = recorded(handler, script(events=True, linger=1))
    whole = b"".join(pieces)
    assert whole.startswith(capture.received + capture.late), f"seed {seed}"
    if capture.end.how is not How.RESET:
        assert capture.received + capture.late == whole, f"seed {seed}"
    ends = [read.end for read in capture.reads]
    assert ends == sorted(ends)
    assert not ends or ends[-1] == len(capture.received)


def _garbage(rng: random.Random) -> list[bytes]:
    """Shuffled parts of right answers, cut anywhere and spoiled here and there."""
    parts = [
        OK,
        STREAM_HEAD,
        b"\r\n",
        chunk(b"data: {}\n\n"),
        b"0\r\n\r\n",
        b"Content-Length: 9\r\n",
    ]
    parts += [b"data: [DONE]\n\n", b"fffffffffff\r\n", b"\0\xff", b"HTTP/1.1 100 Continue\r\n\r\n"]
    data = bytearray(b"".join(rng.choices(parts, k=12)))
    for _ in range(rng.randrange(4)):
        data[rng.randrange(len(data))] = rng.randrange(256)
    cuts = sorted(rng.sample(range(1, len(data)), k=min(5, len(data) - 1)))
    return [bytes(data[a:b]) for a, b in pairwise([0, *cuts, len(data)])]


# -- bounds --------------------------------------------------------------------------------------


async def flood(stream: trio.SocketStream, start: bytes, piece: bytes) -> None:
    await request_of(stream)
    await stream.send_all(start)
    while True:
        await stream.send_all(piece * 1000)


@pytest.mark.parametrize(
    ("start", "piece", "bound"),
    [
        (OK, b"X-Filler: yes\r\n", "head"),
        (b"", b"HTTP/1.1 100 Continue\r\n\r\n", "head"),
        (OK + b"\r\n", b"data: {}\n\n", "body"),
        (STREAM_HEAD, chunk(b"data: {}\n\n"), "body"),
        (OK + b"Content-Type: text/event-stream\r\n\r\ndata: ", b"xxxxxxxx", "event"),
    ],
)
def test_an_endless_answer_ends_at_its_bound_in_bounded_memory(
    start: bytes, piece: bytes, bound: str
) -> None:
    async def handler(stream: trio.SocketStream) -> None:
        await flood(stream, start, piece)

    bounds = Bounds(head=64 * 1024, body=256 * 1024, event=128 * 1024)
    tracemalloc.start()
    try:
        capture = recorded(handler, script(events=True, bounds=bounds))
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert (capture.end.how, capture.end.detail) == (How.BOUND, bound)
    assert len(capture.received) <= bounds.body + 128 * 1024
    assert most < 40 * 1024 * 1024


def test_the_number_of_reads_is_bounded_too() -> None:
    async def handler(stream: trio.SocketStream) -> None:
        await request_of(stream)
        await stream.send_all(OK + b"\r\n")
        while True:
            await trio.sleep(0.01)
            await stream.send_all(b"x")

    capture = recorded(handler, script(bounds=Bounds(reads=50)))
    assert (capture.end.how, capture.end.detail) == (How.BOUND, "body")
    assert len(capture.reads) == 50


# -- leaving -------------------------------------------------------------------------------------


class Seen:
    """What the server's own recv says after its last answer: b"" at FIN, an errno at RST."""

    def __init__(self) -> None:
        self.data: bytes | None = None
        self.errno: int | None = None


def listening(seen: Seen, *, events: int, then: bytes = b"") -> Handler:
    """Sends so many events and reports what its next recv sees."""

    async def handler(stream: trio.SocketStream) -> None:
        await request_of(stream)
        if events:
            await stream.send_all(STREAM_HEAD + chunk(b"data: {}\n\n") * events)
        try:
            seen.data = await stream.receive_some(100)
        except trio.BrokenResourceError as error:
            seen.errno = getattr(error.__cause__, "errno", None)
            return
        await stream.send_all(then)

    return handler


async def left(handler: Handler, leave: Leave) -> Capture:
    async with trio.open_nursery() as nursery:
        recorder = Recorder(await door_to(handler, nursery))
        capture = await recorder.exchange(script(events=True, leave=leave))
        await trio.sleep(1)
        nursery.cancel_scope.cancel()
    return capture


@pytest.mark.parametrize("how", ["fin", "rst"])
@pytest.mark.parametrize("events", [0, 1, 2])
def test_leaving_after_events_shows_at_the_servers_recv(how: str, events: int) -> None:
    seen = Seen()

    async def main() -> None:
        capture = await left(listening(seen, events=events), Leave(how, events=events))
        assert (capture.end.how, capture.end.left) == (How.LEFT, how)
        assert capture.end.detail == "leave"

    run(main)
    if how == "fin":
        assert (seen.data, seen.errno) == (b"", None)
    else:
        assert (seen.data, seen.errno) == (None, errno.ECONNRESET)


def tcp_pair() -> tuple[socket.socket, socket.socket]:
    """(ours, the server's) end of one loopback connection, blocking."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        ours = socket.create_connection(listener.getsockname())
        theirs, _ = listener.accept()
    return ours, theirs


def test_a_fin_stays_a_fin_although_bytes_lie_unread() -> None:
    """Without emptying the queue Linux sends RST after the FIN: the peer's error is then EPIPE."""
    ours, theirs = tcp_pair()
    with theirs:
        theirs.sendall(b"x" * 10_000)
        ours.recv(10_000, socket.MSG_PEEK | socket.MSG_WAITALL)
        wire = Plain(ours)
        assert wire.waiting() == 10_000
        wire.leave("fin")
        assert theirs.recv(1) == b""
        time.sleep(0.05)  # for an RST that should not come; no virtual clock drives the kernel
        assert theirs.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0


def test_leaving_says_how_much_lies_unread() -> None:
    async def handler(stream: trio.SocketStream) -> None:
        await request_of(stream)
        await stream.send_all(STREAM_HEAD + chunk(b"data: {}\n\n") * 30_000)

    capture = recorded(handler, script(events=True, leave=Leave("rst", events=1)))
    assert capture.end.unread is not None
    assert capture.end.unread > 0


def test_half_closing_goes_on_reading() -> None:
    seen = Seen()

    async def main() -> None:
        rest = chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n"
        capture = await left(listening(seen, events=2, then=rest), Leave("half", events=2))
        assert (capture.end.how, capture.end.left) == (How.FRAMED, "half")
        assert capture.received.endswith(rest)

    run(main)
    assert seen.data == b""


def test_leaving_after_seconds_counts_from_the_request() -> None:
    async def main() -> None:
        capture = await left(listening(Seen(), events=2), Leave("rst", seconds=7))
        assert capture.end.how is How.LEFT
        assert capture.end.at == pytest.approx(7)

    run(main)


def test_patience_ends_without_a_first_event_and_is_forgotten_with_one() -> None:
    async def handler(stream: trio.SocketStream) -> None:
        await request_of(stream)
        await stream.send_all(STREAM_HEAD + chunk(b": ping\n\n"))
        await trio.sleep_forever()

    capture = recorded(handler, script(events=True, patience=4))
    assert (capture.end.how, capture.end.detail, capture.end.left) == (How.LEFT, "patience", "fin")
    assert capture.end.at == pytest.approx(4)

    async def in_time(stream: trio.SocketStream) -> None:
        await request_of(stream)
        await stream.send_all(STREAM_HEAD + chunk(b"data: {}\n\n"))
        await trio.sleep(10)
        await stream.send_all(b"0\r\n\r\n")

    assert recorded(in_time, script(events=True, patience=4)).end.how is How.FRAMED


def test_cancellation_passes_through_and_closes_the_socket() -> None:
    closed: list[bytes] = []

    async def main() -> None:
        async def handler(stream: trio.SocketStream) -> None:
            await request_of(stream)
            closed.append(await stream.receive_some(1))

        async with trio.open_nursery() as nursery:
            recorder = Recorder(await door_to(handler, nursery))
            with trio.move_on_after(1) as scope:
                await recorder.exchange(script())
            assert scope.cancelled_caught
            await trio.sleep(1)
            nursery.cancel_scope.cancel()

    run(main)
    assert closed == [b""]
