"""The tap's reader of requests: where they begin and end, whatever the pieces."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conformance.tap.request import MOST_HEAD, Asked, Piece, Reader
from tests.feeds import cut_at, every_split

HOST = b"upstream.example:8000"
PLAIN = (
    b"POST /v1/chat/completions?a=b HTTP/1.1\r\nhost: 127.0.0.1:9000\r\n"
    b"Content-Length: 7\r\n\r\n{\r\n\r\n:}"
)
CHUNKED = (
    b"POST /c HTTP/1.1\r\nHost:x\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"3\r\nabc\r\n10;x=y\r\nGET / HTTP/1.1\r\n\r\n0\r\nTrailer: t\r\n\r\n"
)
BARE = b"GET /v1/models HTTP/1.1\r\nX-Host: stays\r\n\r\n"
WHOLE = [PLAIN, CHUNKED, BARE]


def rewritten(request: bytes) -> bytes:
    return request.replace(b"host: 127.0.0.1:9000", b"host: " + HOST).replace(
        b"Host:x", b"Host:" + HOST
    )


def read(*data: bytes, close: bool = True) -> list[Piece]:
    reader = Reader(HOST)
    pieces = [piece for each in data for piece in reader.feed(each)]
    return pieces + (reader.close() if close else [])


def requests(pieces: list[Piece]) -> list[tuple[Asked | None, bytes, bool]]:
    """Pieces joined to requests: what was asked, the bytes, whether the end was seen."""
    out: list[tuple[Asked | None, bytes, bool]] = []
    for piece in pieces:
        if piece.begins is not None:
            out.append((piece.begins, b"", False))
        elif not out:
            out.append((None, b"", False))
        asked, data, _ = out[-1]
        out[-1] = (asked, data + piece.data, piece.ends)
    return out


EXPECTED = [
    (Asked(b"POST", b"/v1/chat/completions?a=b"), rewritten(PLAIN), True),
    (Asked(b"POST", b"/c"), rewritten(CHUNKED), True),
    (Asked(b"GET", b"/v1/models"), BARE, True),
]


def test_requests_on_one_connection_are_told_apart_at_every_split() -> None:
    for data in every_split(b"".join(WHOLE)):
        assert requests(read(*data)) == EXPECTED


def test_one_read_is_passed_on_as_one_piece_of_each_part() -> None:
    head, body = read(PLAIN)
    assert head.data.endswith(b"\r\n\r\n")
    assert body.data == b"{\r\n\r\n:}"
    assert (head.ends, body.ends) == (False, True)


def test_only_an_unfinished_line_is_held_back() -> None:
    reader = Reader(HOST)
    assert reader.feed(b"POST / HT") == []
    (line,) = reader.feed(b"TP/1.1\r\nX: y\r\nHo")
    assert line.data == b"POST / HTTP/1.1\r\nX: y\r\n"
    (rest,) = reader.feed(b"st: a\r\nContent-Length: 3\r\n\r\n")
    assert rest.data == b"Host: " + HOST + b"\r\nContent-Length: 3\r\n\r\n"
    assert reader.feed(b"x") == [Piece(b"x")]


@pytest.mark.parametrize(
    "data",
    [
        b"\x81\x85abcd",  # a frame of another protocol has no line to wait for
        b"\x16\x03\x01\x00",
        b"hello there, this is no request\r\n",
        b"GET /a b HTTP/1.1\r\n\r\n",
        b"GET / HTTP/2.0\r\n\r\n",
        b"X" * 41,
    ],
)
def test_what_is_no_request_passes_unread_and_is_one_exchange(data: bytes) -> None:
    reader = Reader(HOST)
    assert reader.feed(data) == [Piece(data, Asked())]
    more = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"
    assert reader.feed(more) == [Piece(more)]


def test_a_head_without_end_is_not_collected() -> None:
    reader = Reader(HOST)
    pieces = reader.feed(b"GET / HTTP/1.1\r\n")
    for _ in range(MOST_HEAD // 1000 + 10):
        pieces += reader.feed(b"X: " + b"y" * 995 + b"\r\n")
    assert sum(piece.begins is not None for piece in pieces) == 1
    assert not any(piece.ends for piece in pieces)
    assert reader.feed(b"anything") == [Piece(b"anything")]


def test_a_line_without_end_is_passed_on_at_a_bound() -> None:
    reader = Reader(HOST)
    passed = sum(len(p.data) for _ in range(100) for p in reader.feed(b"GET /" + b"a" * 5000))
    assert passed > 0


def test_broken_chunks_pass_unread() -> None:
    data = b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nmore"
    pieces = read(data)
    assert b"".join(piece.data for piece in pieces) == data
    assert not any(piece.ends for piece in pieces)


def test_after_connect_nothing_is_read() -> None:
    data = b"CONNECT a:1 HTTP/1.1\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n"
    pieces = read(data)
    assert b"".join(piece.data for piece in pieces) == data
    assert [piece.begins for piece in pieces if piece.begins] == [Asked(b"CONNECT", b"a:1")]


def test_a_closed_client_leaves_nothing_behind() -> None:
    assert b"".join(piece.data for piece in read(b"GET / HTTP/1.1\r\nHos")) == (
        b"GET / HTTP/1.1\r\nHos"
    )


SAME = b"h"
GOOD = b"POST /a HTTP/1.1\r\nHOST:  h\r\nAccept: x\r\n"
PARTS = st.sampled_from(
    [
        b"GET / HTTP/1.1\r\n", b"POST /a HTTP/1.0\n", b"Host: h\r\n", b"host:h\n", b"\r\n", b"\n",
        b"Content-Length: 5\r\n", b"Content-Length: x\r\n", b"Transfer-Encoding: chunked\r\n",
        b"5\r\nhello\r\n", b"0\r\n\r\n", b" folded\r\n", b"\x81\x05", b"CONNECT a:1 HTTP/1.1\r\n",
        b"content-length:2\r\n", b"Content-Length: 1, 1\r\n", b"Content-Length : 3\r\n",
        b"Transfer-Encoding: gzip\r\n", b"Upgrade: websocket\r\n", b"HTTP/1.1 200 OK\r\n", b"\0",
    ]
)  # fmt: skip


@given(st.lists(PARTS | st.binary(max_size=8), max_size=20), st.lists(st.integers(0, 200)))
def test_whatever_comes_is_passed_on_in_any_pieces(parts: list[bytes], places: list[int]) -> None:
    data = b"".join(parts)
    reader = Reader(SAME)
    pieces = [piece for each in cut_at(data, places) for piece in reader.feed(each)]
    pieces += reader.close()
    assert b"".join(piece.data for piece in pieces) == data
    begun = 0
    for piece in pieces:
        begun += piece.begins is not None
        assert not piece.ends or begun


class _LineByLine(Reader):
    def _of_usual_head(self, data: bytes) -> None:
        return None


HEADS = st.lists(
    PARTS | st.sampled_from([GOOD, GOOD, b"\r\n"]) | st.binary(max_size=8), max_size=12
)


@given(HEADS, st.lists(st.integers(0, 200), max_size=3))
def test_a_usual_head_is_read_as_line_by_line(parts: list[bytes], places: list[int]) -> None:
    data = b"".join(parts)
    usual, slow = Reader(HOST), _LineByLine(HOST)
    for each in cut_at(data, places):
        assert usual.feed(each) == slow.feed(each)
    assert usual.close() == slow.close()


@pytest.mark.parametrize("lengths", ["", "5", "5 ", "05", "5|5", "5|6", "x", "5, 5", "+5", "5|x"])
def test_every_kind_of_length_is_read_as_line_by_line(lengths: str) -> None:
    fields = "".join(f"Content-Length: {length}\r\n" for length in lengths.split("|") if length)
    data = f"POST / HTTP/1.1\r\nHost: a\r\n{fields}\r\n".encode() + b"12345" + BARE
    assert requests(Reader(HOST).feed(data)) == requests(_LineByLine(HOST).feed(data))
