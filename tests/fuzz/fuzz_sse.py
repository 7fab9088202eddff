"""Event streams: no exception, and the same told by either way of reading and by any cut."""

from __future__ import annotations

import random

from conformance.sse import EXCERPT, MAX_EVENT, Reader
from tests import feeds
from tests.conformance.vectors import VECTORS
from tests.fuzz.harness import Target

TOKENS = (
    *(b"\n", b"\r", b"\r\n", b"\n\n", b"\r\n\r\n", b":", b": ", b" ", b"\x00", b"\xef\xbb\xbf"),
    *(b"data", b"data: ", b"data: a\n\n", b"data: b\r\n\r\n", b"event: ", b"id: ", b"retry: 1"),
    *(b"\xff", b"\xe2\x80\xa8", b"\xf0\x9f\x98", b"\xed\xa0\x80", b"[DONE]", b'{"a": 1}'),
)


def examples() -> list[bytes]:
    return [vector.stream for vector in VECTORS]


def _told(reads: list[bytes], reader: Reader) -> tuple[object, ...]:
    events = [event for data in reads for event in reader.feed(data)]
    reader.close()
    return events, reader.anomalies, reader.counts, reader.terminators, reader.pending_data


def check(data: bytes, chance: random.Random) -> None:
    bound = chance.choice((MAX_EVENT, MAX_EVENT, 100, 20, chance.randint(0, 200)))
    reader = Reader(bound, shortcut=False)
    told = _told([data], reader)
    assert _told([data], Reader(bound)) == told
    places = [chance.randint(0, len(data)) for _ in range(chance.randint(1, 10))]
    assert _told(feeds.cut_at(data, places), Reader(bound)) == told, places
    if len(data) < 2000:
        assert _told(feeds.byte_by_byte(data), Reader(bound)) == told
    for anomaly in reader.anomalies:
        assert len(anomaly.excerpt) <= EXCERPT
        assert data.startswith(anomaly.excerpt, anomaly.offset)


TARGET = Target(examples, TOKENS, check)
