"""sse: what holds for any bytes in any pieces, what the bounds bound, and a stream told in full."""

from __future__ import annotations

import tracemalloc
from collections.abc import Sequence

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from conformance.sse import EXCERPT, KEPT, KINDS, Anomaly, Event, Reader, parse
from conformance.sse.utf8 import ill_formed
from tests import feeds

# Bytes that look like streams: what decides something, and some that do not.
PIECES = st.sampled_from(
    [
        *(b"\n", b"\r", b"\r\n", b"\n\n", b"\r\n\r\n", b":", b" ", b"\x00", b"\xef\xbb\xbf"),
        *(b"data", b"data: ", b"data: a\n\n", b"data: b\r\n\r\n", b"data:x", b"event: e\n"),
        *(b"id: 1\n", b"id", b"retry: 5\n", b"retry: x\n", b"foo: bar\n", b"[DONE]", b": c\n"),
        *("é中😀\u2028\x85".encode(), b"\xff", b"\xe4\xbd", b"\xf0\x9f\x98", b"a" * 70),
    ]
)
STREAMS = st.one_of(st.lists(PIECES, max_size=40).map(b"".join), st.binary(max_size=60))
CUTS = st.lists(st.integers(0, 400), max_size=8)


def read(reads: Sequence[bytes], reader: Reader) -> list[Event]:
    events = [event for data in reads for event in reader.feed(data)]
    reader.close()
    return events


def everything(reads: Sequence[bytes], reader: Reader) -> tuple[object, ...]:
    """All that a reader tells of a stream."""
    events = read(reads, reader)
    return (
        *(events, reader.anomalies, dict(reader.counts), reader.terminators, reader.comments),
        *(reader.last_id, reader.pending_data, reader.fed, reader.dead),
    )


@given(stream=STREAMS, places=CUTS)
@example(stream=b"data: a\r\n\r\n", places=[8, 9, 10])
def test_no_cut_and_no_shortcut_changes_what_is_told(stream: bytes, places: list[int]) -> None:
    obvious = everything(feeds.whole(stream), Reader(shortcut=False))
    assert everything(feeds.whole(stream), Reader()) == obvious
    assert everything(feeds.byte_by_byte(stream), Reader()) == obvious
    assert everything(feeds.cut_at(stream, places), Reader()) == obvious


@given(stream=STREAMS, places=CUTS, bound=st.integers(0, 40))
def test_nor_does_it_where_a_block_is_too_long(
    stream: bytes, places: list[int], bound: int
) -> None:
    obvious = everything(feeds.whole(stream), Reader(bound, shortcut=False))
    assert everything(feeds.whole(stream), Reader(bound)) == obvious
    assert everything(feeds.byte_by_byte(stream), Reader(bound)) == obvious
    assert everything(feeds.cut_at(stream, places), Reader(bound)) == obvious


@given(stream=STREAMS)
def test_places_are_in_order_and_point_at_the_bytes_they_speak_of(stream: bytes) -> None:
    events, anomalies = parse(stream)
    assert [event.ordinal for event in events] == list(range(len(events)))
    edges = [edge for event in events for edge in (event.offset, event.end)]
    assert edges == sorted(edges)
    for event in events:
        assert event.offset < event.data_offset <= event.end <= len(stream)
        lines = stream[: event.offset].replace(b"\r\n", b"\n").replace(b"\r", b"\n").count(b"\n")
        assert event.line == lines + 1
    assert [a.offset for a in anomalies] == sorted(a.offset for a in anomalies)
    for anomaly in anomalies:
        assert anomaly.kind in KINDS
        assert len(anomaly.excerpt) <= EXCERPT
        assert stream.startswith(anomaly.excerpt, anomaly.offset)


@given(stream=STREAMS)
def test_every_line_has_one_terminator_and_every_kept_anomaly_was_counted(stream: bytes) -> None:
    reader = Reader()
    read([stream], reader)
    crlf = stream.count(b"\r\n")
    assert reader.terminators == {
        "LF": stream.count(b"\n") - crlf,
        "CRLF": crlf,
        "CR": stream.count(b"\r") - crlf,
    }
    kinds = [anomaly.kind for anomaly in reader.anomalies]
    assert {kind: kinds.count(kind) for kind in kinds} == reader.counts


@given(line=st.one_of(st.binary(max_size=12), st.text(max_size=8).map(str.encode)))
@example(line=b"\xf0\x80\x80\x41\xed\xa0\x80\xf4\x90\x80\x80\xe1\x80\xc2")
def test_each_ill_formed_subpart_is_one_replacement_character(line: bytes) -> None:
    found = list(ill_formed(line))
    healed, end = "", 0
    for start, subpart in found:
        healed += line[end:start].decode() + "\ufffd"
        assert line[start : start + len(subpart)] == subpart
        end = start + len(subpart)
    assert healed + line[end:].decode() == line.decode("utf-8", "replace")


def test_a_stream_told_in_full() -> None:
    stream = b": hi\r\ndata: a\n\n\xef\xbb\xbfid: 1\r\nid: 2\ndata:b\xff\n\ndata: c"
    events, anomalies = parse(stream)
    assert events == [
        Event("a", "message", "", None, 0, 0, 15, 1, 1, 12),
        Event("b\ufffd", "message", "2", None, 1, 15, 40, 4, 1, 36),
    ]
    assert anomalies == [
        Anomaly("mixed-endings", 13, 2, 0, b"\n"),
        Anomaly("mixed-endings", 14, 3, 0, b"\n"),
        Anomaly("bom", 15, 4, 1, b"\xef\xbb\xbf"),
        Anomaly("unprefixed-line", 15, 4, 1, b"\xef\xbb\xbfid: 1"),
        Anomaly("id-field", 25, 5, 1, b"id: 2"),
        Anomaly("mixed-endings", 30, 5, 1, b"\n"),
        Anomaly("no-space", 31, 6, 1, b"data:b\xff"),
        Anomaly("invalid-utf8", 37, 6, 1, b"\xff"),
        Anomaly("mixed-endings", 38, 6, 1, b"\n"),
        Anomaly("mixed-endings", 39, 7, 1, b"\n"),
        Anomaly("unterminated-event", 40, 8, 2, b"data: c"),
    ]


def test_a_repeated_anomaly_is_counted_to_the_end_and_kept_a_hundred_times() -> None:
    reader = Reader()
    read([b"foo: bar\n" * 5000], reader)
    assert reader.counts == {"unknown-field": 5000}
    assert len(reader.anomalies) == KEPT


def test_an_event_at_the_bound_is_read_and_one_byte_over_it_ends_the_reading() -> None:
    stream = b"data: a\n\ndata: 12345\n\ndata: b\n\n"  # blocks of 9, 13 and 9 bytes
    assert [event.data for event in read([stream], Reader(13))] == ["a", "12345", "b"]
    reader = Reader(12)
    assert [event.data for event in read([stream], reader)] == ["a"]
    assert reader.anomalies == [Anomaly("event-too-long", 9, 3, 1, b"data: 12345\n\n")]
    assert (reader.dead, reader.fed, reader.pending_data) == (True, len(stream), None)


@pytest.mark.parametrize("piece", [b"x", b"data: ab\n", b": c\n", b"id: 1\n"])
def test_a_block_without_end_costs_no_more_than_its_bound_allows(piece: bytes) -> None:
    bound = 1 << 18
    data = piece * (16384 // len(piece))
    reader = Reader(bound)
    tracemalloc.start()
    try:
        for _ in range(64):
            assert reader.feed(data) == []
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert reader.dead
    assert reader.counts["event-too-long"] == 1
    assert peak < 3 * bound


def test_after_the_end_nothing_is_read() -> None:
    reader = Reader()
    read([b"data: a\n\ndata: b\n"], reader)
    assert reader.feed(b"\ndata: c\n\n") == []
    reader.close()
    assert reader.counts == {"unterminated-event": 1}


def test_a_cr_at_the_end_of_a_read_is_counted_when_it_is_known_what_it_was() -> None:
    reader = Reader()
    assert [event.data for event in reader.feed(b"data: a\r\n\r")] == ["a"]
    assert reader.terminators == {"LF": 0, "CRLF": 1, "CR": 0}
    assert reader.feed(b"\n") == []
    assert reader.terminators == {"LF": 0, "CRLF": 2, "CR": 0}
    assert reader.anomalies == []


def test_the_terminators_of_a_block_belong_to_its_event() -> None:
    _, anomalies = parse(b"data: a\r\rdata: b\r\r")
    assert [(a.kind, a.line, a.event) for a in anomalies] == [
        ("bare-cr", 1, 0),
        ("bare-cr", 2, 0),
        ("bare-cr", 3, 1),
        ("bare-cr", 4, 1),
    ]


def test_comments_are_counted_wherever_they_stand() -> None:
    reader = Reader()
    read([b": a\n\ndata: b\n:\n\n:unfinished"], reader)
    assert reader.comments == 2


def test_pending_data_is_told_while_it_grows() -> None:
    reader, told = Reader(), []
    for data in (b": c\n", b"da", b"ta: x", b"y\n", b"event: e\n", b"data:z", b"\n", b"\n"):
        reader.feed(data)
        told.append(reader.pending_data)
    assert told == [None, None, "x", "xy", "xy", "xy\nz", "xy\nz", None]
