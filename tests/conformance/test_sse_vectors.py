"""Every vector of specs/sse: whole, byte by byte, cut at every place, with and without shortcut."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from conformance.sse import KINDS, Event, Reader
from tests import feeds
from tests.conformance.vectors import VECTORS, Vector, told

EACH = pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector.id)


def read(reads: Sequence[bytes], *, shortcut: bool = True) -> tuple[list[Event], Reader]:
    reader = Reader(shortcut=shortcut)
    events = [event for data in reads for event in reader.feed(data)]
    reader.close()
    return events, reader


@EACH
def test_a_vector_gives_its_events_and_anomalies(vector: Vector) -> None:
    events, reader = read([vector.stream])
    assert tuple(map(told, events)) == vector.events
    assert tuple((a.kind, a.offset) for a in reader.anomalies) == vector.anomalies
    assert reader.pending_data == vector.pending


@EACH
def test_no_cut_and_no_shortcut_changes_anything(vector: Vector) -> None:
    expected, obvious = read([vector.stream], shortcut=False)
    for reads in feeds.every_split(vector.stream):
        for shortcut in (True, False):
            events, reader = read(reads, shortcut=shortcut)
            assert events == expected, (reads, shortcut)
            assert reader.anomalies == obvious.anomalies, (reads, shortcut)
            assert reader.counts == obvious.counts
            assert reader.terminators == obvious.terminators
            assert reader.comments == obvious.comments
            assert (reader.last_id, reader.pending_data) == (obvious.last_id, obvious.pending_data)


@EACH
def test_an_event_is_there_with_the_byte_that_closes_it(vector: Vector) -> None:
    reader = Reader()
    for fed, byte in enumerate(feeds.byte_by_byte(vector.stream), start=1):
        for event in reader.feed(byte):
            assert event.end == fed


@EACH
def test_places_point_at_the_bytes_they_speak_of(vector: Vector) -> None:
    events, reader = read([vector.stream])
    for anomaly in reader.anomalies:
        at = anomaly.offset
        assert vector.stream[at : at + len(anomaly.excerpt)] == anomaly.excerpt
    for event in events:
        block = vector.stream[event.offset : event.end]
        (again,), _ = read([block])
        assert (again.data, again.type, again.retry) == (event.data, event.type, event.retry)
        value = vector.stream[event.data_offset : event.end].decode("utf-8", "replace")
        assert value.startswith(event.data.split("\n")[0])


def test_the_vectors_cover_every_rule_of_interpretation_that_bytes_can_show() -> None:
    covered = {rule for vector in VECTORS for rule in vector.rules}
    by_cost = {"P29"}  # tests/benchmarks/sse.py
    assert {f"P{n:02}" for n in range(1, 36)} - by_cost <= covered
    assert len(VECTORS) >= 100
    assert len({vector.id for vector in VECTORS}) == len(VECTORS)


def test_the_vectors_show_every_kind_of_anomaly_but_the_one_that_needs_a_bound() -> None:
    shown = {kind for vector in VECTORS for kind, _ in vector.anomalies}
    assert shown == set(KINDS) - {"event-too-long"}
