"""Log-probabilities: there where asked for, well formed, and of this text (rules L01 to L13)."""

from __future__ import annotations

from collections.abc import Iterator
from math import isfinite

from conformance.capture import Json
from conformance.checks import Findings
from conformance.checks.live import (
    chunks,
    dialect_of,
    expected,
    grouped,
    is_int,
    is_legible,
    stop_at,
    type_name,
)
from conformance.checks.place import at_body, at_chunk
from conformance.checks.spelling import (
    are_octets,
    bytes_given,
    first_mismatch,
    has_entries,
    lacking,
    wrong_bytes,
)
from conformance.chunks import ABSENT, Chunk, Maybe, member
from conformance.findings import Abstain, Finding, Level
from conformance.lifecycle import ChoiceLife, Outcome
from conformance.outline import outline, outlined
from conformance.reading import Form, Reading, once

_ARRAYS = ("tokens", "token_logprobs", "top_logprobs", "text_offset")
_ROUNDING = 1e-5  # a probability of one, computed in single precision
_NONE_SEEN = Abstain("not-seen", "no log-probabilities")


def _asked(reading: Reading) -> bool:
    """chat: `logprobs: true`; completions: a number of alternatives, 0 included."""
    value = reading.asked("logprobs")
    return value is True if dialect_of(reading).nested else is_int(value)


@once
def _entries(reading: Reading) -> tuple[tuple[Chunk, dict[str, Json]], ...]:
    """Every entry of every `logprobs.content` that is an object."""
    return tuple(_each_entry(reading))


def _each_entry(reading: Reading) -> Iterator[tuple[Chunk, dict[str, Json]]]:
    for chunk in chunks(reading):
        for choice in chunk.choices:
            content = member(choice.logprobs, "content")
            for entry in content if isinstance(content, list) else ():
                if isinstance(entry, dict):
                    yield chunk, entry


def _alternatives(entry: dict[str, Json]) -> list[Json]:
    found = entry.get("top_logprobs")
    return found if isinstance(found, list) else []


def logprobs_missing(reading: Reading) -> Findings:
    """L01: who asks for log-probabilities gets them with every delta that has text."""
    if not _asked(reading):
        yield Abstain("not-seen", "log-probabilities were not asked for")
        return
    if reading.form is Form.PLAIN:
        yield from _plain_lacking(reading)
        return
    if not any(life.text for life in expected(reading)):
        yield Abstain("mat", "no text")
    hits = [
        (reading.chunks[at], "a delta has text and no log-probabilities")
        for life in expected(reading)
        for at in lacking(life)
    ]
    yield from grouped(reading, "L01", hits)


def _plain_lacking(reading: Reading) -> Findings:
    spoken = [choice for choice in reading.plain_choices if choice.text]
    if not spoken:
        yield Abstain("mat", "no text")
    bare = [choice for choice in spoken if not has_entries(choice)]
    if bare:
        said = f"{len(bare)} of {len(spoken)} choices have text and no log-probabilities"
        yield at_body(reading, 0, "L01", said)


@outlined
def logprobs_unasked(reading: Reading) -> Findings:
    """L11: without a request they are null or absent."""
    if reading.request is None or reading.asked("logprobs") not in (None, False):
        yield Abstain("not-seen", "log-probabilities were asked for")
        return
    hits = (
        (chunk, "log-probabilities that nobody asked for")
        for chunk in chunks(reading)
        for choice in chunk.choices
        if choice.logprobs not in (ABSENT, None)
    )
    yield from grouped(reading, "L11", hits)


@outlined
def logprobs_shape(reading: Reading) -> Findings:
    """L02, L05: an entry is token, logprob, bytes (integers or null) and top_logprobs."""
    if not dialect_of(reading).nested:
        yield Abstain("not-seen", "completions have arrays")
        return
    hits = [
        (chunk, f"`logprobs` is {said}")
        for chunk in chunks(reading)
        for choice in chunk.choices
        for said in _frame(choice.logprobs)
    ]
    for chunk, entry in _entries(reading):
        hits += [(chunk, said) for said in _flaws(entry, "an entry", top=True)]
        for other in _alternatives(entry):
            hits += [(chunk, said) for said in _flaws(other, "an alternative", top=False)]
    if not hits and not any(True for _ in _entries(reading)):
        yield _NONE_SEEN
    yield from grouped(reading, "L02", hits)


def _frame(value: Maybe) -> Iterator[str]:
    if value in (ABSENT, None):
        return
    if not isinstance(value, dict):
        yield f"{type_name(value)}, not an object"
        return
    for key in ("content", "refusal"):
        found = value.get(key)
        if found is not None and not isinstance(found, list):
            yield f"an object whose `{key}` is {type_name(found)}"
        elif isinstance(found, list) and not all(isinstance(e, dict) for e in found):
            yield f"an object whose `{key}` holds more than objects"


def _flaws(entry: Json, name: str, *, top: bool) -> Iterator[str]:
    if not isinstance(entry, dict):
        yield f"{name} is {type_name(entry)}, not an object"
        return
    if not isinstance(entry.get("token"), str):
        yield f"{name}'s `token` is {type_name(entry.get('token', ABSENT))}"
    logprob = entry.get("logprob", ABSENT)
    if isinstance(logprob, bool) or not isinstance(logprob, int | float):
        yield f"{name}'s `logprob` is {type_name(logprob)}"
    octets = entry.get("bytes", ABSENT)
    if octets is not None and not are_octets(octets):
        yield f"{name}'s `bytes` is neither null nor an array of 0 to 255"
    if top and not isinstance(entry.get("top_logprobs"), list):
        yield f"{name}'s `top_logprobs` is {type_name(entry.get('top_logprobs', ABSENT))}"


@outlined
def logprobs_value(reading: Reading) -> Findings:
    """L03: the logarithm of a probability is finite and not above 0."""
    seen = False
    hits = []
    for chunk, value in _values(reading):
        seen = True
        if not isfinite(value):
            hits.append((chunk, "a log-probability is not finite"))
        elif value > _ROUNDING:
            hits.append((chunk, "a log-probability is above 0"))
    if not seen:
        yield _NONE_SEEN
    yield from grouped(reading, "L03", hits)


def _values(reading: Reading) -> Iterator[tuple[Chunk, float]]:
    found: list[tuple[Chunk, Maybe]] = []
    for chunk, entry in _entries(reading):
        found.append((chunk, entry.get("logprob")))
        found += [(chunk, member(other, "logprob")) for other in _alternatives(entry)]
    for chunk in chunks(reading):
        for choice in chunk.choices:
            chosen = member(choice.logprobs, "token_logprobs")
            found += [(chunk, value) for value in (chosen if isinstance(chosen, list) else ())]
    for chunk, value in found:
        if isinstance(value, int | float) and not isinstance(value, bool):
            yield chunk, value


@once
def _comparable(reading: Reading) -> list[ChoiceLife]:
    """Choices that are all content, with entries wherever they have text."""
    if not any(
        has_entries(choice) for chunk in outline(reading).chunks for choice in chunk.choices
    ):
        return []  # what an outline leaves out has no more than what stays
    return [
        life
        for life in expected(reading)
        if is_legible(reading)
        and life.text
        and not any(choice.tools or choice.reasoning for _, choice in life.pieces)
        and any(has_entries(choice) for _, choice in life.pieces)
        and not lacking(life)
    ]


def logprobs_mismatch(reading: Reading) -> Findings:
    """L04: the tokens of a chunk spell its text, an incomplete character aside."""
    found = _comparable(reading)
    if not found:
        yield _NONE_SEEN
    hits = []
    for life in found:
        at = None if wrong_bytes(life) else first_mismatch(life, bool(reading.asked("stop")))
        if at is not None:
            said = "the tokens of a chunk do not spell its text"
            hits.append((reading.chunks[at], said))
    yield from grouped(reading, "L04", hits)


def logprobs_bytes(reading: Reading) -> Findings:
    """L04: the entries' bytes, joined, are the text in UTF-8: that is what they are for."""
    found = [life for life in _comparable(reading) if bytes_given(life)]
    if not found:
        yield _NONE_SEEN
    for life in found:
        if wrong_bytes(life):
            first = next(at for at, choice in life.pieces if has_entries(choice))
            said = f"the bytes of choice {life.index}'s entries are not its text"
            yield at_chunk(reading, reading.chunks[first], "L04", said)
            return


@outlined
def logprobs_top(reading: Reading) -> Findings:
    """L06: at most as many alternatives as asked for, the likeliest first, each once."""
    k = reading.asked("top_logprobs")
    many, order = [], []
    seen = False
    for chunk, entry in _entries(reading):
        top = _alternatives(entry)
        seen |= bool(top)
        if type(k) is int and len(top) > k:
            many.append((chunk, f"more alternatives than the {k} asked for"))
        order += [(chunk, said) for said in _disorder(top)]
    if not seen:
        yield Abstain("not-seen", "no alternatives")
    yield from grouped(reading, "L06", many)
    yield from grouped(reading, "L06", order, Level.SHOULD)


def _disorder(top: list[Json]) -> Iterator[str]:
    values = [member(other, "logprob") for other in top]
    numbers = [v for v in values if isinstance(v, int | float)]
    if numbers != sorted(numbers, reverse=True):
        yield "the alternatives are not sorted, likeliest first"
    tokens = [(member(o, "token"), repr(member(o, "bytes"))) for o in top]
    if len({repr(token) for token in tokens}) != len(tokens):
        yield "an alternative stands twice"


@outlined
def logprobs_arrays(reading: Reading) -> Findings:
    """L13: four arrays of one length, and offsets that run on through the text."""
    if dialect_of(reading).nested:
        yield Abstain("not-seen", "chat has entries")
        return
    if reading.form is Form.PLAIN:
        yield from _plain_arrays(reading)
        return
    hits: list[tuple[Chunk, str]] = []
    for life in expected(reading):
        for at, choice in life.pieces:
            if choice.logprobs not in (ABSENT, None):
                hits += [(reading.chunks[at], said) for said in _array_flaws(choice.logprobs)]
    if not hits:
        yield from _offsets(reading)
    yield from grouped(reading, "L13", hits)


def _plain_arrays(reading: Reading) -> Findings:
    found = [c.logprobs for c in reading.plain_choices if c.logprobs not in (ABSENT, None)]
    if not found:
        yield _NONE_SEEN
    for said in {said: None for value in found for said in _array_flaws(value)}:
        yield at_body(reading, 0, "L13", said)


def _array_flaws(value: Maybe) -> Iterator[str]:
    if not isinstance(value, dict):
        yield f"`logprobs` is {type_name(value)}, not an object"
        return
    lengths = set()
    for key in _ARRAYS:
        found = value.get(key, ABSENT)
        if isinstance(found, list):
            lengths.add(len(found))
        elif not (key == "top_logprobs" and found is None):  # null when no alternatives
            yield f"`logprobs.{key}` is {type_name(found)}, not an array"
    if len(lengths) > 1:
        yield "the arrays of `logprobs` differ in length"


def _offsets(reading: Reading) -> Iterator[Finding | Abstain]:
    """`text_offset` never runs back, and grows by the length of each token."""
    seen = False
    for life in expected(reading):
        last: int | None = None
        for at, choice in life.pieces:
            if at >= stop_at(reading):
                break
            offsets = member(choice.logprobs, "text_offset")
            for offset in offsets if isinstance(offsets, list) else ():
                seen = True
                if type(offset) is not int or (last is not None and offset < last):
                    said = f"`text_offset` is {offset!r:.20} after {last}"
                    yield at_chunk(reading, reading.chunks[at], "L13", said)
                    return
                last = offset
    if not seen:
        yield _NONE_SEEN if reading.outcome is Outcome.COMPLETE else Abstain("not-seen")
