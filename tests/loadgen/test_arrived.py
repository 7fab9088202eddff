"""What packets say without a socket: headers, sequence numbers, and the filter before them."""

from __future__ import annotations

import itertools
import random
import socket
import struct

import pytest

from loadgen.fast import bpf
from loadgen.fast.arrived import Arrivals
from loadgen.fast.headers import ACK, FIN, HEADERS, SYN, connection, packed, said

THEIRS, OURS = ("192.0.2.7", 8000), ("192.0.2.9", 40000)
THEIRS6, OURS6 = ("2001:db8::7", 8000), ("2001:db8::9", 40000)
End = tuple[str, int]


def tcp(ports: tuple[int, int], sequence: int, flags: int, options: int = 12) -> bytes:
    words = (20 + options) // 4
    fixed = struct.pack("!HHIIBBHHH", *ports, sequence, 1, words << 4, flags, 512, 0, 0)
    return fixed + bytes(options)


def v4(
    data: int,
    sequence: int = 1,
    flags: int = ACK,
    *,
    theirs: End = THEIRS,
    ours: End = OURS,
    total: int | None = None,
    fragment: int = 0x4000,
    protocol: int = 6,
    options: int = 0,
) -> bytes:
    """The headers of an IPv4 packet that has so many bytes of data."""
    segment = tcp((theirs[1], ours[1]), sequence, flags)
    length = 20 + options + len(segment) + data if total is None else total
    first = (0x40 | (20 + options) // 4, 0, length, 7, fragment, 64, protocol, 0)
    addresses = packed(theirs[0]) + packed(ours[0])
    return struct.pack("!BBHHHBBH", *first) + addresses + bytes(options) + segment


def v6(data: int, sequence: int = 1, flags: int = ACK, *, header: int = 6) -> bytes:
    segment = tcp((THEIRS6[1], OURS6[1]), sequence, flags)
    first = struct.pack("!IHBB", 6 << 28, len(segment) + data, header, 64)
    return first + packed(THEIRS6[0]) + packed(OURS6[0]) + segment


# -- headers ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [0, 4, 40])
def test_headers_of_ipv4_say_connection_number_and_bytes(options: int) -> None:
    packet = v4(150, 77, ACK | FIN, options=options)
    length = len(packet) + 150
    assert said(packet, length) == (connection(THEIRS, OURS), 77, 150, ACK | FIN)


def test_headers_of_ipv6_say_the_same() -> None:
    packet = v6(150, 77, SYN | ACK)
    assert said(packet, len(packet) + 150) == (connection(THEIRS6, OURS6), 77, 150, SYN | ACK)


def test_what_pads_a_short_frame_is_no_data() -> None:
    packet = v4(0)
    assert said(packet + bytes(6), len(packet) + 6) == (connection(THEIRS, OURS), 1, 0, ACK)


def test_a_train_of_segments_too_long_for_the_field_has_its_real_length() -> None:
    packet = v4(0, total=0)
    assert said(packet, len(packet) + 100_000) == (connection(THEIRS, OURS), 1, 100_000, ACK)


def test_an_address_of_ipv4_in_a_socket_of_ipv6_is_one_of_ipv4() -> None:
    mapped = ("::ffff:192.0.2.7", 8000), ("::ffff:192.0.2.9", 40000)
    assert connection(*mapped) == connection(THEIRS, OURS)
    assert packed("fe80::1%lo") == socket.inet_pton(socket.AF_INET6, "fe80::1")


@pytest.mark.parametrize(
    "packet",
    [
        b"",
        v4(5, fragment=0x2000),
        v4(5, fragment=0x0001),
        v4(5, protocol=17),
        v6(5, header=17),
        v6(5, header=0),
        v4(5)[:39],
        v6(5)[:59],
        b"\x41" + v4(5)[1:],
        v4(0, total=30),
    ],
    ids=range(10),
)
def test_what_is_no_whole_segment_says_nothing(packet: bytes) -> None:
    assert said(packet, 1500) is None


def test_no_bytes_break_the_reading_of_headers() -> None:
    for seed in range(3000):
        draw = random.Random(seed)
        packet = bytearray(draw.choice((v4(9), v6(9), draw.randbytes(80))))
        packet[draw.randrange(len(packet))] = draw.randrange(256)
        found = said(bytes(packet[: draw.randrange(len(packet) + 1)]), draw.randrange(70_000))
        assert found is None or found[2] >= 0, seed


# -- arrivals --------------------------------------------------------------------------------------


def test_each_byte_has_the_arrival_of_its_segment() -> None:
    arrivals = Arrivals(syn=99)
    arrivals.add(100, 10, 1.0)
    arrivals.add(110, 5, 2.0)
    assert arrivals.end == 15
    assert arrivals.between(0, 15) == [(10, 1.0), (15, 2.0)]


def test_an_exchange_has_its_own_bytes_alone() -> None:
    arrivals = Arrivals(syn=99)
    for number in range(4):
        arrivals.add(100 + 10 * number, 10, float(number))
    assert arrivals.between(0, 15) == [(10, 0.0), (15, 1.0)]
    assert arrivals.between(15, 40) == [(5, 1.0), (15, 2.0), (25, 3.0)]


def test_of_what_is_sent_twice_the_first_arrival_counts() -> None:
    arrivals = Arrivals(syn=99)
    arrivals.add(100, 10, 1.0)
    arrivals.add(100, 10, 5.0)
    arrivals.add(105, 10, 6.0)  # half of it is new
    assert arrivals.between(0, 15) == [(10, 1.0), (15, 6.0)]


def test_what_comes_before_its_turn_is_there_when_the_hole_is_filled() -> None:
    arrivals = Arrivals(syn=99)
    arrivals.add(120, 10, 1.0)
    arrivals.add(110, 10, 2.0)
    assert arrivals.end == 0
    arrivals.add(100, 10, 3.0)
    arrivals.add(130, 10, 4.0)
    assert arrivals.between(0, 40) == [(30, 3.0), (40, 4.0)]


def test_numbers_wrap_and_offsets_go_on() -> None:
    first = 2**32 - 5
    arrivals = Arrivals(syn=first - 1)
    arrivals.add(first, 3, 1.0)
    arrivals.add(first + 3, 4, 2.0)  # over the edge
    arrivals.add(2, 10, 3.0)
    arrivals.add(first, 3, 4.0)  # an old one once more
    assert arrivals.between(0, 17) == [(3, 1.0), (7, 2.0), (17, 3.0)]
    whole = Arrivals(syn=2**32 - 1)
    step = 2**20
    for number in range(3 * 2**12):  # three times around
        whole.add(number * step % 2**32, step, float(number))
    assert whole.end == 3 * 2**32


def test_any_order_and_any_repetition_give_the_last_arrival_before_each_byte() -> None:
    """Against the obvious way: a list of the first arrival of every byte."""
    for seed in range(200):
        draw = random.Random(seed)
        cuts = sorted({0, 60, *(draw.randrange(60) for _ in range(10))})
        pieces = list(itertools.pairwise(cuts))
        sent = pieces + [(a, min(60, b + draw.randrange(9))) for a, b in draw.sample(pieces, 3)]
        draw.shuffle(sent)
        syn = draw.randrange(2**32)
        arrivals = Arrivals(syn)
        came = [float("inf")] * 60
        for at, (a, b) in enumerate(sent):
            arrivals.add((syn + 1 + a) % 2**32, b - a, float(at))
            came[a:b] = [min(each, float(at)) for each in came[a:b]]
        steps = arrivals.between(0, 60)
        assert steps is not None, seed
        got: list[float] = []
        for end, when in steps:
            got += [when] * (end - len(got))
        assert got == [max(came[: n + 1]) for n in range(60)], seed


def test_where_a_packet_was_not_seen_nothing_is_claimed_and_the_next_exchange_is_right() -> None:
    arrivals = Arrivals(syn=99)
    arrivals.add(100, 10, 1.0)
    arrivals.add(120, 10, 3.0)  # 110 to 120 got lost on the way to us, not on the way to TCP
    assert arrivals.between(0, 30) is None
    arrivals.add(130, 10, 4.0)
    assert arrivals.between(30, 40) == [(10, 4.0)]


def test_bytes_of_the_next_exchange_behind_the_hole_keep_their_arrival() -> None:
    arrivals = Arrivals(syn=99)
    arrivals.add(110, 20, 3.0)
    assert arrivals.between(0, 20) is None
    assert arrivals.between(20, 30) == [(10, 3.0)]


def test_what_was_told_is_forgotten() -> None:
    arrivals = Arrivals(syn=99)
    for number in range(100):
        arrivals.add(100 + number, 1, float(number))
    arrivals.between(0, 100)
    assert len(arrivals._known) == 0


def test_a_hole_that_nobody_fills_keeps_no_more_than_so_much() -> None:
    arrivals = Arrivals(syn=99)
    for number in range(5000):
        arrivals.add(200 + 2 * number, 1, 1.0)
    assert len(arrivals._ahead) <= 4096


# -- the filter ------------------------------------------------------------------------------------


def run(program: list[bpf.Instruction], packet: bytes, kind: int = 0) -> int:
    """What the kernel would answer, by <linux/filter.h>."""
    accumulator = index = at = 0
    while True:
        code, if_true, if_false, k = program[at]
        at += 1
        if code == bpf.RETURN:
            return k
        if code == bpf.JUMP:
            at += k
        elif code in (bpf.IF_EQUAL, bpf.IF_BITS):
            holds = accumulator == k if code == bpf.IF_EQUAL else bool(accumulator & k)
            at += if_true if holds else if_false
        elif code == bpf.AND:
            accumulator &= k
        elif code == bpf.HEADER_SIZE:
            index = 4 * (packet[k] & 15)
        elif k == bpf.PACKET_TYPE:
            accumulator = kind
        else:
            size = {bpf.LOAD_WORD: 4, bpf.LOAD_BYTE: 1}.get(code, 2)
            start = k + (index if code == bpf.LOAD_HALF_BEHIND else 0)
            if start + size > len(packet):
                return 0
            accumulator = int.from_bytes(packet[start : start + size])


ADDRESSES = [packed(host) for host in ("192.0.2.1", THEIRS[0], "2001:db8::1", THEIRS6[0])]
FILTER = bpf.program(8000, ADDRESSES, HEADERS)


@pytest.mark.parametrize("packet", [v4(9), v4(9, options=24), v6(9)], ids=["v4", "options", "v6"])
def test_the_filter_keeps_the_headers_of_what_the_target_sends(packet: bytes) -> None:
    assert run(FILTER, packet) == HEADERS


@pytest.mark.parametrize(
    "packet",
    [
        v4(9, theirs=("192.0.2.8", 8000)),
        v4(9, theirs=("192.0.2.7", 8001)),
        v4(9, theirs=OURS, ours=THEIRS),
        v4(9, protocol=17),
        v4(9, fragment=1),
        v6(9, header=17),
        v6(9)[:8] + packed("2001:db8::8") + v6(9)[24:],
        v6(9)[:40] + b"\0\1" + v6(9)[42:],
        b"\x10" * 80,
    ],
    ids=range(9),
)
def test_the_filter_refuses_everything_else(packet: bytes) -> None:
    assert run(FILTER, packet) == 0


def test_the_filter_refuses_the_copy_that_goes_out() -> None:
    assert run(FILTER, v4(9), kind=bpf.OUTGOING) == 0


def test_a_filter_without_addresses_keeps_nothing() -> None:
    empty = bpf.program(8000, [], HEADERS)
    assert run(empty, v4(9)) == run(empty, v6(9)) == 0
    assert len(bpf.packed(empty)) == 8 * len(empty)
