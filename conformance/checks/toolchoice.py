"""What a request says of the calls to make: of which function, and how many (rules C14, C15)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from conformance.capture import Json
from conformance.checks import Findings, Trial
from conformance.checks.calls import calls, word
from conformance.checks.live import ENDED, expected, finish_of, is_legible
from conformance.checks.place import at_body, at_chunk
from conformance.chunks import Chunk, member
from conformance.findings import Abstain, Finding
from conformance.reading import Form, Reading

_WHOLE = ("stop", "tool_calls")  # finish reasons of an answer that nothing cut off


@dataclass(frozen=True, slots=True)
class _Made:
    """A call of a choice, by its name; `chunk`: where it opens in a stream."""

    choice: Json
    name: str | None
    chunk: Chunk | None = None


def tool_named(trial: Trial) -> Findings:
    """C14: a named choice is there "to force the model to call a specific function."."""
    called, named = (_first(trial, role) for role in ("stream", "named"))
    wanted = _named(named) if named else None
    if named is None or wanted is None:
        yield Abstain("not-seen", "a named tool_choice was not accepted")
        return
    made = list(_made(named))
    wrong = next((call for call in made if call.name not in (None, wanted)), None)
    if wrong is not None:
        said = f"tool_choice names {wanted!r:.60} and the call is to {wrong.name!r:.60}"
        yield _finding(named, wrong, "C14", said, "named")
    elif made:
        return
    elif called is not None and any(_made(called)) and _has_spoken(named):
        yield Finding("C14", f"tool_choice names {wanted!r:.60} and no call came", role="named")
    else:
        yield Abstain("mat", "no tool call")


def tool_parallel(reading: Reading) -> Findings:
    """C15: `parallel_tool_calls: false` is there so that there is one call or none."""
    made = list(_made(reading)) if reading.asked("parallel_tool_calls") is False else []
    if not made:
        yield Abstain("not-seen", "no call under parallel_tool_calls false")
    for choice in dict.fromkeys(str(call.choice) for call in made):
        mine = [call for call in made if str(call.choice) == choice]
        if len(mine) > 1:
            said = f"parallel_tool_calls is false and there are {len(mine)} calls"
            yield _finding(reading, mine[1], "C15", said)
            return


def _named(reading: Reading) -> str | None:
    """The function that the request names."""
    return word(member(member(reading.asked("tool_choice"), "function"), "name"))


def _made(reading: Reading) -> Iterator[_Made]:
    """The calls of every choice, streamed or plain."""
    if reading.form is Form.PLAIN:
        for choice in reading.plain_choices:
            index = choice.index if type(choice.index) is int else None
            yield from (_Made(index, word(tool.name)) for tool in choice.tools)
        return
    for life in expected(reading) if is_legible(reading) else ():
        for call in calls(life):
            yield _Made(life.index, call.name, reading.chunks[call.fragments[0][0]])


def _has_spoken(reading: Reading) -> bool:
    """Did it answer in text, to its end, and refuse nothing?"""
    if reading.outcome not in ENDED or not is_legible(reading):
        return False
    lives = expected(reading)
    refuses = any(word(choice.refusal) for life in lives for _, choice in life.pieces)
    return not refuses and any(life.text and finish_of(life) in _WHOLE for life in lives)


def _first(trial: Trial, role: str) -> Reading | None:
    return next(iter(trial.readings.get(role, ())), None)


def _finding(reading: Reading, call: _Made, rule: str, said: str, role: str = "stream") -> Finding:
    if call.chunk is None:
        return at_body(reading, 0, rule, said)
    return replace(at_chunk(reading, call.chunk, rule, said), role=role)
