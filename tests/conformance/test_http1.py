"""http1: each broken sentence is reported once, at its place, and reading goes on the same way
whatever the cut; where h11 accepts an answer, ours says the same about it."""

from __future__ import annotations

import itertools
import time
import tracemalloc

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from conformance import http1
from conformance.http1 import Anomaly, Field, Framing, Reader, Span, parse_request_head
from conformance.http1.framing import _Body, _Coding, _decide, _Length
from tests import feeds
from tests.conformance.http1_vectors import CHUNKED, VECTORS, Vector, answer
from tests.conformance.http1_witness import agree, ask_h11, see


def place(wire: bytes, text: str) -> int:
    """Where § stands in the only occurrence of the text; the end for an empty one."""
    if not text:
        return len(wire)
    before, mark, after = text.partition("§")
    needle = (before + after).encode("latin-1")
    assert wire.count(needle) == 1, (text, "does not name one place")
    return wire.index(needle) + (len(before) if mark else 0)


def names(vectors: list[Vector]) -> list[str]:
    return [vector.name for vector in vectors]


@pytest.mark.parametrize("vector", VECTORS, ids=names(VECTORS))
def test_an_answer_is_read_and_its_faults_are_told_with_their_place(vector: Vector) -> None:
    seen = see([vector.wire], vector.method)
    assert seen.body == vector.body
    assert (seen.framing, seen.complete, seen.dead) == (vector.framing, vector.whole, vector.dead)
    assert seen.excess == vector.excess
    expected = [(kind, place(vector.wire, text)) for kind, text in vector.broken]
    assert [(anomaly.kind, anomaly.offset) for anomaly in seen.anomalies] == expected
    assert seen.counts == {kind: seen.kinds.count(kind) for kind in seen.kinds}
    if seen.complete:
        assert seen.end == len(vector.wire) - vector.excess


@pytest.mark.parametrize("vector", VECTORS, ids=names(VECTORS))
def test_any_split_gives_the_same(vector: Vector) -> None:
    for close in (True, False):
        first = see([vector.wire], vector.method, close)
        for pieces in feeds.every_split(vector.wire[:600]):
            if len(vector.wire) > 600:
                pieces = [*pieces, vector.wire[600:]]
            assert see(pieces, vector.method, close) == first


@pytest.mark.parametrize("vector", VECTORS, ids=names(VECTORS))
def test_spans_map_every_body_byte_to_its_place_on_the_wire(vector: Vector) -> None:
    reader = Reader(vector.method)
    body = b"".join([reader.feed(piece) for piece in feeds.byte_by_byte(vector.wire)])
    assert b"".join([vector.wire[s.wire : s.wire + s.length] for s in reader.spans]) == body
    assert [s.body for s in reader.spans] == list(
        itertools.accumulate([0] + [s.length for s in reader.spans])
    )[:-1]
    for at, byte in enumerate(body):
        wire = reader.wire_offset(at)
        assert wire is not None
        assert vector.wire[wire] == byte
    assert reader.wire_offset(len(body) + 1) is None
    assert reader.wire_offset(-1) is None
    assert (reader.wire_offset(0) is None) == (not body)


def test_excerpts_are_the_bytes_at_the_offset_and_at_most_64() -> None:
    line = b"A" * 100 + b"\n"
    seen = see([b"HTTP/1.1 200 OK\r\n" + line + b"\r\n"])
    assert seen.anomalies == (
        Anomaly("bare-lf", 17, line[:64]),
        Anomaly("bad-field", 17, line[:64]),
    )


def test_adjacent_body_bytes_are_one_span_and_a_chunk_boundary_is_not() -> None:
    wire = answer(CHUNKED, body="3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n")
    assert see(feeds.byte_by_byte(wire)).spans == (
        Span(wire.index(b"abc"), 0, 3),
        Span(wire.index(b"de"), 3, 2),
    )


def test_interim_answers_are_kept_and_the_final_one_is_the_head() -> None:
    wire = answer(start="HTTP/1.1 103 Early") + answer(start="HTTP/1.1 100 C") + answer("A: b")
    for pieces in feeds.every_split(wire):
        seen = see(pieces)
        assert [head.status for head in seen.interim] == [103, 100]
        assert seen.head == http1.Head(
            b"1.1", 200, b"OK", (Field(b"A", b"b", 57),), wire.index(b"HTTP/1.1 200"), len(wire)
        )
        assert seen.kinds == []


def test_offsets_count_from_start() -> None:
    wire = answer("Content-Length: 1", body="xy")
    reader = Reader(start=1000)
    reader.feed(wire)
    assert reader.end == 1000 + len(wire) - 1
    assert reader.spans == [Span(1000 + wire.index(b"xy"), 0, 1)]
    assert reader.head is not None
    assert (reader.head.offset, reader.head.fields[0].offset) == (1000, 1017)


def test_fields_are_found_without_case_and_in_order() -> None:
    head = see([answer("A: 1", "b: 2", "a: 3")]).head
    assert head is not None
    assert (head.all(b"A"), head.get(b"a"), head.get(b"c")) == ((b"1", b"3"), b"1", None)


def test_only_space_and_tab_are_taken_off_a_value() -> None:
    head = see([answer("A: \t\x0bx\x0c\t ")]).head
    assert head is not None
    assert head.get(b"a") == b"\x0bx\x0c"


def test_every_combination_of_facts_has_its_row_in_the_framing_table() -> None:
    used = {_decide(*facts) for facts in itertools.product(_Body, _Coding, _Length)}
    assert used == set(Framing)
    assert [row[0] for row in http1.FRAMING_TABLE] == [1, 2, 4, 4, 5, 6, 8]


@pytest.mark.parametrize(
    ("wire", "kind"),
    [
        (answer("A: " + "b" * 200), "head-too-long"),
        (answer(start="HTTP/1.1 200 " + "b" * 200), "head-too-long"),
        (b"b" * 300, "head-too-long"),
        (b"\r\n" * 100 + answer(), "head-too-long"),
        (answer(start="HTTP/1.1 100 C") * 10, "head-too-long"),
        (answer(CHUNKED, body="1;" + "a" * 200 + "\r\nx"), "bad-chunk-size"),
        (answer(CHUNKED, body="0" * 200), "bad-chunk-size"),
        (answer(CHUNKED, body="0\r\n" + "A: b\r\n" * 40 + "\r\n"), "bad-trailer"),
    ],
)
def test_heads_size_lines_and_trailers_are_bounded(wire: bytes, kind: str) -> None:
    for pieces in feeds.every_split(wire):
        seen = see(pieces, max_head=128)
        assert (seen.dead, seen.complete, seen.kinds[-1]) == (True, False, kind)
        assert seen == see([wire], max_head=128)


def test_a_head_of_exactly_the_bound_is_read() -> None:
    wire = answer("Content-Length: 1", body="x")
    bound = len(wire) - 1
    assert see([wire], max_head=bound).complete
    assert see([wire], max_head=bound - 1).dead


def test_a_long_head_leaves_the_whole_bound_to_chunk_size_lines_and_trailers() -> None:
    head = answer(CHUNKED, "A: " + "b" * 100)
    body = b"1;" + b"a" * 100 + b"\r\nx\r\n0\r\nT: " + b"u" * 100 + b"\r\n\r\n"
    seen = see([head + body], max_head=len(head))
    assert (seen.body, seen.complete, seen.kinds) == (b"x", True, [])


def test_of_each_kind_a_hundred_are_kept_and_all_are_counted() -> None:
    seen = see([answer(CHUNKED, body="1\nx\r\n" * 250 + "1 \r\ny\r\n" * 3 + "0\r\n\r\n")])
    assert seen.counts == {"bare-lf": 250, "bad-chunk-size": 3}
    assert (seen.kinds.count("bare-lf"), seen.kinds.count("bad-chunk-size")) == (100, 3)
    assert seen.body == b"x" * 250 + b"y" * 3


def test_after_the_end_a_close_adds_nothing_and_bytes_after_a_close_are_ignored() -> None:
    reader = Reader()
    reader.feed(answer("Content-Length: 9", body="hello"))
    reader.close()
    reader.close()
    assert [anomaly.kind for anomaly in reader.anomalies] == ["body-incomplete"]
    assert (reader.feed(b"more"), reader.dead, reader.excess) == (b"", False, 0)


ENDLESS = [
    b"HTTP/1.1 200 OK\r\n",
    answer(start="HTTP/1.1 100 C"),
    answer(CHUNKED, body="1;"),
    answer(CHUNKED, body="0\r\n"),
    b"",
]


@pytest.mark.parametrize("head", ENDLESS)
@pytest.mark.parametrize("tail", [b"\n", b"a", b" \r\n", b"a: b\r\n", b"\r\n", b"Z\r\n"])
def test_endless_heads_lines_and_trailers_take_bounded_memory(head: bytes, tail: bytes) -> None:
    piece = tail * (65536 // len(tail))
    reader = Reader(max_head=4096)
    reader.feed(head)
    tracemalloc.start()
    try:
        for _ in range(64):
            reader.feed(piece)
        assert tracemalloc.get_traced_memory()[1] < 2_000_000
    finally:
        tracemalloc.stop()
    assert reader.dead or reader.complete or reader.framing is Framing.CLOSE


def _seconds(wire: bytes, step: int) -> float:
    reader = Reader(max_head=1 << 30)
    start = time.process_time()
    for at in range(0, len(wire), step):
        reader.feed(wire[at : at + step])
    return time.process_time() - start


@pytest.mark.parametrize(
    "wire",
    [
        answer("A: " + "b" * 400_000),
        answer("A:" + " " * 400_000 + "b"),
        answer("A: b", *([" c"] * 100_000)),
        answer(CHUNKED, body="1" + ";a=b " * 60_000 + "\x00\r\n"),
        answer(CHUNKED, body="1;a=" + '"' * 300_000 + "\r\n"),
        answer(CHUNKED, body="1" + " " * 400_000 + "\r\n"),
        answer(CHUNKED, body="f" * 400_000 + "\r\n" + "x" * 100_000),
        answer(CHUNKED, body="1\r\nx\r\n" * 60_000),
    ],
    ids=["value", "space", "folds", "extensions", "quotes", "padding", "digits", "chunks"],
)
def test_reading_is_linear(wire: bytes) -> None:
    # Quadratic behaviour on 400 kB would take minutes; linear takes well under a second.
    assert _seconds(wire, 64) < 3
    assert _seconds(wire, len(wire)) < 3


# h11 as the witness


def _token() -> st.SearchStrategy[bytes]:
    return st.text("abcXYZ019-_!~", min_size=1, max_size=6).map(str.encode)


def _value() -> st.SearchStrategy[bytes]:
    return st.lists(
        st.sampled_from(
            [b"a", b"Z9", b" ", b"\t", b",", b";", b"\x80", b"\xff", b"\x01", b"=", b":"]
        ),
        max_size=6,
    ).map(b"".join)


_FRAMING_FIELDS = st.sampled_from(
    [
        b"Content-Length: 5",
        b"Content-Length: 5, 5",
        b"content-length:7",
        b"Content-Length: 0",
        b"CONTENT-LENGTH: 012",
        b"Transfer-Encoding: chunked",
        b"transfer-encoding:\tChunked ",
        b"Transfer-Encoding: gzip",
        b"Connection: close",
    ]
)
_PLAIN_FIELDS = st.tuples(_token(), st.sampled_from([b":", b": ", b":\t ", b" : "]), _value())
_FOLDS = st.tuples(st.sampled_from([b" ", b"\t", b"  \t"]), _value())


@st.composite
def answers(draw: st.DrawFn) -> bytes:
    """Answers as servers send them, well and badly: most of them are near the grammar's edge."""
    eol = st.sampled_from([b"\r\n", b"\r\n", b"\r\n", b"\n"])
    version = draw(st.sampled_from([b"1.1", b"1.1", b"1.1", b"1.0", b"0.9", b"2.0"]))
    status = draw(st.sampled_from([b"200", b"200", b"404", b"204", b"304", b"599", b"999"]))
    reason = draw(st.sampled_from([b" OK", b" ", b"", b" a\tb \xe9", b" \x01"]))
    lines = [b"HTTP/" + version + b" " + status + reason]
    for _ in range(draw(st.integers(0, 5))):
        kind = draw(st.integers(0, 5))
        if kind == 0:
            lines.append(draw(_FRAMING_FIELDS))
        elif kind == 1:
            lines.append(b"".join(draw(_FOLDS)))
        else:
            lines.append(b"".join(draw(_PLAIN_FIELDS)))
    head = b"".join([line + draw(eol) for line in [*lines, b""]])
    body = draw(
        st.one_of(
            st.binary(max_size=12),
            st.lists(_chunk(), max_size=4).map(lambda cs: b"".join(cs) + b"0\r\n\r\n"),
            st.lists(_chunk(), max_size=4).map(lambda cs: b"".join(cs) + b"0 ;x=y\r\nT: u\r\n\r\n"),
        )
    )
    return head + body


def _chunk() -> st.SearchStrategy[bytes]:
    extension = st.sampled_from([b"", b"", b";a", b";a=b", b';a="b c"', b"  ", b";\x01"])
    return st.tuples(st.binary(min_size=1, max_size=20), extension).map(
        lambda pair: b"%x%s\r\n%s\r\n" % (len(pair[0]), pair[1], pair[0])
    )


@given(answers(), st.sampled_from(["POST", "POST", "HEAD"]))
@example(answer("Content-Length: 5", "Content-Length: 5", body="hello"), "POST")
@example(answer("A: b", " c", body="hello"), "POST")
@example(b"HTTP/1.1 200 OK\nA: b\n\nhello", "POST")
@settings(max_examples=500, deadline=None)
def test_where_h11_accepts_an_answer_ours_says_the_same(wire: bytes, method: str) -> None:
    agree(wire, method)


@pytest.mark.parametrize(
    ("wire", "kinds"),
    [
        (b"HTTP/1.1 200 OK\nContent-Length: 1\r\n\r\nx", ["bare-lf"]),
        (answer("Content-Length: 1", "A: b", "\tc", body="x"), ["obs-fold"]),
        (answer("Content-Length: 1", "Content-Length: 1", body="x"), ["repeated-length"]),
        (answer("Content-Length: 9", CHUNKED, body="0\r\n\r\n"), ["length-and-chunked"]),
        (answer("Content-Length: 1", start="HTTP/1.1 200", body="x"), ["bad-status-line"]),
        (answer("Content-Length: 1", "A: \x01", body="x"), ["bad-field"]),
        (answer(CHUNKED, body="1 \r\nx\r\n0\r\n\r\n"), ["bad-chunk-size"]),
        (answer(CHUNKED, body="1;;\r\nx\r\n0\r\n\r\n"), ["bad-chunk-size"]),
    ],
)
def test_what_h11_lets_pass_in_silence_is_reported(wire: bytes, kinds: list[str]) -> None:
    witness = ask_h11(wire, "POST")
    assert witness.head is not None
    assert witness.body is not None
    assert witness.ended
    assert see([wire]).kinds == kinds


@given(st.binary(max_size=300), st.lists(st.integers(0, 300), max_size=4))
@settings(max_examples=500, deadline=None)
def test_no_bytes_raise_and_no_cut_matters(data: bytes, places: list[int]) -> None:
    for prefix in (b"", b"HTTP/1.1 200 OK\r\n", answer(CHUNKED)):
        wire = prefix + data
        assert see(feeds.cut_at(wire, places)) == see([wire])


# Requests


def test_a_request_head_is_read_with_its_end() -> None:
    wire = b"POST /v1/chat HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\n{}"
    head = parse_request_head(wire)
    assert head is not None
    assert (head.method, head.target, head.version) == (b"POST", b"/v1/chat", b"1.1")
    assert head.fields == (Field(b"Host", b"h", 24), Field(b"Content-Length", b"2", 33))
    assert wire[head.end :] == b"{}"
    assert (head.get(b"content-length"), head.all(b"x")) == (b"2", ())


@pytest.mark.parametrize(
    "wire",
    [
        b"",
        b"POST / HTTP/1.1\r\nHost: h\r\n",
        b"POST /\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n\r\n",
        b"\n\n",
    ],
)
def test_what_is_no_whole_request_head_is_none(wire: bytes) -> None:
    assert parse_request_head(wire) is None


@given(st.binary(max_size=200))
@settings(deadline=None)
def test_no_bytes_make_the_request_reader_raise(data: bytes) -> None:
    parse_request_head(b"GET / HTTP/1.1\r\n" + data + b"\r\n\r\n")
    assert parse_request_head(data + b"x") is None or b"HTTP/" in data


def test_without_spans_a_body_of_many_chunks_leaves_nothing_but_its_end() -> None:
    wire = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1\r\nx\r\n" * 50
    wire += b"0\r\n\r\n"
    told, quiet = Reader(), Reader(spans=False)
    assert quiet.feed(wire) == told.feed(wire) == b"x" * 50
    assert (quiet.end, quiet.complete) == (told.end, True)
    assert (len(told.spans), quiet.spans, quiet.wire_offset(3)) == (50, [], None)


@pytest.mark.parametrize("shortcut", [True, False])
@given(st.binary(max_size=40), st.lists(st.integers(1, 9), max_size=12))
def test_who_only_follows_a_message_sees_it_end_where_who_reads_it_does(
    shortcut: bool, late: bytes, sizes: list[int]
) -> None:
    wire = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    wire += b"".join(b"%x\r\n%b\r\n" % (size, b"y" * size) for size in sizes) + late
    read, followed = Reader(shortcut=shortcut), Reader(shortcut=shortcut)
    for at in range(0, len(wire), 7):
        read.feed(wire[at : at + 7])
        followed.follow(wire[at : at + 7])
    read.close()
    followed.close()
    assert (followed.end, followed.complete) == (read.end, read.complete)
    assert (followed.anomalies, followed.spans) == (read.anomalies, read.spans)
