"""Errors: as a status before the stream, in-band after it began (rules X)."""

from __future__ import annotations

import re
from collections.abc import Iterator

from conformance.capture import How
from conformance.checks import Findings
from conformance.checks.place import at_body, at_chunk
from conformance.chunks import Chunk, Kind, Maybe, member
from conformance.findings import Abstain, Finding, Level
from conformance.lifecycle import Outcome
from conformance.outline import outlined
from conformance.reading import Reading, essence, once

_KEYS = ("message", "type", "param", "code")
_ERROR_COMMENT = re.compile(rb"^:[ \t]*\{?[ \t]*\"?error\"?[ \t]*:", re.IGNORECASE | re.MULTILINE)
_NONE_SEEN = Abstain("not-seen", "no in-band error")


def err_content_type(reading: Reading) -> Findings:
    """X07: an error body is JSON and says so; it is no event stream and no page."""
    labelled = essence(reading.content_type)
    if labelled is None and reading.head is None:
        yield Abstain("not-recorded")
    elif not reading.body:
        yield Finding("X07", f"status {reading.status} with an empty body", 0)
    elif labelled not in ("application/json", "application/problem+json"):
        said = f"status {reading.status} with Content-Type {labelled or 'missing'}"
        yield at_body(reading, 0, "X07", said)
    elif reading.document is None or not reading.document.ok:
        yield at_body(reading, 0, "X07", f"status {reading.status} with a body that is not JSON")


def err_envelope(reading: Reading) -> Findings:
    """X08: `{"error": {message, type, param, code}}` (OpenAI, schemas ErrorResponse and Error)."""
    value = reading.document.value if reading.document else None
    error = member(value, "error")
    if not isinstance(value, dict):
        yield Abstain("not-seen", "no JSON object")
    elif not isinstance(error, dict):
        flat = isinstance(value.get("message"), str)
        level = Level.SHOULD if flat else None
        yield at_body(reading, 0, "X08", "no top-level `error` object", level)
    elif not isinstance(error.get("message"), str) or not error["message"]:
        yield at_body(reading, 0, "X08", "`error` has no message")
    else:
        lacking = [key for key in _KEYS if key not in error]
        if lacking:
            said = f"`error` lacks {', '.join(lacking)}"
            yield at_body(reading, 0, "X08", said, Level.SHOULD)


def err_code_type(reading: Reading) -> Findings:
    """X09: `code` is a string or null."""
    code = member(member(reading.document.value if reading.document else None, "error"), "code")
    if code and not isinstance(code, str):
        yield at_body(reading, 0, "X09", f"`error.code` is {code!r}, not a string")


@outlined
def err_prestream_200(reading: Reading) -> Findings:
    """X18, X05: what is known before the first token is told by the status."""
    if reading.outcome is Outcome.ERROR_BEFORE_TOKEN:
        chunk = next(_errors(reading))
        yield at_chunk(reading, chunk, "X18", "status 200, and the error came before any text")


@outlined
def err_shape(reading: Reading) -> Findings:
    """X13: an in-band error is an event whose data has a top-level `error` object."""
    errors = list(_errors(reading))
    if not errors:
        yield _NONE_SEEN
    for chunk in errors[:1]:
        said = _misshapen(chunk.get("error"))
        if said:
            yield at_chunk(reading, chunk, "X13", said)


@outlined
def err_followed(reading: Reading) -> Findings:
    """X14, Z26: after an error nothing but an optional [DONE]."""
    after = _after_error(reading)
    if after is None:
        yield _NONE_SEEN
        return
    more = [c for c in after if c.kind is not Kind.DONE]
    if more:
        yield at_chunk(reading, more[0], "X14", f"{len(more)} events follow the error")


@outlined
def err_not_terminated(reading: Reading) -> Findings:
    """X14, X17: the body ends with the error."""
    if _after_error(reading) is None:
        yield _NONE_SEEN
    elif reading.capture.end.how is How.CLOCK:
        said = "after the error the body stayed open until our clock ran out"
        yield at_chunk(reading, next(_errors(reading)), "X17", said)


def err_as_unknown_field(reading: Reading) -> Findings:
    """X15: an error in an unknown field or in a comment reaches no client."""
    for anomaly in reading.sse_anomalies:
        if anomaly.kind == "unknown-field" and anomaly.excerpt.lower().startswith(b"error"):
            yield Finding(
                "X15",
                "the error stands in a field that no client reads",
                reading.place(anomaly.offset),
                anomaly.event,
                anomaly.excerpt,
            )
            return
    found = _ERROR_COMMENT.search(reading.body) if reading.comments else None
    if found:
        said = "the error stands in a comment, which every client drops"
        yield at_body(reading, found.start(), "X15", said)


@outlined
def err_in_band(reading: Reading) -> Findings:
    """The request failed after the stream had begun; told, as it must be, in-band."""
    if _after_error(reading) is None:
        return
    chunk = next(_errors(reading))
    message = member(chunk.get("error"), "message")
    yield at_chunk(reading, chunk, "X13", f"the request failed in-band: {message!s:.100}")


def _errors(reading: Reading) -> Iterator[Chunk]:
    return (chunk for chunk in reading.chunks if chunk.kind is Kind.ERROR)


@once
def _after_error(reading: Reading) -> tuple[Chunk, ...] | None:
    for at, chunk in enumerate(reading.chunks):
        if chunk.kind is Kind.ERROR:
            return reading.chunks[at + 1 :]
    return None


def _misshapen(error: Maybe) -> str | None:
    if not isinstance(error, dict):
        return f"`error` is {type(error).__name__}, not an object"
    message = error.get("message")
    if not isinstance(message, str) or not message:
        return "`error` has no message"
    return None
