"""HTTP/1.1 answers: no exception, the same told by any cut, spans true, h11 agreed with."""

from __future__ import annotations

import random

from conformance.http1 import parse_request_head
from tests import feeds
from tests.conformance.http1_vectors import VECTORS
from tests.conformance.http1_witness import agree, see
from tests.fuzz.harness import Target

TOKENS = (
    *(b"\n", b"\r", b"\r\n", b"\r\n\r\n", b":", b": ", b" ", b"\t", b";", b",", b"=", b'"', b"\\"),
    *(b"\x00", b"\xff", b"HTTP/1.1 200 OK\r\n", b"HTTP/1.0 ", b"HTTP/1.1 100 \r\n\r\n", b"204"),
    *(b"Content-Length: 5\r\n", b"Content-Length: ", b"Transfer-Encoding: chunked\r\n", b"gzip, "),
    *(
        b"0\r\n",
        b"0\r\n\r\n",
        b"5\r\nhello\r\n",
        b"1;a=b\r\nx\r\n",
        b"f" * 20,
        b"9" * 20,
        b"0" * 40,
    ),
)
METHODS = ("POST", "POST", "POST", "HEAD", "CONNECT")


def examples() -> list[bytes]:
    return [vector.wire for vector in VECTORS]


def check(data: bytes, chance: random.Random) -> None:
    method = chance.choice(METHODS)
    bound = chance.choice((1 << 18, 1 << 18, 200, 60, chance.randint(1, 200)))
    close = chance.random() < 0.7
    told = see([data], method, close, bound)
    places = [chance.randint(0, len(data)) for _ in range(chance.randint(1, 10))]
    assert see(feeds.cut_at(data, places), method, close, bound) == told, places
    if len(data) < 2000:
        assert see(feeds.byte_by_byte(data), method, close, bound) == told
    assert b"".join([data[s.wire : s.wire + s.length] for s in told.spans]) == told.body
    for anomaly in told.anomalies:
        assert 0 <= anomaly.offset <= len(data)
        assert len(anomaly.excerpt) <= 64
    if told.end is not None:
        assert told.end + told.excess == len(data)
    if method != "CONNECT":
        agree(data, method)
    parse_request_head(data)


TARGET = Target(examples, TOKENS, check)
