"""Event streams, read from the WHATWG text alone: HTML Living Standard, sections 9.2.5 and 9.2.6.

Bytes go in, in any pieces; events come out, the moment the byte that closes them is there.
Whatever is legal but breaks somebody, and whatever is not legal, is noted as an anomaly with its
place and is otherwise read as the standard says. Nothing here raises on any bytes.

Offsets count bytes from the first byte fed, lines count from 1, events from 0.

    reader = Reader()
    for data in reads:
        for event in reader.feed(data): ...
    reader.close()
    reader.anomalies, reader.counts, reader.pending_data
"""

from __future__ import annotations

from conformance.sse.reader import MAX_EVENT, Reader, parse
from conformance.sse.records import EXCERPT, KEPT, KINDS, Anomaly, Event

__all__ = ["EXCERPT", "KEPT", "KINDS", "MAX_EVENT", "Anomaly", "Event", "Reader", "parse"]
