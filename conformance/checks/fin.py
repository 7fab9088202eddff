"""The finish reason: one per choice, last, and true (rules Z01 to Z08, J08, K03, C08)."""

from __future__ import annotations

from collections.abc import Iterator

from conformance.capture import Json
from conformance.checks import Findings, Trial
from conformance.checks.live import (
    ENDED,
    MOST_CHOICES,
    chunks,
    dialect_of,
    expected,
    finish_of,
    grouped,
)
from conformance.checks.live import choices as lives
from conformance.checks.place import at_chunk
from conformance.chunks import ABSENT, Choice, Chunk, member
from conformance.findings import Abstain, Finding, Level
from conformance.lifecycle import ChoiceLife, Outcome
from conformance.outline import outlined
from conformance.reading import Form, Reading, once

REASONS = ("stop", "length", "tool_calls", "content_filter", "function_call")
_OWN_END = (*ENDED, Outcome.TRUNCATED, Outcome.EMPTY)


@outlined
def fin_key_missing(reading: Reading) -> Findings:
    """J08: `finish_reason` is a required member, null until the end."""
    level = None if dialect_of(reading).nested else Level.SHOULD  # K02
    hits = (
        (chunk, "the choice has no `finish_reason`")
        for chunk in chunks(reading)
        for choice in chunk.choices
        if isinstance(choice.raw, dict) and choice.finish_reason is ABSENT
    )
    yield from grouped(reading, "J08", hits, level)


@outlined
def fin_missing(reading: Reading) -> Findings:
    """Z01, Z08: every choice gives its reason before the stream ends."""
    if reading.outcome not in _OWN_END:
        yield Abstain("not-seen", "the stream did not come to its own end")
        return
    finished = {life.index for life in lives(reading) if life.finishes}
    n = reading.n
    wanted = {*range(min(n or 1, MOST_CHOICES))}
    if n is None:
        wanted = {life.index for life in lives(reading)} or {0}
    lacking = sorted(wanted - finished)
    if lacking:
        who = ", ".join(map(str, lacking[:5]))
        said = f"no finish_reason ever came for choice {who}{_hint(reading)}"
        yield Finding("Z01", said, reading.place(len(reading.body)) if reading.body else None)


def _hint(reading: Reading) -> str:
    for chunk in chunks(reading):
        for choice in chunk.choices:
            keys = choice.raw if isinstance(choice.raw, dict) else {}
            for key in keys:
                if key != "finish_reason" and key.replace("_", "").lower() == "finishreason":
                    return f" (but `{key}` did)"
    return ""


@outlined
def fin_duplicate(reading: Reading) -> Findings:
    """Z01: exactly one."""
    for life in expected(reading):
        if len(life.finishes) > 1:
            chunk = reading.chunks[life.finishes[1][0]]
            said = f"choice {life.index} has {len(life.finishes)} finish reasons"
            yield at_chunk(reading, chunk, "Z01", said)
            return


@outlined
def fin_early(reading: Reading) -> Findings:
    """Z03: nothing more of a choice after its finish reason."""
    for life in expected(reading):
        if not life.finishes:
            continue
        end = life.finishes[0][0]
        late = [at for at, choice in life.pieces if at > end and choice.carries]
        if late:
            more = f", in {len(late)} events" if len(late) > 1 else ""
            said = f"choice {life.index} goes on after its finish reason{more}"
            yield at_chunk(reading, reading.chunks[late[0]], "Z03", said)
            return


@outlined
def fin_empty_string(reading: Reading) -> Findings:
    """Z02, K03: "not yet" is null."""
    yield from grouped(reading, "Z02", _values(reading, [""], "`finish_reason` is an empty string"))


@outlined
def fin_unknown_value(reading: Reading) -> Findings:
    """Z02: the reason is a word of the schema."""
    hits = (
        (chunk, f"`finish_reason` is {choice.finish_reason!r:.60}")
        for chunk in chunks(reading)
        for choice in chunk.choices
        if choice.finish_reason not in (ABSENT, None, "", *REASONS)
    )
    yield from grouped(reading, "Z02", hits)


def _values(reading: Reading, values: list[Json], said: str) -> Iterator[tuple[Chunk, str]]:
    for chunk in chunks(reading):
        for choice in chunk.choices:
            if choice.finish_reason in values:
                yield chunk, said


@outlined
def fin_tool_calls(reading: Reading) -> Findings:
    """C08: calls end with `tool_calls`; under a named choice `stop` is also seen."""
    named = isinstance(reading.asked("tool_choice"), dict)
    called = False
    for life in expected(reading):
        reason = finish_of(life)
        calls = any(choice.tools for _, choice in life.pieces)
        legacy = any(_function_call(choice) for _, choice in life.pieces)
        called |= calls
        if not life.finishes:
            continue
        chunk = reading.chunks[life.finishes[0][0]]
        if calls and reason in ("stop", "function_call"):
            said = f"tool calls were sent and the finish reason is {reason!r}"
            yield at_chunk(reading, chunk, "C08", said, Level.MAY if named else None)
        elif reason == "tool_calls" and not calls and not legacy:
            said = "the finish reason is 'tool_calls' and no call was sent"
            yield at_chunk(reading, chunk, "C08", said)
    if not called:
        yield Abstain("mat", "no tool call")


def _function_call(choice: Choice) -> bool:
    return isinstance(member(choice.delta, "function_call"), dict)


@outlined
def fin_length_suspect(reading: Reading) -> Findings:
    """Z04: exactly as many tokens as allowed, and yet `stop`."""
    limit, used = limit_of(reading), completion_tokens(reading)
    if limit is None or used is None:
        yield Abstain("not-recorded", "no limit or no usage")
        return
    if reading.asked("stop"):
        yield Abstain("not-seen", "a stop string may have ended it at the limit")
        return
    for life in expected(reading) if reading.n == 1 else ():
        if used == limit and finish_of(life) == "stop":
            chunk = reading.chunks[life.finishes[0][0]]
            said = f"{used} tokens, the limit, were generated and the reason is 'stop'"
            yield at_chunk(reading, chunk, "Z04", said)


def limit_of(reading: Reading) -> int | None:
    """The request's limit of completion tokens per choice."""
    values = (reading.asked("max_completion_tokens"), reading.asked("max_tokens"))
    limits = [value for value in values if type(value) is int and value >= 0]
    return min(limits, default=None)


@once
def completion_tokens(reading: Reading) -> int | None:
    """What the last usage object says was generated; None: it does not say."""
    said = [member(chunk.usage, "completion_tokens") for chunk in chunks(reading)]
    return next((v for v in reversed(said) if type(v) is int), None)


def fin_limit(trial: Trial) -> Findings:
    """Z04: a long answer under max_tokens = k ends with `length` after k tokens."""
    yield from _limits(trial, "Z04")


def fin_max_completion_tokens(trial: Trial) -> Findings:
    """Z05: the same under max_completion_tokens."""
    yield from _limits(trial, "Z05")


def _limits(trial: Trial, rule: str) -> Findings:
    """Each stream's verdict; a stream that ended by itself before its limit says nothing."""
    silent: Abstain | None = Abstain("mat", "no stream was cut by its limit")
    for role, take, reading in _limited(trial, rule):
        found = unlike_limit(reading)
        if isinstance(found, Abstain):
            silent = silent and found
            continue
        silent = None
        if found:
            yield Finding(rule, found, role=role, take=take)
    if silent is not None:
        yield silent


def _limited(trial: Trial, rule: str) -> Iterator[tuple[str, int, Reading]]:
    """(role, take, stream) under the name that the rule is about: the newer one is Z05's.

    Where no stream has the older one, the newer is this endpoint's own.
    """
    found = [
        (role, take, reading)
        for role in ("stream", "limited", "control")
        for take, reading in enumerate(trial.readings.get(role, ()))
    ]
    newer = [each for each in found if each[2].asked("max_completion_tokens") is not None]
    older = [each for each in found if each not in newer]
    yield from newer if rule == "Z05" or not older else older


def unlike_limit(reading: Reading) -> str | Abstain | None:
    """How a stream disregards its limit; None where it keeps it."""
    limit, life = limit_of(reading), _first(reading)
    if reading.form is not Form.STREAM:
        return Abstain("rate", f"status {reading.status}")
    if limit is None or life is None or reading.outcome not in ENDED or not life.finishes:
        return Abstain("not-seen", "no finished stream with a limit")
    reason, used = finish_of(life), completion_tokens(reading)
    if reading.n != 1:  # the count is of all the choices
        every = used is not None and all(finish_of(each) == "length" for each in lives(reading))
        used = used // reading.n if every and used and reading.n and used % reading.n == 0 else None
    if used is not None and used > limit:
        return f"limit {limit}: {used} completion tokens"
    if reason == "length":
        wrong = used is not None and used != limit
        return f"limit {limit}: 'length' after {used} completion tokens" if wrong else None
    if used is not None and used < limit:
        return Abstain("mat", "the answer ended before the limit")
    if used is None and not _certainly_long(life, limit):
        return Abstain("mat", "no usage, and the answer may have ended before the limit")
    return f"limit {limit}: finish reason {reason!r} after {used or 'at least that many'} tokens"


def _certainly_long(life: ChoiceLife, limit: int) -> bool:
    return sum(choice.carries for _, choice in life.pieces) >= limit


def fin_natural_stop(trial: Trial) -> Findings:
    """Z06: an answer that ends by itself ends with `stop`."""
    role = "natural" if "natural" in trial.readings else "stream"
    for take, reading in enumerate(trial.readings.get(role, ())):
        life = _first(reading)
        if life is None or reading.outcome not in ENDED or not life.finishes:
            yield Abstain("not-seen", "no finished stream")
            continue
        reason, limit, used = finish_of(life), limit_of(reading), completion_tokens(reading)
        if reason == "stop":
            continue
        if used is None and reason == "length":
            yield Abstain("mat", "no usage: the answer may have reached its limit")
        elif reason == "length" and (limit is None or used is None or used >= limit):
            yield Abstain("mat", "the answer reached its limit")
        else:
            said = f"an answer of {used} tokens (limit {limit}) ended with {reason!r}"
            yield Finding("Z06", said, role=role, take=take)


def _first(reading: Reading) -> ChoiceLife | None:
    return next((life for life in lives(reading) if life.index == 0), None)
