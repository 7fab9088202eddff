"""Token counts: asked for, delivered once and last, adding up (rules Z09 to Z18, K07)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import TypeAlias

from conformance.capture import Json
from conformance.checks import Findings, Trial
from conformance.checks.fin import completion_tokens, limit_of
from conformance.checks.live import (
    chunks,
    expected,
    finish_of,
    grouped,
    is_int,
    last_finish,
    stop_at,
    type_name,
)
from conformance.checks.place import at_body, at_chunk
from conformance.chunks import ABSENT, Choice, Chunk, Kind, member
from conformance.findings import Abstain, Finding, Level
from conformance.lifecycle import Outcome
from conformance.outline import outline, outlined
from conformance.reading import Form, Reading, once

_COUNTS = ("prompt_tokens", "completion_tokens", "total_tokens")
_DETAILS = (
    ("completion_tokens", "completion_tokens_details", "reasoning_tokens"),
    ("prompt_tokens", "prompt_tokens_details", "cached_tokens"),
)
# A finish of `length` below the limit can mean a full context; no model has one this short.
SMALL_LIMIT, SMALL_CONTEXT = 16, 128

Usage: TypeAlias = Mapping[str, Json]
_NO_USAGE = Abstain("not-seen", "no usage object")


@once
def usages(reading: Reading) -> list[tuple[int, Chunk, Usage]]:
    """(index, chunk, usage) of every usage object before the end."""
    return [
        (at, chunk, chunk.usage)
        for at, chunk in enumerate(reading.chunks[: stop_at(reading)])
        if chunk.kind is Kind.CHUNK and isinstance(chunk.usage, dict)
    ]


def continuous(reading: Reading) -> bool:
    """Did the request ask for running usage (vLLM's continuous_usage_stats)?"""
    options = reading.asked("stream_options")
    return isinstance(options, dict) and options.get("continuous_usage_stats") is True


@once
def final_usages(reading: Reading) -> list[tuple[int, Chunk, Usage]]:
    """Those that speak of the whole: at or after the last finish, or in a chunk of their own."""
    end = last_finish(reading)
    return [
        (at, chunk, usage)
        for at, chunk, usage in usages(reading)
        if not chunk.choices or (end is not None and at >= end)
    ]


@outlined
def usage_missing(reading: Reading) -> Findings:
    """Z10: include_usage brings usage, before the sentinel."""
    if not reading.wants_usage:
        yield Abstain("not-seen", "usage was not asked for")
    elif reading.outcome is not Outcome.COMPLETE or last_finish(reading) is None:
        yield Abstain("not-seen", "the stream is not complete")
    elif not final_usages(reading):
        running = usages(reading)
        said = "include_usage was set and no usage came"
        if running:
            said = "include_usage was set and only running counts came, none at the end"
        yield Finding("Z10", said, reading.place(len(reading.body)) if reading.body else None)


@outlined
def usage_placement(reading: Reading) -> Findings:
    """Z09, Z10: usage has a chunk of its own, last before the sentinel, once, if asked for."""
    closing, end = final_usages(reading), last_finish(reading)
    if not closing or reading.request is None:
        yield _NO_USAGE
        return
    at, chunk, _ = closing[-1]
    own = [c for c in closing if not c[1].choices]
    later = [c for c in reading.chunks[at + 1 : stop_at(reading)] if c.kind is Kind.CHUNK]
    said = None
    if not reading.wants_usage:
        said = "usage was not asked for and stands on a chunk with choices" if not own else None
    elif not own:
        said = "usage shares a chunk with choices"
    elif end is not None and at < end:
        said = "usage comes before the last finish reason"
    elif later:
        said = "the usage chunk is not the last before the sentinel"
    elif len(closing) > 1 and not continuous(reading):
        said = f"usage stands {len(closing)} times"
    if said:
        level = None if reading.wants_usage else Level.MAY
        yield at_chunk(reading, chunk, "Z10", said, level)


@outlined
def usage_null_before(reading: Reading) -> Findings:
    """Z11: "All other chunks will also include a `usage` field, but with a null value."."""
    if not reading.wants_usage or not usages(reading):
        yield _NO_USAGE
        return
    last = usages(reading)[-1][0]
    hits = (
        (chunk, "the chunk has no `usage` member; null is due until the usage chunk")
        for chunk in reading.chunks[:last]
        if chunk.kind is Kind.CHUNK and chunk.usage is ABSENT
    )
    yield from grouped(reading, "Z11", hits)


@outlined
def usage_intermediate(reading: Reading) -> Findings:
    """Z12, K07: no zero or partial counts on the way, unless they were asked for."""
    closing = [at for at, _, _ in final_usages(reading)]
    running = [entry for entry in usages(reading) if entry[0] not in closing]
    if reading.request is None or continuous(reading):
        yield Abstain("not-seen", "running usage may have been asked for")
        return
    hits = (
        (chunk, "all-zero usage before the end" if _zero(usage) else "partial usage before the end")
        for _, chunk, usage in running
    )
    yield from grouped(reading, "Z12", hits)


def _zero(usage: Usage) -> bool:
    return all(usage.get(key) in (0, None) for key in _COUNTS)


@outlined
def usage_conflict(reading: Reading) -> Findings:
    """Z10, Z20: one count; and a running one that was asked for does not run backwards."""
    closing = final_usages(reading)
    for (_, _, before), (_, chunk, after) in pairwise(closing):
        differ = [key for key in _COUNTS if before.get(key) != after.get(key)]
        if differ:
            key = differ[0]
            said = f"`{key}` was {before.get(key)!r:.20} and is {after.get(key)!r:.20}"
            yield at_chunk(reading, chunk, "Z10", f"two usage objects disagree: {said}")
            return
    if continuous(reading):
        yield from _backwards(reading)


def _backwards(reading: Reading) -> Iterator[Finding]:
    most = 0
    for _, chunk, usage in usages(reading):
        count = usage.get("completion_tokens")
        if type(count) is int and count < most:
            said = f"`completion_tokens` ran back from {most} to {count}"
            yield at_chunk(reading, chunk, "Z20", said)
            return
        most = count if type(count) is int else most


def _judged(reading: Reading) -> Iterator[tuple[Chunk | None, Usage]]:
    """Every usage object of a stream, or that of a plain answer (no chunk)."""
    if reading.form is Form.STREAM:
        yield from ((chunk, usage) for _, chunk, usage in usages(reading))
    elif reading.form is Form.PLAIN and reading.document is not None:
        usage = member(reading.document.value, "usage")
        if isinstance(usage, dict):
            yield None, usage


def _each(reading: Reading, rule: str, hits: list[tuple[Chunk | None, str]]) -> Iterator[Finding]:
    placed = [(chunk, said) for chunk, said in hits if chunk is not None]
    yield from grouped(reading, rule, placed)
    for said in [said for chunk, said in hits if chunk is None][:3]:
        yield at_body(reading, 0, rule, said)


@outlined
def usage_sum(reading: Reading) -> Findings:
    """Z14: "Total number of tokens used in the request (prompt + completion)."."""
    found = list(_judged(reading))
    if not found:
        yield _NO_USAGE
    hits = []
    for chunk, usage in found:
        prompt, completion, total = (usage.get(key) for key in _COUNTS)
        if type(prompt) is not int or type(completion) is not int or type(total) is not int:
            continue  # usage.type tells of it
        if prompt + completion != total:
            hits.append((chunk, f"{prompt} + {completion} is not {total}"))
    yield from _each(reading, "Z14", hits)


@outlined
def usage_type(reading: Reading) -> Findings:
    """Z14: the three counts are there, integers, not below 0."""
    found = list(_judged(reading))
    if not found:
        yield _NO_USAGE
    hits: list[tuple[Chunk | None, str]] = []
    for chunk, usage in found:
        for key in _COUNTS:
            value = usage.get(key, ABSENT)
            if type(value) is int and value < 0:
                hits.append((chunk, f"`{key}` is below 0"))
            elif type(value) is not int:
                hits.append((chunk, f"`{key}` is {type_name(value)}, not an integer"))
    hits += [
        (chunk, f"`usage` is {type_name(chunk.usage)}, not an object or null")
        for chunk in chunks(reading)
        if chunk.usage not in (ABSENT, None) and not isinstance(chunk.usage, dict)
    ]
    yield from _each(reading, "Z14", hits)


@outlined
def usage_over_limit(reading: Reading) -> Findings:
    """Z04: no more completion tokens than the limit allows for all choices together."""
    limit, n, best = limit_of(reading), reading.n, reading.asked("best_of")
    found = list(_judged(reading))
    if limit is None or n is None or not found:
        yield Abstain("not-recorded", "no limit or no usage")
        return
    most = limit * max(n, best if type(best) is int else 1)
    hits = []
    for chunk, usage in found:
        used = usage.get("completion_tokens")
        if type(used) is int and used > most:
            hits.append((chunk, f"{used} completion tokens, {most} were allowed"))
    yield from _each(reading, "Z04", hits)


def usage_under_count(reading: Reading) -> Findings:
    """Z17, Z04: every piece of text costs a token, and `length` means that all were used."""
    short = outline(reading)
    closing, used = final_usages(short), completion_tokens(short)
    if not closing or used is None or reading.asked("echo") is True:
        yield Abstain("not-recorded", "no closing usage")
        return
    lives = expected(reading)
    # What an outline leaves out has text, so whatever costs nothing is still there.
    free = sum(not costs(choice) for life in expected(short) for _, choice in life.pieces)
    pieces = sum(len(life.pieces) for life in lives) - free
    chunk, limit = closing[-1][1], limit_of(reading)
    cut = len(lives) == 1 == reading.n and finish_of(lives[0]) == "length"
    total = closing[-1][2].get("total_tokens")
    small = type(total) is int and total < SMALL_CONTEXT
    if used == 0 and pieces:
        yield at_chunk(reading, chunk, "Z17", "text came and completion_tokens is 0")
    elif cut and small and limit is not None and used < limit <= SMALL_LIMIT:
        said = f"the limit of {limit} cut the answer and completion_tokens is {used}"
        yield at_chunk(reading, chunk, "Z04", said)
    elif used < pieces:
        said = f"{pieces} deltas bring text and completion_tokens is {used}"
        yield at_chunk(reading, chunk, "Z17", said, Level.SHOULD)


def costs(choice: Choice) -> bool:
    """Text of any kind. A call's id and name may be the server's own words, its arguments not."""
    strings = (
        choice.content,
        choice.reasoning,
        choice.refusal,
        *(t.arguments for t in choice.tools),
    )
    return any(isinstance(each, str) and each != "" for each in strings)


@outlined
def usage_details(reading: Reading) -> Findings:
    """Z18: a part is not larger than its whole."""
    found = list(_judged(reading))
    hits: list[tuple[Chunk | None, str]] = []
    seen = False
    for chunk, usage in found:
        for whole, details, part in _DETAILS:
            value, most = member(usage.get(details), part), usage.get(whole)
            seen |= value is not ABSENT
            if value in (ABSENT, None):
                continue
            if type(value) is not int or value < 0:
                hits.append((chunk, f"`{details}.{part}` is {value!r:.30}"))
            elif type(most) is int and value > most:
                hits.append((chunk, f"`{part}` is {value}, more than `{whole}` {most}"))
    if not seen:
        yield Abstain("not-seen", "no details")
    yield from _each(reading, "Z18", hits)


def usage_parity(trial: Trial) -> Findings:
    """Z15: equal answers cost the same, streamed or plain."""
    plain, streamed = _counted(trial, "plain"), _counted(trial, "stream")
    if not plain or not streamed:
        yield Abstain("not-recorded", "usage of one form is not known")
        return
    if len({text for _, text, _ in [*plain, *streamed]}) > 1:
        yield Abstain("det", "the answers differ")
        return
    costs = {usage["completion_tokens"] for _, _, usage in plain}
    for take, _, usage in streamed:
        count = usage["completion_tokens"]
        if count not in costs:
            said = f"streamed {count} completion tokens, plain {_list(costs)}, for the same text"
            yield Finding("Z15", said, role="stream", take=take)
            return


def usage_prompt_stable(trial: Trial) -> Findings:
    """Z16: one prompt has one length."""
    counted = [(r, *each) for r in ("plain", "stream") for each in _counted(trial, r)]
    if len(counted) < 2:
        yield Abstain("not-recorded", "usage is not known")
        return
    first = counted[0][3]["prompt_tokens"]
    for role, take, _, usage in counted:
        if usage["prompt_tokens"] != first:
            said = f"the same prompt has {first} tokens and {usage['prompt_tokens']}"
            yield Finding("Z16", said, role=role, take=take)
            return


def _counted(trial: Trial, role: str) -> list[tuple[int, str, dict[str, int]]]:
    """(take, text, counts) of each answer of a role that has usage with integer counts."""
    out = []
    for take, reading in enumerate(trial.readings.get(role, ())):
        found = [usage for _, usage in _judged(reading)]
        counts = found[-1] if found else {}
        if all(is_int(counts.get(key)) for key in _COUNTS):
            whole = {key: value for key, value in counts.items() if type(value) is int}
            out.append((take, reading.text, whole))
    return out


def _list(values: set[int]) -> str:
    return " or ".join(map(str, sorted(values)))
