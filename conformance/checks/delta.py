"""What a delta says and does not say (rules J09 to J12, J21, K02, C23, U16)."""

from __future__ import annotations

from conformance.checks import Findings
from conformance.checks.live import chunks, dialect_of, expected, grouped, type_name
from conformance.checks.place import at_chunk
from conformance.chunks import ABSENT, Choice, Chunk, member
from conformance.findings import Abstain, Level
from conformance.outline import outlined
from conformance.reading import Reading, once

# In the schema, yet not what an answer's author is.
ROLES = ("developer", "system", "user", "tool", "function")
_FLOOD = 8  # fewer empty deltas are a hold-back window; a hold-back is legal and no flood


@once
def _deltas(reading: Reading) -> tuple[tuple[Chunk, Choice], ...]:
    return tuple((chunk, choice) for chunk in chunks(reading) for choice in chunk.choices)


@outlined
def role_missing(reading: Reading) -> Findings:
    """J09: the first delta of each choice says whose words they are."""
    hits = []
    for life in expected(reading) if dialect_of(reading).roles else ():
        at, first = life.pieces[0]
        if not isinstance(first.role, str):
            hits.append((reading.chunks[at], "the first delta of a choice has no `role`"))
    yield from grouped(reading, "J09", hits)


@outlined
def role_repeated(reading: Reading) -> Findings:
    """J10: accumulators add strings up: a second role makes `assistantassistant`."""
    hits = []
    for life in expected(reading):
        had = False
        for at, choice in life.pieces:
            given = isinstance(choice.role, str) and choice.role != ""
            if had and given:
                hits.append((reading.chunks[at], "`role` stands again in a later delta"))
            had |= given
    yield from grouped(reading, "J10", hits)


@outlined
def role_value(reading: Reading) -> Findings:
    """J11: "The role of the author of this message." is one of the schema's words."""
    for level in (None, Level.SHOULD):
        hits = (
            (chunk, f"`role` is {choice.role!r:.60}")
            for chunk, choice in _deltas(reading)
            if choice.role not in (ABSENT, "assistant")
            if (Level.SHOULD if choice.role in ("", *ROLES) else None) is level
        )
        yield from grouped(reading, "J11", hits, level)


@outlined
def delta_content_type(reading: Reading) -> Findings:
    """J12, J20, K02: content, refusal: a string or null; text: a string; tool_calls: an array."""
    nested = dialect_of(reading).nested
    allowed = (ABSENT, None) if nested else (ABSENT,)
    hits = [
        (chunk, f"`{'content' if nested else 'text'}` is {type_name(choice.content)}")
        for chunk, choice in _deltas(reading)
        if not isinstance(choice.content, str) and choice.content not in allowed
    ]
    hits += [
        (chunk, f"`refusal` is {type_name(choice.refusal)}")
        for chunk, choice in _deltas(reading)
        if not isinstance(choice.refusal, str) and choice.refusal not in (ABSENT, None)
    ]
    hits += [
        (chunk, f"`tool_calls` is {type_name(calls)}, not an array")
        for chunk, choice in _deltas(reading)
        if (calls := member(choice.delta, "tool_calls")) not in (ABSENT, None)
        and not isinstance(calls, list)
    ]
    yield from grouped(reading, "J12", hits)


@outlined
def delta_empty_flood(reading: Reading) -> Findings:
    """U16: a delta brings something; most of them here bring an empty string."""
    empty = [
        chunk
        for chunk, choice in _deltas(reading)
        if choice.content == "" and not choice.carries and choice.role in (ABSENT, None, "")
        if choice.finish_reason in (ABSENT, None, "") and not _has_entries(choice)
    ]
    full = sum(choice.carries for _, choice in _deltas(reading))
    if len(empty) >= _FLOOD and len(empty) > full:
        said = f"{len(empty)} deltas are empty, {full} bring text"
        yield at_chunk(reading, empty[0], "U16", said)


def _has_entries(choice: Choice) -> bool:
    """A token without text of its own may still have its log-probability to bring."""
    return bool(member(choice.logprobs, "content") or member(choice.logprobs, "tokens"))


@outlined
def delta_tool_calls_empty(reading: Reading) -> Findings:
    """C23: clients take the presence of `tool_calls` for a call."""
    hits = (
        (chunk, "`tool_calls` is an empty array")
        for chunk, choice in _deltas(reading)
        if member(choice.delta, "tool_calls") == []
    )
    yield from grouped(reading, "C23", hits)


@outlined
def reasoning_empty_field(reading: Reading) -> Findings:
    """J21: once the answer has begun, no empty reasoning: clients open a new thinking block."""
    hits = []
    for life in expected(reading):
        begun = False
        for at, choice in life.pieces:
            begun |= choice.text != ""
            empty = [k for k in _REASONING if member(choice.delta, k) == ""]
            if begun and empty:
                said = f"`{empty[0]}` is an empty string after the answer began"
                hits.append((reading.chunks[at], said))
    if not any(member(c.delta, k) is not ABSENT for _, c in _deltas(reading) for k in _REASONING):
        yield Abstain("not-seen", "no reasoning field")
    yield from grouped(reading, "J21", hits)


_REASONING = ("reasoning_content", "reasoning")
