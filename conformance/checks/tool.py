"""Streamed tool calls: fragments that join to calls (rules C01 to C11, C16, C21)."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator

from conformance import strictjson
from conformance.capture import Json
from conformance.checks import Findings
from conformance.checks.calls import Call, calls, word
from conformance.checks.live import (
    ENDED,
    expected,
    finish_of,
    grouped,
    is_int,
    is_legible,
    type_name,
)
from conformance.checks.place import at_chunk
from conformance.checks.stop import chunk_at
from conformance.chunks import ABSENT, Chunk, Tool, member
from conformance.findings import Abstain, Level
from conformance.lifecycle import ChoiceLife
from conformance.outline import outlined
from conformance.reading import Reading, once

_FATAL = ("invalid", "several", "nonfinite", "control-character")  # JSON.parse throws at each
_WHOLE = ("tool_calls", "stop", "function_call")  # finish reasons that leave no call cut off
_NO_CALL = Abstain("mat", "no tool call")

# How models write calls before a parser takes them out, by vendor's template.
MARKUP = re.compile(
    r"</?tool_calls?>|\[TOOL_CALLS?\]|<\|python_tag\|>|<function=[\w.-]+>|</function>"
    r"|<\|/?tool_calls?(?:_\w+)?\|>|<\|?tool_calls?_(?:section_)?(?:begin|end)\|?>"
    r"|<｜tool▁calls?▁(?:begin|end)｜>|<｜tool▁sep｜>|<\|tool▁calls?\|>"
    r"|</?minimax:tool_call>|</?function_calls?>|<invoke name=|<arg_key>|<\|action_start\|>"
)
_ESCAPE = re.compile(r"\\u[0-9a-fA-F]{4}")


@once
def _calls(reading: Reading) -> list[tuple[ChoiceLife, Call]]:
    return [(life, call) for life in expected(reading) for call in calls(life)]


def _fragments(reading: Reading) -> Iterator[tuple[Chunk, Tool]]:
    for _, call in _calls(reading):
        for at, tool in call.fragments:
            yield reading.chunks[at], tool


@outlined
def tool_index_missing(reading: Reading) -> Findings:
    """C01: `index` is required in every fragment, and an integer."""
    if not _calls(reading):
        yield _NO_CALL
    hits = (
        (chunk, f"the tool call's `index` is {type_name(tool.index)}")
        for chunk, tool in _fragments(reading)
        if not is_int(tool.index)
    )
    yield from grouped(reading, "C01", hits)


@outlined
def tool_id_missing(reading: Reading) -> Findings:
    """C02: a call opens with its id."""
    yield from _opening(reading, "id", "C02")


@outlined
def tool_name_missing(reading: Reading) -> Findings:
    """C02: a call opens with its function's name, before or with its arguments."""
    yield from _opening(reading, "name", "C02")


def _opening(reading: Reading, what: str, rule: str) -> Findings:
    found = _calls(reading) if is_legible(reading) else []
    if not found:
        yield _NO_CALL
    hits = []
    for _, call in found:
        at, first = call.fragments[0]
        value = first.id if what == "id" else first.name
        if not isinstance(value, str) or not value:
            state = "empty" if value == "" else type_name(value)
            hits.append((reading.chunks[at], f"the first fragment's `{what}` is {state}"))
    yield from grouped(reading, rule, hits)


@outlined
def tool_type(reading: Reading) -> Findings:
    """C02: a call opens with `type: function`."""
    found = _calls(reading) if is_legible(reading) else []
    if not found:
        yield _NO_CALL
    for wrong, level in ((True, None), (False, Level.SHOULD)):
        hits = []
        for _, call in found:
            at, first = call.fragments[0]
            absent = first.type in (ABSENT, None, "")
            if first.type != "function" and absent is not wrong:
                said = "missing" if absent else f"{first.type!r:.40}"
                hits.append((reading.chunks[at], f"the first fragment's `type` is {said}"))
        yield from grouped(reading, "C02", hits, level)


@outlined
def tool_name_repeat(reading: Reading) -> Findings:
    """C03: accumulators concatenate: a name sent twice becomes another name."""
    yield from _repeats(reading, "name")


@outlined
def tool_id_repeat(reading: Reading) -> Findings:
    """C03: the same for the id."""
    yield from _repeats(reading, "id")


def _repeats(reading: Reading, what: str) -> Findings:
    found = _calls(reading)
    if not any(len(call.fragments) > 1 for _, call in found):
        yield Abstain("mat", "no call of several fragments")
    hits = []
    for _, call in found:
        had = False
        for at, tool in call.fragments:
            value = tool.id if what == "id" else tool.name
            given = isinstance(value, str) and value != ""
            if given and had:
                hits.append((reading.chunks[at], f"`{what}` stands again in a later fragment"))
            had |= given
    yield from grouped(reading, "C03", hits)


@outlined
def tool_index_order(reading: Reading) -> Findings:
    """C04: indices count the calls from 0 in the order in which they open."""
    if not _calls(reading):
        yield _NO_CALL
    for life in expected(reading):
        opened = [call for call in calls(life) if is_int(call.index) and not call.reused]
        for position, call in enumerate(opened):
            if call.index != position:
                chunk = reading.chunks[call.fragments[0][0]]
                said = f"call {position} (counted from 0) has index {call.index}"
                yield at_chunk(reading, chunk, "C04", said)
                return


@outlined
def tool_id_duplicate(reading: Reading) -> Findings:
    """C05: two calls share neither index nor id."""
    for life in expected(reading):
        ids: set[str] = set()
        for call in calls(life):
            chunk = reading.chunks[call.fragments[0][0]]
            if call.reused:
                said = f"a second call ({call.name}) opens on index {call.index}"
                yield at_chunk(reading, chunk, "C05", said)
                return
            if call.id is not None and call.id in ids:
                yield at_chunk(reading, chunk, "C05", f"two calls have the id {call.id!r:.60}")
                return
            ids |= {call.id} if call.id is not None else set()
        if len(ids) < 2:
            yield Abstain("mat", "no parallel calls")


@outlined
def tool_args_type(reading: Reading) -> Findings:
    """C06: arguments come as a string, in every fragment."""
    if not _calls(reading):
        yield _NO_CALL
    for null, level in ((False, None), (True, Level.SHOULD)):
        hits = (
            (chunk, f"`arguments` is {type_name(tool.arguments)}, not a string")
            for chunk, tool in _fragments(reading)
            if tool.arguments is not ABSENT and not isinstance(tool.arguments, str)
            if (tool.arguments is None) is null
        )
        yield from grouped(reading, "C06", hits, level)


@once
def _parsed(reading: Reading) -> list[tuple[Chunk, Call, strictjson.Parsed]]:
    """Calls that were not cut off, at their last fragment, with their arguments read."""
    if reading.outcome not in ENDED or not is_legible(reading):
        return []
    return [
        (reading.chunks[call.fragments[-1][0]], call, strictjson.parse(call.arguments))
        for life in expected(reading)
        for call in _whole(life)
        if all(isinstance(t.arguments, str | None) or not t.arguments for _, t in call.fragments)
    ]


def _whole(life: ChoiceLife) -> list[Call]:
    """A limit cuts the last call alone: one that ended before another began is whole."""
    found = calls(life)
    if finish_of(life) == "length":
        begun = max((call.fragments[0][0] for call in found), default=0)
        return [call for call in found if call.fragments[-1][0] < begun]
    return found if finish_of(life) in _WHOLE else []


@outlined
def tool_args_invalid(reading: Reading) -> Findings:
    """C07: the fragments join to one JSON object; a call without arguments has `{}`."""
    found = _parsed(reading)
    if not found:
        yield Abstain("mat", "no whole call")
    hits = []
    for chunk, call, parsed in found:
        flaws = [f for f in parsed.flaws if f.kind in _FATAL]
        if not call.arguments.strip():
            hits.append((chunk, "the arguments are empty: no JSON object"))
        elif flaws:
            hits.append((chunk, f"the joined arguments are not one JSON object: {flaws[0].detail}"))
        elif not isinstance(parsed.value, dict):
            said = f"the joined arguments are {type_name(parsed.value)}, not an object"
            hits.append((chunk, said))
    yield from grouped(reading, "C07", hits)
    yield from grouped(reading, "C07", _lacking(reading), Level.SHOULD)


def _lacking(reading: Reading) -> Iterator[tuple[Chunk, str]]:
    """Required parameters that are absent: the model's fault, unless decoding is constrained."""
    schemas = dict(_declared(reading))
    for chunk, call, parsed in _parsed(reading):
        required = member(schemas.get(call.name or ""), "required")
        if isinstance(parsed.value, dict) and isinstance(required, list):
            lacking = [r for r in required if isinstance(r, str) and r not in parsed.value]
            if lacking:
                yield chunk, f"required arguments are missing: {', '.join(lacking)[:60]}"


def _declared(reading: Reading) -> Iterator[tuple[str, Json]]:
    """(name, parameter schema) of each tool that the request offers."""
    tools = reading.asked("tools")
    for tool in tools if isinstance(tools, list) else ():
        function = member(tool, "function")
        name = tool if isinstance(tool, str) else member(function, "name")
        if isinstance(name, str):
            parameters = member(function, "parameters")
            yield name, None if parameters is ABSENT else parameters


@outlined
def tool_unknown_name(reading: Reading) -> Findings:
    """C11: a call names a tool that was offered."""
    known = {name for name, _ in _declared(reading)}
    wanted = member(member(reading.asked("tool_choice"), "function"), "name")
    if not known or not _calls(reading):
        yield _NO_CALL
        return
    for _, call in _calls(reading):
        chunk = reading.chunks[call.fragments[0][0]]
        if isinstance(wanted, str) and call.name not in (None, wanted):
            said = f"the call is to {call.name!r:.60}, {wanted!r:.60} was demanded"
            yield at_chunk(reading, chunk, "C11", said, Level.MUST)
            return
        if call.name is not None and call.name not in known:
            yield at_chunk(reading, chunk, "C11", f"no tool is called {call.name!r:.60}")
            return


@outlined
def tool_args_nul(reading: Reading) -> Findings:
    """C16: no NUL in an argument: it stands where a broken escape lost a letter."""
    yield from _strings(reading, re.compile("\0"), "an argument contains U+0000")


@outlined
def tool_args_double_escape(reading: Reading) -> Findings:
    r"""C16: after one JSON parse no `\uXXXX` is left."""
    yield from _strings(reading, _ESCAPE, "an argument contains a literal \\uXXXX escape")


def _strings(reading: Reading, pattern: re.Pattern[str], said: str) -> Findings:
    found = _parsed(reading)
    if not found:
        yield Abstain("mat", "no whole call")
    hits = (
        (chunk, said)
        for chunk, _, parsed in found
        if any(pattern.search(text) for text in strictjson.strings_in(parsed.value, keys=True))
    )
    yield from grouped(reading, "C16", hits)


def tool_markup_leak(reading: Reading) -> Findings:
    """C09: what the model writes to call a tool does not reach the content."""
    names = [name for name, _ in _declared(reading)]
    if not names or reading.asked("tool_choice") == "none":
        yield Abstain("not-seen", "no tool was offered")
        return
    for life in expected(reading):
        found = MARKUP.search(life.text)
        if found is None:
            continue
        chunk = reading.chunks[chunk_at(life, found.start())]
        said = f"tool-call markup {found[0]!r} in the content"
        control = reading.control is not None and any(found[0] in t for t in reading.control.texts)
        lost = any(f'"{n}"' in life.text or f"={n}>" in life.text for n in names)
        sure = not control and (lost or bool(calls(life)))
        yield at_chunk(reading, chunk, "C09", said, None if sure else Level.SHOULD)
        return


@outlined
def tool_resumed(reading: Reading) -> Findings:
    """C21: clients finalise a call when the next one opens."""
    parallel = False
    for life in expected(reading):
        opened = calls(life)
        parallel |= len(opened) > 1
        starts = [call.fragments[0][0] for call in opened]  # never falling
        for call in opened if len(opened) > 1 else ():
            start, end = call.fragments[0][0], _last_argument(call)
            after = bisect_right(starts, start)
            together = after - bisect_left(starts, start) > 1
            if after < len(starts) and starts[after] < end:
                said = "arguments of a call go on after a later call opened"
                yield at_chunk(reading, reading.chunks[end], "C21", said)
                return
            if together and start < end:
                said = "calls that opened together are interleaved"
                yield at_chunk(reading, reading.chunks[end], "C21", said, Level.MAY)
                return
    if not parallel:
        yield Abstain("mat", "one call")


def _last_argument(call: Call) -> int:
    """Index of the last chunk that brings arguments of the call, -1 if none does."""
    return max((at for at, tool in call.fragments if word(tool.arguments)), default=-1)
