"""HTTP/1.1: status, fields, framing and the connection afterwards (rules T)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from conformance.capture import How, Layer
from conformance.checks import Findings, Trial
from conformance.checks.place import at_body, at_field
from conformance.findings import Abstain, Finding, Level
from conformance.http1 import Anomaly, Field, Framing
from conformance.reading import Form, Reading, essence

_CHUNKED = ("bad-chunk-size", "bad-chunk-ending", "bad-trailer")
_HEAD = (
    "bad-status-line", "bad-field", "obs-fold", "bare-lf", "head-too-long", "framing-forbidden",
    "repeated-length", "conflicting-length", "bad-length", "unknown-coding",
)  # fmt: skip
_NOT_RECORDED = Abstain("not-recorded", "the record has no HTTP framing")
_UNSEEN = (How.LEFT, How.CLOCK, How.BOUND, How.UNKNOWN)
_END_UNSEEN = Abstain("not-seen", "the end of the body was not seen")
_CHARSET = re.compile(r';\s*charset\s*=\s*"?([^\s";]+)', re.IGNORECASE)


def http_no_answer(reading: Reading) -> Findings:
    """T01: a request that was sent whole is answered with a head."""
    end = reading.capture.end
    if reading.form is not Form.NOTHING or end.how is How.LEFT:
        return
    if end.how in (How.NOT_CONNECTED, How.TLS_FAILED) or not (
        reading.capture.received or end.how is How.CLOCK
    ):
        yield Abstain("net", end.detail or end.how.value)
        return
    said = "is not an HTTP/1.1 head" if reading.capture.received else "nothing came"
    yield Finding(
        "T01",
        f"no answer head: {said} ({end.how.value}{f': {end.detail}' if end.detail else ''})",
        offset=0,
        excerpt=reading.capture.received[:120],
    )


def http_status(reading: Reading) -> Findings:
    """T01: "status is not 200, … then fail the connection" (WHATWG HTML 9.2.2)."""
    if reading.status is None:
        yield Abstain("not-recorded")
    elif reading.status != 200:
        excerpt = reading.capture.received[:60].split(b"\r")[0]
        yield Finding("T01", f"the stream's status is {reading.status}", 0, excerpt=excerpt)


def http_content_type(reading: Reading) -> Findings:
    """T02: the essence is text/event-stream, whatever the case and the parameters."""
    if reading.content_type is None and reading.head is None:
        yield Abstain("not-recorded")
    elif essence(reading.content_type) != "text/event-stream":
        said = reading.content_type or "missing"
        yield _of_type(reading, "T02", f"the stream's Content-Type is {said}")


def http_charset(reading: Reading) -> Findings:
    """T03: "no other encoding is possible": a charset, where given, is utf-8."""
    found = _CHARSET.search(reading.content_type or "")
    if reading.content_type is None:
        yield Abstain("not-recorded")
    elif found and found[1].lower() not in ("utf-8", "utf8"):
        yield _of_type(reading, "T03", f"the charset is {found[1]}")
    elif found and found[1].lower() == "utf8":
        yield _of_type(reading, "T03", "the charset is utf8, its name is utf-8", Level.SHOULD)


def http_content_type_once(reading: Reading) -> Findings:
    """T04: a singleton field stands in one line."""
    if reading.head is None:
        yield _NOT_RECORDED
        return
    fields = [f for f in reading.head.fields if f.name.lower() == b"content-type"]
    if len(fields) > 1:
        yield at_field(fields[1], "T04", f"{len(fields)} Content-Type fields")


def http_plain_json(reading: Reading) -> Findings:
    """T05: `stream` false or absent gives one JSON document, labelled as such."""
    labelled = essence(reading.content_type)
    if labelled is None and reading.head is None:
        yield Abstain("not-recorded")
    elif labelled != "application/json":
        yield _of_type(reading, "T05", f"a plain answer's Content-Type is {labelled}")
    if not reading.complete and reading.capture.end.how in (How.LEFT, How.CLOCK, How.BOUND):
        yield _END_UNSEEN
        return
    document = reading.document
    several = document is not None and any(flaw.kind == "several" for flaw in document.flaws)
    if document is not None and (several or not isinstance(document.value, dict)):
        why = document.flaws[0].detail if document.flaws else "not an object"
        yield at_body(reading, 0, "T05", f"the body is not one JSON object: {why}")


def http_length_and_chunked(reading: Reading) -> Findings:
    """T07: "A sender MUST NOT send a Content-Length … that contains a Transfer-Encoding"."""
    yield from _anomalies(reading, ("length-and-chunked",), "T07")


def http_chunked_framing(reading: Reading) -> Findings:
    """T08: chunk = chunk-size CRLF chunk-data CRLF (RFC 9112 section 7.1)."""
    if reading.framing is None:
        yield _NOT_RECORDED
        return
    if reading.framing is not Framing.CHUNKED:
        yield Abstain("not-seen", "not chunked")
        return
    yield from _anomalies(reading, _CHUNKED, "T08")


def http_head_syntax(reading: Reading) -> Findings:
    """RFC 9112 sections 2.2 to 6.3: the head parses without leniency."""
    yield from _anomalies(reading, _HEAD, "9112")


def http_end_of_body(reading: Reading) -> Findings:
    """T09: "incomplete if the zero-sized chunk … has not been received" (RFC 9112 section 8)."""
    how = reading.capture.end.how
    open_end = reading.framing is Framing.CLOSE
    if how in _UNSEEN and not reading.complete:
        yield _NOT_RECORDED if reading.complete is None else _END_UNSEEN
    elif how is How.RESET and (open_end or not reading.complete):
        yield Finding("T09", "the body ends by a reset", len(reading.capture.received))
    elif how is How.TLS_CUT and open_end:
        yield Finding("T09", "TLS ended without close_notify, which leaves the body's end open")
    elif reading.complete is None:
        yield _NOT_RECORDED
    elif not reading.complete:
        where = len(reading.capture.received)
        yield Finding("T09", "the body ends by a bare close before its framing is complete", where)


def http_close_delimited(reading: Reading) -> Findings:
    """T10: a stream whose end is only the close of the connection cannot show a truncation."""
    if reading.framing is None:
        yield _NOT_RECORDED
    elif reading.framing is Framing.CLOSE:
        yield Finding("T10", "the stream has neither chunked framing nor a length", 0)


def http_bytes_after_end(reading: Reading) -> Findings:
    """T12: nothing follows the message on its connection."""
    capture = reading.capture
    if reading.complete is None:
        yield _NOT_RECORDED
    elif not reading.complete or reading.framing is Framing.CLOSE:
        yield Abstain("not-seen", "the message did not end by its framing")
    elif reading.excess or capture.late:
        count = reading.excess + len(capture.late)
        start = len(capture.received) - reading.excess
        excerpt = (capture.received[start:] + capture.late)[:120]
        yield Finding("T12", f"{count} bytes follow the end of the message", start, excerpt=excerpt)


def http_content_encoding(reading: Reading) -> Findings:
    """T14: we ask for identity, so the body carries no coding."""
    if reading.head is None:
        yield _NOT_RECORDED
        return
    for field in _fields(reading, b"content-encoding"):
        if field.value.lower() != b"identity":
            coding = field.value.decode("latin-1")
            yield at_field(field, "T14", f"Content-Encoding {coding}, which was not asked for")


def http_keep_alive(trial: Trial) -> Findings:
    """T17: after a finished answer the connection carries another, or said that it would close."""
    first, second = _both(trial)
    if first is None:
        yield Abstain("net", "the first exchange did not finish")
    elif _says_close(first):
        yield Abstain("not-seen", "the server announced Connection: close")
    elif second is None and trial.dossier.picked.get("reused") is False:
        end = first.head.end if first.head else 0
        yield Finding("T17", "the connection was closed after a whole answer, unannounced", end)
    elif second is None:
        yield Abstain("not-seen", "no second request was sent")
    elif second.head is None:
        how = second.capture.end.how.value
        said = f"the second request on the connection got no answer ({how})"
        yield Finding("T17", said, **_second(trial))


def http_keep_alive_own_answer(trial: Trial) -> Findings:
    """T18: the second answer on a connection is its own, with no bytes left over from the first."""
    first, second = _both(trial)
    if first is None or second is None or second.head is None:
        yield Abstain("not-seen", "no second answer on the connection")
        return
    if second.capture.early:
        early = second.capture.early
        yield Finding(
            "T18",
            f"{len(early)} bytes waited before the second request",
            excerpt=early[:120],
            **_second(trial),
        )
    elif second.head.offset != 0 and not second.interim:
        yield Finding(
            "T18",
            "the second answer is preceded by bytes that are no head",
            0,
            excerpt=second.capture.received[:120],
            **_second(trial),
        )
    ids = [_first_id(r) for r in (first, second)]
    if ids[0] is not None and ids[0] == ids[1]:
        yield Finding("T18", f"both answers carry the id {ids[0]!r}", **_second(trial))


def _anomalies(reading: Reading, kinds: tuple[str, ...], rule: str) -> Findings:
    if reading.framing is None and reading.capture.layer is not Layer.WIRE:
        yield _NOT_RECORDED
        return
    seen: set[str] = set()
    for anomaly in reading.http_anomalies:
        if anomaly.kind in kinds and anomaly.kind not in seen:
            seen.add(anomaly.kind)
            yield _of_anomaly(anomaly, rule)


def _of_anomaly(anomaly: Anomaly, rule: str) -> Finding:
    said = anomaly.kind.replace("-", " ")
    return Finding(rule, said, offset=anomaly.offset, excerpt=anomaly.excerpt)


def _fields(reading: Reading, name: bytes) -> Iterator[Field]:
    fields = reading.head.fields if reading.head else ()
    return (field for field in fields if field.name.lower() == name)


def _of_type(reading: Reading, rule: str, message: str, level: Level | None = None) -> Finding:
    for field in _fields(reading, b"content-type"):
        return at_field(field, rule, message, level)
    return Finding(rule, message, level=level)


def _both(trial: Trial) -> tuple[Reading | None, Reading | None]:
    """Of `keep-alive` two in one role; in discovery the common control comes second."""
    takes = trial.readings.get("stream", ())
    first = takes[0] if takes and takes[0].complete else None
    if len(takes) > 1:
        return first, takes[1]
    controls = (each for each in trial.readings.get("control", ()) if _follows(takes, each))
    return first, next(controls, None)


def _second(trial: Trial) -> dict[str, Any]:
    """Where the second of `_both` stands."""
    own = len(trial.readings.get("stream", ())) > 1
    return {"role": "stream", "take": 1} if own else {"role": "control", "take": 0}


def _follows(takes: Sequence[Reading], second: Reading) -> bool:
    """On the same connection?"""
    return any(second.capture.connection == each.capture.connection for each in takes)


def _says_close(reading: Reading) -> bool:
    values = reading.head.all(b"connection") if reading.head else ()
    return any(b"close" in value.lower() for value in values) or (
        reading.head is not None and reading.head.version == b"1.0"
    )


def _first_id(reading: Reading) -> str | None:
    for chunk in reading.chunks:
        found = chunk.get("id")
        if isinstance(found, str) and found:
            return found
    return None
