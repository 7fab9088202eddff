"""Which instants are values and which are bounds, read by read."""

from __future__ import annotations

from dataclasses import replace

import pytest

from conformance.capture import Capture, Read
from conformance.reading import read
from loadgen.exactness import exact
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
        ((A + B, A), "yy", "bbv"),  # one read, two events: the first came before the stamp
        ((A, B, A), "yny", "vbb"),  # something was left, and came into the next read's stamp
        ((A, B, A), "y?y", "vbb"),
        ((A + B[:9], B[9:], A), "yyy", "bvv"),  # the stamp is the next event's beginning's
        ((A[:9], A[9:], B), "yyy", "vv"),  # an event in two reads ends with the second
        ((A[:9], A[9:] + B[:9], B[9:]), "yyy", "bv"),
        ((A, b": ping\n\n", B), "yyy", "vv"),
        ((A + b": ping\n\n", B), "yy", "bv"),
    ],
)  # fmt: skip
def test_a_time_is_a_value_where_the_read_brought_one_event_and_nothing_else(
    pieces: tuple[bytes, ...], emptied: str, found: str
) -> None:
    assert of(*pieces, emptied=emptied) == found


def test_the_end_of_its_own_chunk_may_follow_an_event_and_no_other_framing() -> None:
    pieces = [framed_chunk(A), framed_chunk(B), framed_chunk(DONE) + b"0\r\n\r\n"]
    assert of(*pieces, head=CHUNKED) == "vvb"
    apart = [framed_chunk(A)[:-2], b"\r\n", framed_chunk(B)[:-1], b"\n"]
    assert of(*apart, head=CHUNKED) == "vv"
    size, rest = framed_chunk(B)[:4], framed_chunk(B)[4:]
    assert of(framed_chunk(A) + size, rest, head=CHUNKED) == "bv"


def test_when_a_read_returned_is_always_a_bound() -> None:
    assert of(A, B, clock="user") == "bb"
