"""Which instants are values and which are bounds, read by read."""

from __future__ import annotations

import random
from bisect import bisect_left
from dataclasses import replace

import pytest

from conformance.capture import Capture, Read
from conformance.reading import read
from loadgen.exactness import exact, moments, wire_ends
from tests.conformance.attacks import framed_chunk
from tests.loadgen.captures import DONE, HEAD, capture, text

A, B = text("a"), text("b")
CHUNKED = HEAD.replace(b"\r\n\r\n", b"\r\nTransfer-Encoding: chunked\r\n\r\n")


def of(*pieces: bytes, emptied: str = "", head: bytes = HEAD, clock: str = "kernel") -> str:
    """One letter an event: a value, or a bound. `emptied`: y, n or ? for each read."""
    made = capture([(float(n), piece) for n, piece in enumerate(pieces)], head=head)
    marks = {"y": True, "n": False, "?": None}
    said = [marks[letter] for letter in emptied or "y" * len(pieces)]
    reads = tuple(Read(r.end, r.at, mark) for r, mark in zip(made.reads, said, strict=True))
    told: Capture = replace(made, reads=reads, clock=clock)
    return "".join("v" if value else "b" for value in exact(read(told, api="chat")))


@pytest.mark.parametrize(
    ("pieces", "emptied", "found"),
    [
        ((A, B, DONE), "yyy", "vvv"),
        ((A + B, A), "yy", "bvv"),  # one read, two events: the first came before the stamp
        ((A, B, A), "yny", "vbv"),  # something was left: merged with it B has a newer stamp
        ((A, B, A), "y?y", "vbv"),
        ((A + B[:9], B[9:], A), "yyy", "bvv"),  # the stamp is the next event's beginning's
        ((A[:9], A[9:], B), "yyy", "vv"),  # an event in two reads ends with the second
        ((A[:9], A[9:] + B[:9], B[9:]), "yyy", "bv"),
        ((A, b": ping\n\n", B), "yyy", "vv"),
        ((A + b": ping\n\n", B), "yy", "bv"),
    ],
)  # fmt: skip
def test_a_time_is_a_value_where_the_event_ends_a_read_that_left_nothing(
    pieces: tuple[bytes, ...], emptied: str, found: str
) -> None:
    assert of(*pieces, emptied=emptied) == found


def test_the_end_of_its_own_chunk_may_follow_an_event_and_no_other_framing() -> None:
    pieces = [framed_chunk(A), framed_chunk(B), framed_chunk(DONE) + b"0\r\n\r\n"]
    assert of(*pieces, head=CHUNKED) == "vvb"
    apart = [framed_chunk(A)[:-1], b"\n", framed_chunk(B)[:-1], b"\n"]
    assert of(*apart, head=CHUNKED) == "vv"
    size, rest = framed_chunk(B)[:4], framed_chunk(B)[4:]
    assert of(framed_chunk(A) + size, rest, head=CHUNKED) == "bv"


def test_where_a_chunks_end_is_seen_to_come_apart_its_stamp_is_not_the_events() -> None:
    apart = [framed_chunk(A)[:-2], b"\r\n", framed_chunk(B), framed_chunk(DONE)[:-2], b"\r\n"]
    assert of(*apart, head=CHUNKED) == "vbv"


def test_when_a_read_returned_is_always_a_bound() -> None:
    assert of(A, B, clock="user") == "bb"


def plays(rng: random.Random) -> tuple[Capture, list[float]]:
    """A kernel and a reader at their worst: segments cut anywhere, merged while they wait, taken in
    parts; each read has the stamp of the last segment that it took. Besides, when each event came.
    """
    events = [framed_chunk(text(f"w{n}")) for n in range(rng.randint(1, 12))]
    head = CHUNKED if rng.random() < 0.5 else HEAD
    stream = head + b"".join(events) if head is CHUNKED else head + b"".join(_bare(events))
    whole = read(
        replace(capture([(1.0, stream[len(head) :])], head=head), clock="kernel"), api="chat"
    )
    places = wire_ends(whole)
    own = 2 if head is CHUNKED else 0  # the end of a chunk comes with its data
    cuts = set(rng.choices(range(1, len(stream)), k=rng.randint(0, 20)))
    cuts -= {place + n for place in places for n in range(own)}
    cuts |= {place + own for place in places if rng.random() < 0.7}
    ends = sorted({*cuts, len(stream)})
    came = [1.0 + n for n in range(len(ends))]
    reads, taken = [], 0
    for number, at in enumerate(came):
        waits = ends[number]
        while taken < waits and rng.random() < 0.6:
            part = rng.randint(taken + 1, waits)
            taken = part if rng.random() < 0.3 and part not in places else waits
            last = bisect_left(ends, taken)
            # what is merged has the newest stamp of those merged
            stamp = came[rng.randint(last, number)] if rng.random() < 0.3 else came[last]
            unsaid = rng.random() < 0.05
            reads.append(Read(taken, at if unsaid else stamp, None if unsaid else taken == waits))
    if taken < len(stream):
        reads.append(Read(len(stream), came[-1], True))
    made = replace(capture([(1.0, stream[len(head) :])], head=head), clock="kernel")
    true = [came[bisect_left(ends, place)] for place in places]
    return replace(made, reads=tuple(reads), sent_at=0.5), true


def _bare(events: list[bytes]) -> list[bytes]:
    return [event.split(b"\r\n", 1)[1][:-2] for event in events]


def test_an_event_never_came_outside_of_what_is_said_of_it() -> None:
    values = 0
    for seed in range(300):
        made, true = plays(random.Random(seed))
        for moment, came in zip(moments(read(made, api="chat")), true, strict=True):
            assert moment is not None, seed
            assert moment.earliest is not None, seed
            assert moment.earliest <= came <= moment.at, seed
            assert (not moment.is_value) or moment.at == came == moment.earliest, seed
            values += moment.is_value
    assert values > 800


def test_an_event_ends_on_the_wire_where_its_last_byte_stands() -> None:
    for seed in range(50):
        reading = read(plays(random.Random(seed))[0], api="chat")
        assert wire_ends(reading) == [
            reading.place(chunk.event.end - 1) + 1 for chunk in reading.chunks
        ]
