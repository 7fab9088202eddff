"""Stop strings: the text ends before the first of them (rules S02, S03)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from conformance.checks import Findings
from conformance.checks.live import ENDED, expected, finish_of
from conformance.checks.place import at_chunk
from conformance.findings import Abstain, Finding
from conformance.lifecycle import ChoiceLife
from conformance.reading import Reading

# Characters of a stop string at the end of a text, from which on chance is out of the question.
_LEAST_SYMBOL, _LEAST_WORD, _LEAST_REST = 3, 4, 3


@dataclass(frozen=True, slots=True)
class Hit:
    """The first stop string in a choice's own text: characters [start, end) of its content."""

    life: ChoiceLife
    stop: str
    start: int
    end: int


def stop_strings(reading: Reading) -> tuple[str, ...]:
    """The stop strings that the request names; empty ones stop nothing."""
    value = reading.asked("stop")
    listed = value if isinstance(value, list) else [value]
    return tuple(s for s in listed if isinstance(s, str) and s)


def own_start(reading: Reading, life: ChoiceLife) -> int:
    """Where generated text begins: behind the prompt, if the request has it echoed."""
    prompt = prompt_of(reading, life.index) if reading.asked("echo") is True else None
    return len(prompt) if prompt and life.text.startswith(prompt) else 0


def prompt_of(reading: Reading, index: int) -> str | None:
    """The prompt that a completion's choice belongs to; None: unknown, or given as tokens."""
    prompt, n = reading.asked("prompt"), reading.asked("n")
    if isinstance(prompt, list) and all(isinstance(p, str) for p in prompt):
        at = index // (n if type(n) is int and n > 0 else 1)
        prompt = prompt[at] if 0 <= at < len(prompt) else None
    return prompt if isinstance(prompt, str) else None


def hits(reading: Reading) -> Iterator[Hit]:
    """The earliest stop string of each choice that has one."""
    stops = stop_strings(reading)
    for life in expected(reading):
        text, begin = life.text, own_start(reading, life)
        found = [(text.find(stop, begin), stop) for stop in stops]
        found = [(at, stop) for at, stop in found if at >= 0]
        if found:
            start, stop = min(found)
            yield Hit(life, stop, start, start + len(stop))


def _ignored(hit: Hit) -> bool:
    """Was the string passed over, not merely sent, with what its delta held, before the end?"""
    last = max((at for at, choice in hit.life.pieces if choice.text), default=0)
    return finish_of(hit.life) == "length" or last > chunk_at(hit.life, hit.end - 1)


def stop_included(reading: Reading) -> Findings:
    """S02: "The returned text will not contain the stop sequence."."""
    if not stop_strings(reading):
        yield Abstain("not-seen", "no stop string was asked for")
        return
    if reading.asked("include_stop_str_in_output") is True:
        yield Abstain("not-seen", "the request wants it included")
        return
    for hit in hits(reading):
        if not _ignored(hit):
            more = len(hit.life.text) - hit.end
            then = f"{more} characters follow it in its delta" if more else "the text ends with it"
            said = f"the text contains the stop string {hit.stop!r:.60}: {then}"
            yield _finding(reading, hit.life, hit.start, "S02", said)
            return
    yield from _leaks(reading)


def _leaks(reading: Reading) -> Iterator[Finding | Abstain]:
    """S04: the beginning of a stop string, sent before the rest of it stopped the generation.

    Without the plain answer only what no text ends with by itself is sure to be one.
    """
    for life in expected(reading):
        if finish_of(life) != "stop" or reading.outcome not in ENDED:
            continue
        tail = leaked_tail(life.text, stop_strings(reading))
        if not tail or (reading.control and life.text in reading.control.texts):
            continue
        if _unnatural(tail, stop_strings(reading)):
            said = f"the text ends with the beginning of a stop string: {tail!r:.60}"
            yield _finding(reading, life, len(life.text) - len(tail), "S04", said)
            return
        yield Abstain("det", f"the text may end with {tail!r:.40} by itself")


def _unnatural(tail: str, stops: tuple[str, ...]) -> bool:
    """Does no text end like this by itself: with a symbol cut off, or well inside a word?"""
    stop = next(stop for stop in stops if stop.startswith(tail))
    if len(tail) >= _LEAST_SYMBOL and not any(c.isalnum() or c.isspace() for c in tail[:2]):
        return True
    last, rest = tail[-1], stop[len(tail) :]
    inside = last.isalpha() and len(rest) >= _LEAST_REST and rest[:_LEAST_REST].isalpha()
    return inside and len(tail) >= _LEAST_WORD


def leaked_tail(text: str, stops: tuple[str, ...]) -> str:
    """The longest proper beginning of a stop string with which the text ends."""
    tails = [
        stop[:size]
        for stop in stops
        for size in range(1, min(len(stop), 4096))
        if text.endswith(stop[:size])
    ]
    return max(tails, key=len, default="")


def stop_ignored(reading: Reading) -> Findings:
    """S03: generation ends at the first stop string."""
    if not stop_strings(reading):
        yield Abstain("not-seen", "no stop string was asked for")
        return
    for hit in hits(reading):
        if _ignored(hit):
            more = len(hit.life.text) - hit.end
            reason = finish_of(hit.life)
            said = f"{more} characters follow the stop string {hit.stop!r:.60} (finish {reason!r})"
            yield _finding(reading, hit.life, hit.start, "S03", said)
            return
    if not any(finish_of(life) == "stop" for life in expected(reading)):
        yield Abstain("mat", "no answer was stopped")


def _finding(reading: Reading, life: ChoiceLife, start: int, rule: str, said: str) -> Finding:
    return at_chunk(reading, reading.chunks[chunk_at(life, start)], rule, said)


def chunk_at(life: ChoiceLife, position: int) -> int:
    """Index of the chunk that brings the character at `position` of the content."""
    for at, choice in life.pieces:
        position -= len(choice.text)
        if position < 0:
            return at
    return life.pieces[-1][0]
