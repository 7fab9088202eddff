"""What a read under TLS brings, and of what its stamp is then the time: sockets, and no clock."""

from __future__ import annotations

import select
import socket
from collections.abc import Iterator
from contextlib import closing, suppress

import pytest
import trio

from conformance.capture import Capture, Read
from conformance.connect import Encrypted, TlsCut
from conformance.connect.wire import Plain
from loadgen.fast.tls import Decrypted
from tests.loadgen.tls_server import Sealing, contexts

SIZE = 64 * 1024
EVENT = b"data: {}\n\n"


class Line:
    """Both ends of a connection after the handshake, and a reader of ours."""

    def __init__(self, wire: Encrypted, server: Sealing, theirs: socket.socket) -> None:
        self.wire, self.server, self.theirs = wire, server, theirs
        self.again = 0
        self.reader = Decrypted(wire)
        self.reader.begin(self._again)

    def _again(self) -> None:
        self.again += 1

    def read(self, size: int = SIZE) -> bytes | None:
        """None: nothing yet."""
        try:
            return self.reader.read(size, 0)[0]
        except BlockingIOError:
            return None

    def emptied(self, *ends: int) -> list[bool | None]:
        """What is left of it of reads that ended there."""
        reads = tuple(Read(end, float(end), True) for end in ends)
        capture = Capture(received=b"x" * ends[-1], reads=reads)
        return [read.emptied for read in self.reader.timed(capture).reads]

    def is_readable(self) -> bool:
        return bool(select.select([self.wire.raw], [], [], 0)[0])

    def heard(self, most: int) -> bytes:
        """What the server has got so far."""
        found = b""
        with suppress(BlockingIOError):
            while data := self.theirs.recv(most, socket.MSG_DONTWAIT):
                found += data
        return found

    def close(self) -> None:
        self.wire.close()
        self.theirs.close()


def online(*, tickets: bool = True) -> Line:
    """`tickets`: they have come and been read, else they come with the first record."""
    made: list[Line] = []

    async def main() -> None:
        ours, theirs = socket.socketpair()
        wire = Encrypted(Plain(ours), contexts()[1], "127.0.0.1")
        far = trio.socket.from_stdlib_socket(theirs)
        server = Sealing(trio.SocketStream(far), contexts()[0])
        async with trio.open_nursery() as nursery:
            nursery.start_soon(lambda: server.handshake(tickets=tickets))
            await wire.handshake()
        assert wire.peek() == b""
        made.append(Line(wire, server, socket.socket(fileno=far.detach())))

    trio.run(main)
    return made[0]


@pytest.fixture
def line() -> Iterator[Line]:
    with closing(online()) as made:
        yield made


def test_a_record_that_a_read_completes_has_the_time_of_the_read(line: Line) -> None:
    sealed = line.server.sealed(EVENT)
    line.theirs.send(sealed[:9])
    assert line.read() is None
    line.theirs.send(sealed[9:])
    assert line.read() == EVENT
    assert line.emptied(len(EVENT)) == [True]


def test_of_many_records_the_last_one_has_the_time_of_the_read(line: Line) -> None:
    line.theirs.send(line.server.sealed(*[EVENT] * 50))
    assert line.read() == EVENT * 50
    assert line.emptied(len(EVENT) * 50) == [True]


def test_tickets_before_a_record_leave_it_its_time() -> None:
    with closing(online(tickets=False)) as line:
        line.theirs.send(line.server.sealed(EVENT))
        assert line.read() == EVENT
        assert line.emptied(len(EVENT)) == [True]


def test_a_record_behind_which_another_begins_came_then_or_before(line: Line) -> None:
    first, second = line.server.sealed(EVENT), line.server.sealed(EVENT)
    line.theirs.send(first + second[:1])
    assert line.read() == EVENT
    line.theirs.send(second[1:])
    assert line.read() == EVENT
    assert line.emptied(len(EVENT), 2 * len(EVENT)) == [False, True]


def test_an_answer_that_ends_inside_such_a_read_came_then_or_before(line: Line) -> None:
    line.theirs.send(line.server.sealed(EVENT) + line.server.sealed(EVENT)[:9])
    line.read()
    assert line.emptied(len(EVENT) - 3) == [False]


def test_a_new_exchange_knows_nothing_of_the_last(line: Line) -> None:
    first, second = line.server.sealed(EVENT), line.server.sealed(EVENT)
    line.theirs.send(first + second[:1])
    line.read()
    line.reader.begin(line._again)
    third, fourth = line.server.sealed(EVENT), line.server.sealed(EVENT)
    for data in (second[1:], third + fourth[:1], fourth[1:]):
        line.theirs.send(data)
        assert line.read() == EVENT
    ends = (len(EVENT) * number for number in (1, 2, 3))
    assert line.emptied(*ends) == [True, False, True]


def test_where_more_ciphertext_may_wait_somebody_has_to_come_again(line: Line) -> None:
    sealed = line.server.sealed(EVENT, EVENT)
    line.theirs.send(sealed)
    assert line.read(len(sealed) // 2) == EVENT
    assert line.again == 1
    assert line.read() == EVENT
    assert line.again == 1
    assert line.emptied(len(EVENT), 2 * len(EVENT)) == [False, True]


def test_a_goodbye_that_came_with_other_bytes_is_heard_of_without_any_more(line: Line) -> None:
    line.theirs.send(line.server.sealed(EVENT) + line.server.goodbye())
    assert line.read() == EVENT
    assert line.is_readable()
    assert not line.wire.is_quiet()
    assert [line.read(), line.read()] == [b"", b""]
    assert line.emptied(len(EVENT)) == [False]


def test_an_end_that_was_read_before_the_exchange_began_is_heard_of(line: Line) -> None:
    line.theirs.send(line.server.goodbye())
    assert line.wire.peek() == b""
    assert not line.is_readable()
    line.reader.begin(line._again)
    assert line.is_readable()
    assert line.read() == b""


def test_an_alert_is_told_after_what_came_before_it(line: Line) -> None:
    line.theirs.send(line.server.sealed(EVENT) + line.server.alert())
    assert line.read() == EVENT
    for _ in range(2):
        with pytest.raises(OSError, match="ALERT"):
            line.read()


def test_a_close_without_a_goodbye_is_a_cut(line: Line) -> None:
    line.theirs.send(line.server.sealed(EVENT)[:-1])
    line.theirs.close()
    assert line.read() is None
    with pytest.raises(TlsCut):
        line.read()


def test_what_tls_itself_has_to_say_leaves_with_the_next_read(line: Line) -> None:
    line.wire._outward.write(b"a key of mine")
    line.theirs.send(line.server.sealed(EVENT))
    assert line.read() == EVENT
    assert line.theirs.recv(100) == b"a key of mine"


def test_nobody_waits_for_a_peer_that_does_not_read(line: Line) -> None:
    with suppress(BlockingIOError):
        while line.wire.raw.send(b"x" * SIZE):
            pass
    line.wire._outward.write(b"a key of mine")
    line.theirs.send(line.server.sealed(EVENT))
    assert line.read() == EVENT
    heard = line.heard(SIZE)
    assert line.wire.flush_now()
    assert (heard + line.heard(SIZE)).endswith(b"xa key of mine")


def test_a_request_that_does_not_go_at_once_goes_in_order(line: Line) -> None:
    said = [line.wire.send_now(b"x" * 5_000_000), line.wire.send_now(b"y")]
    assert said == [b"", b""]
    sealed = b""
    while not line.wire.flush_now():
        sealed += line.heard(SIZE)
    opened = line.server.opened(sealed + line.heard(SIZE))
    assert opened == b"x" * 5_000_000 + b"y"
    assert line.wire.send_now(b"z") is None
    assert line.server.opened(line.heard(SIZE)) == b"z"
