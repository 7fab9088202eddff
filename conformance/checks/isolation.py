"""Isolation: what one request is, does or suffers changes nothing in another (rules I).

A word that was given to one request alone stands in another's answer, or it does not: that needs
no known model. Roles are those of the scenarios `crowd` and `invalid`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from conformance import canaries
from conformance.capture import How
from conformance.checks import Findings, Trial
from conformance.checks.fin import unlike_limit
from conformance.checks.live import ENDED, chunks, finish_of
from conformance.checks.mistakes import BUSY
from conformance.checks.place import at_chunk
from conformance.checks.spelling import spelled
from conformance.checks.stop import stop_strings
from conformance.chunks import Choice, Chunk, Maybe
from conformance.findings import Abstain, Finding
from conformance.lifecycle import ChoiceLife, Outcome
from conformance.reading import Form, Reading

STAYED = ("canary", "limit", "stop")
_FAILED = (
    Outcome.ERROR_BEFORE_TOKEN, Outcome.ERROR_AFTER_TOKEN, Outcome.TRUNCATED, Outcome.STALLED,
    Outcome.EMPTY,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class One:
    """One stream of the crowd, and the words that its own request holds."""

    role: str
    take: int
    reading: Reading
    own: frozenset[str]

    def finding(self, rule: str, said: str, chunk: Chunk | None = None) -> Finding:
        if chunk is None:
            return Finding(rule, said, role=self.role, take=self.take)
        found = at_chunk(self.reading, chunk, rule, said)
        return Finding(rule, said, found.offset, found.event, found.excerpt, role=self.role,
                       take=self.take)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Leak:
    """Six letters or more of a word that is not the request's own."""

    word: str
    channel: str
    chunk: Chunk


def crowd(trial: Trial, *roles: str) -> list[One]:
    """The streams in these roles."""
    return [
        One(role, take, reading, frozenset(_own(reading, _words(trial))))
        for role in roles
        for take, reading in enumerate(trial.readings.get(role, ()))
    ]


def _words(trial: Trial) -> tuple[str, ...]:
    listed = trial.dossier.picked.get("words")
    return tuple(str(word) for word in listed) if isinstance(listed, list) else ()


def _own(reading: Reading, words: tuple[str, ...]) -> Iterator[str]:
    asked = json.dumps(dict(reading.request)) if reading.request else ""
    return (word for word in words if word in asked)


def leaks(one: One, words: tuple[str, ...]) -> Iterator[Leak]:
    """Foreign words in whatever the answer says: text, reasoning, tool arguments, logprobs."""
    foreign = [word for word in words if word not in one.own]
    for life in one.reading.life.choices if one.reading.life else ():
        for channel, parts in _channels(life):
            whole = "".join(text for _, text in parts)
            for word, at in canaries.places(whole, foreign).items():
                yield Leak(word, channel, one.reading.chunks[_chunk_of(parts, at)])


def _channels(life: ChoiceLife) -> Iterator[tuple[str, list[tuple[int, str]]]]:
    """Name of a channel → its pieces: (index of the chunk, text)."""
    pieces = life.pieces
    yield "text", _texts((at, choice.content) for at, choice in pieces)
    yield "reasoning", _texts((at, choice.reasoning) for at, choice in pieces)
    yield "refusal", _texts((at, choice.refusal) for at, choice in pieces)
    yield "logprobs", [(at, _entries(choice)) for at, choice in pieces]
    for call in life.calls:
        yield "tool arguments", _texts((at, tool.arguments) for at, tool in call.fragments)


def _texts(found: Iterable[tuple[int, Maybe]]) -> list[tuple[int, str]]:
    return [(at, text) for at, text in found if isinstance(text, str)]


def _entries(choice: Choice) -> str:
    return (spelled(choice) or b"").decode("utf-8", "replace")


def _chunk_of(parts: list[tuple[int, str]], position: int) -> int:
    for at, text in parts:
        position -= len(text)
        if position < 0:
            return at
    return parts[-1][0]


def _doubts(ones: list[One]) -> Iterator[Abstain]:
    """Why these streams, leaks apart, prove nothing: only one that repeats its word can leak."""
    busy = sorted({str(one.reading.status) for one in ones if one.reading.status in BUSY})
    if busy:
        yield Abstain("rate", f"status {', '.join(busy)}")
    said = sum(any(canaries.places(text, sorted(one.own)) for text in _said(one)) for one in ones)
    if 2 * said < len(ones) or not ones:
        yield Abstain("mat", f"{said} of {len(ones)} answers hold the word they were to repeat")


def _said(one: One) -> Iterator[str]:
    """Everything the answer says, channel by channel."""
    for life in one.reading.life.choices if one.reading.life else ():
        for _, parts in _channels(life):
            yield "".join(text for _, text in parts)


def isolation_canary(trial: Trial) -> Findings:
    """I01: a word appears in the answer of the request that holds it, and in no other."""
    everyone, words = crowd(trial, *STAYED, "left"), _words(trial)
    staying = [one for one in everyone if one.role == "canary"]
    mine = {word for one in everyone if one.role != "left" for word in one.own}
    if not staying:
        yield Abstain("not-seen")
        return
    for one in everyone:
        for leak in leaks(one, words):
            if leak.word in mine:
                said = f"{leak.channel} holds {leak.word!r}, which another request alone was given"
                yield one.finding("I01", said, leak.chunk)
    yield from _doubts(staying)


def isolation_aborts(trial: Trial) -> Findings:
    """I02, A05: who hangs up takes nobody along, and leaves nothing behind."""
    left = crowd(trial, "left")
    gone = [one for one in left if one.reading.capture.end.how is How.LEFT]
    if not gone:
        busy = any(one.reading.status in BUSY for one in left)
        yield Abstain("rate") if busy else Abstain("fast", "no stream was left before its end")
        return
    words = tuple(word for one in gone for word in sorted(one.own))
    staying = crowd(trial, *STAYED)
    for one in staying:
        for leak in leaks(one, words):
            said = f"{leak.channel} holds {leak.word!r}, the word of a stream that was left"
            yield one.finding("I02", said, leak.chunk)
        if one.reading.outcome in _FAILED and not _is_on_trial(one.reading):
            outcome = one.reading.outcome.value if one.reading.outcome else ""
            yield one.finding("I02", f"a neighbour hung up, and this stream ended as {outcome}")
        elif "abort" in _reasons(one.reading):
            yield one.finding("I02", "a stream that nobody left has the finish reason 'abort'")
    yield from _doubts([one for one in staying if one.role == "canary"])


def _is_on_trial(reading: Reading) -> bool:
    """Does it have a `stop` that names no string? That may be what it failed for (stop.none)."""
    return "stop" in (reading.request or {}) and not stop_strings(reading)


def _reasons(reading: Reading) -> tuple[object, ...]:
    return tuple(finish_of(life) for life in reading.life.choices) if reading.life else ()


def isolation_limits(trial: Trial) -> Findings:
    """I03: each of several streams with limits of their own ends at its own."""
    verdicts = [(one, unlike_limit(one.reading)) for one in crowd(trial, "limit")]
    for one, found in verdicts:
        if isinstance(found, str):
            yield one.finding("I03", found)
    silent = [found for _, found in verdicts if isinstance(found, Abstain)]
    yield from (each for each in silent if each.reason == "rate")
    if len(silent) == len(verdicts):
        yield silent[0] if silent else Abstain("not-seen")


def isolation_stop(trial: Trial) -> Findings:
    """I04: a stream ends at its own stop string and not at a neighbour's."""
    control = next((r.text for r in trial.readings.get("control", ()) if _is_whole(r)), None)
    ones = [one for one in crowd(trial, "stop") if one.reading.asked("stop")]
    if not ones or control is None:
        yield Abstain("mat", "no text to choose stop strings from")
        return
    for one in ones:
        verdict = _stopped(one, control, trial)
        if verdict is not None:
            yield verdict


def _stopped(one: One, control: str, trial: Trial) -> Finding | Abstain | None:
    """None: the text is the control's up to the stop string."""
    reading = one.reading
    if not _is_whole(reading):
        return Abstain("rate" if reading.status in BUSY else "mat", "no whole answer")
    (stop,) = _strings(reading.asked("stop")) or ("",)
    wanted, text = control[: control.find(stop)], reading.text
    if text == wanted:
        return None
    if not wanted.startswith(text):
        same = text.startswith(wanted) and stop in text
        said = f"the stop string {stop!r} did not end the text, as it should alone"
        return one.finding("I04", said) if same else Abstain("det", "it left its control earlier")
    others = [s for s in _strings(trial.dossier.picked.get("stops")) if s != stop]
    # In it as well as before it: a neighbour's string was not held back here.
    foreign = next((s for s in others if 0 <= len(text) - control.find(s) <= len(s)), None)
    if foreign is None or foreign not in control:
        return Abstain("det", "the text ended before the place under test")
    return one.finding("I04", f"the text ends at a neighbour's stop string, {foreign!r}")


def _strings(value: object) -> tuple[str, ...]:
    return tuple(each for each in value if isinstance(each, str)) if isinstance(value, list) else ()


def _is_whole(reading: Reading) -> bool:
    return reading.form is Form.STREAM and reading.outcome in ENDED


def isolation_ids(trial: Trial) -> Findings:
    """I06: "A unique identifier for the chat completion."."""
    seen: dict[str, str] = {}
    for one in crowd(trial, "control", *STAYED, "left"):
        found = [(c, c.get("id")) for c in chunks(one.reading)]
        chunk, name = next(((c, i) for c, i in found if isinstance(i, str) and i), (None, ""))
        if chunk is None or not isinstance(name, str):
            continue
        if name in seen:
            yield one.finding("I06", f"the id {name!r:.60} is also that of {seen[name]}", chunk)
        seen.setdefault(name, f"{one.role} {one.take}")
    if len(seen) < 2:
        yield Abstain("not-seen", "fewer than two answers with an id")


def isolation_invalid_neighbour(trial: Trial) -> Findings:
    """I09: a request that is refused is refused alone."""
    ones, words = crowd(trial, "neighbour"), _words(trial)
    if not ones:
        yield Abstain("not-seen")
        return
    for one in ones:
        reading = one.reading
        if reading.outcome in _FAILED:
            outcome = reading.outcome.value if reading.outcome else ""
            yield one.finding("I09", f"beside refused requests a good one ended as {outcome}")
        elif reading.status is not None and reading.status >= 400 and reading.status not in BUSY:
            yield one.finding("I09", f"beside refused requests a good one is a {reading.status}")
        for leak in leaks(one, words):
            said = f"{leak.channel} holds {leak.word!r}, which another request alone was given"
            yield one.finding("I09", said, leak.chunk)
    yield from _doubts(ones)


def isolation_keep_alive(trial: Trial) -> Findings:
    """I11: after a refusal the next answer on the connection is its own."""
    ones, words = crowd(trial, "recovery"), _words(trial)
    if trial.dossier.picked.get("reused") is not True or not ones:
        yield Abstain("not-seen", "the connection was closed after the refusal")
        return
    found = [(one, leak) for one in ones for leak in leaks(one, words)]
    for one, leak in found:
        said = f"on a connection used before, {leak.channel} holds {leak.word!r} of another request"
        yield one.finding("I11", said, leak.chunk)
    yield from _doubts(ones)
