"""The data of each event as a JSON text (rules F06 to F09, F24, U02)."""

from __future__ import annotations

from collections.abc import Iterator

from conformance.checks import Findings
from conformance.checks.place import at_chunk
from conformance.chunks import Chunk, Kind
from conformance.outline import outlined
from conformance.reading import Reading
from conformance.strictjson import Flaw


@outlined
def json_invalid(reading: Reading) -> Findings:
    """F06, F07: one JSON text by the grammar of RFC 8259, nothing after it."""
    yield from _flawed(reading, "invalid", "F07", "not one JSON text")


@outlined
def json_nonfinite(reading: Reading) -> Findings:
    """F07: "Infinity and NaN … are not permitted" (RFC 8259 section 6)."""
    yield from _flawed(reading, "nonfinite", "F07", "a number that JSON does not have")


@outlined
def json_duplicate_key(reading: Reading) -> Findings:
    """F08: "The names within an object SHOULD be unique" (RFC 8259 section 4)."""
    yield from _flawed(reading, "duplicate-key", "F08", "a key stands twice in one object")


@outlined
def json_control_character(reading: Reading) -> Findings:
    """F09: characters below U+0020 "MUST be escaped" (RFC 8259 section 7)."""
    yield from _flawed(reading, "control-character", "F09", "a raw control character in a string")


@outlined
def json_not_object(reading: Reading) -> Findings:
    """F24: each chunk is an object."""
    for chunk in reading.chunks:
        if chunk.kind is Kind.SCALAR:
            yield at_chunk(reading, chunk, "F24", "the data is JSON but not an object")
            return


@outlined
def json_lone_surrogate(reading: Reading) -> Findings:
    """U02: every delta is valid Unicode by itself; no client joins strings before decoding."""
    said = "an escaped surrogate without its partner in the same string"
    yield from _flawed(reading, "lone-surrogate", "U02", said)


def _flawed(reading: Reading, kind: str, rule: str, message: str) -> Findings:
    found = list(_with_flaw(reading, kind))
    if found:
        chunk, flaw = found[0]
        times = f", {len(found)} events" if len(found) > 1 else ""
        yield at_chunk(reading, chunk, rule, f"{message} ({flaw.detail}{times})")


def _with_flaw(reading: Reading, kind: str) -> Iterator[tuple[Chunk, Flaw]]:
    for chunk in reading.chunks:
        for flaw in chunk.flaws:
            if flaw.kind == kind:
                yield chunk, flaw
                break
