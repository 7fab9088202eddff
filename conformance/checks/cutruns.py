"""The runs of a `stop-cut` dossier: its controls, and each answer under stop strings."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce

from conformance.capture import Json
from conformance.checks import Trial
from conformance.checks.live import ENDED, chunks, expected, finish_of, is_legible
from conformance.checks.stop import stop_strings
from conformance.chunks import member
from conformance.cuts.fates import Fate, common, cut_at, fate
from conformance.findings import Abstain, Finding
from conformance.reading import Form, Reading

RATE = (408, 429)  # and every 5xx: the server was busy, and says nothing about stop strings


@dataclass(frozen=True, slots=True)
class Said:
    """One whole answer: the text of choice 0 and why it ended."""

    text: str
    finish: Json
    pieces: tuple[str, ...]  # one, if it came plain


@dataclass(frozen=True, slots=True)
class Controls:
    """What comes without stop strings. `shared`: characters in which all the texts agree."""

    first: Said
    shared: int
    same: bool  # texts and finish reasons, from the first character to the last


@dataclass(frozen=True, slots=True)
class Run:
    """An answer under stop strings, and what became of its text."""

    role: str
    reading: Reading
    said: Said
    stops: tuple[str, ...]
    cut: tuple[int, int] | None  # of the control's text; None: no stop string stands in it
    fate: Fate
    choice: int = 0

    @property
    def is_exact(self) -> bool:
        """Is it what it ought to be, finish reason included?"""
        return self.fate is Fate.EXACT and (self.cut is None or self.said.finish == "stop")


def said(reading: Reading, index: int = 0) -> Said | None:
    """One choice of a whole answer, None for anything else."""
    if reading.form is Form.PLAIN:
        plain = next((c for c in reading.plain_choices if c.index == index), None)
        if plain is None or not isinstance(plain.finish_reason, str):
            return None
        return Said(plain.text, plain.finish_reason, (plain.text,))
    life = next((life for life in expected(reading) if life.index == index), None)
    if life is None or reading.outcome not in ENDED or not is_legible(reading):
        return None
    if finish_of(life) is None:
        return None
    pieces = tuple(choice.text for _, choice in life.pieces if choice.text)
    return Said("".join(pieces), finish_of(life), pieces)


def is_same(first: Reading, other: Reading) -> bool:
    """Are both whole, of one text, and ended for one reason?"""
    mine, theirs = said(first), said(other)
    return mine is not None and theirs is not None and _all(mine) == _all(theirs)


def _all(whole: Said) -> tuple[str, str]:
    return whole.text, str(whole.finish)


def controls(trial: Trial) -> Controls | Abstain:
    """The controls, or why there are none to go by."""
    readings = trial.readings.get("control", ())
    whole = [each for each in map(said, readings) if each is not None]
    if not readings or said(readings[0]) is None:
        return Abstain("not-seen", "no whole control")
    if not whole[0].text:
        if _thinks(readings[0]):
            return Abstain("reason", "the limit was reached before the answer began")
        return Abstain("mat", "the control has no text")
    if not trial.dossier.picked.get("stops"):
        return Abstain("mat", "the control's text has no place for a stop string")
    # What nearly stops a text and leaves it whole is a control as well.
    near = trial.readings.get("near", ())[:1]
    whole += [each for each in map(said, near) if each is not None and _all(each) == _all(whole[0])]
    if len(whole) < 2:
        return Abstain("det", "no second control to compare with")
    texts = [each.text for each in whole]
    shared = len(reduce(lambda a, b: a[: common(a, b)], texts))
    same = len({_all(each) for each in whole}) == 1
    return Controls(whole[0], shared, same)


def _thinks(reading: Reading) -> bool:
    return any(c.carries for life in expected(reading) for _, c in life.pieces)


def _may_end_thoughts(trial: Trial, stops: tuple[str, ...]) -> bool:
    """Does a control think what would stop it, or is there a thought that nobody is told?"""
    for reading in trial.readings.get("control", ()):
        pieces = [choice for life in expected(reading) for _, choice in life.pieces]
        told = "".join(c.reasoning for c in pieces if isinstance(c.reasoning, str))
        if any(stop in told for stop in stops) or (not told and _hidden(reading)):
            return True
    return False


def _hidden(reading: Reading) -> bool:
    """Do its token counts tell of reasoning?"""
    details = [member(chunk.usage, "completion_tokens_details") for chunk in chunks(reading)]
    counts = [member(each, "reasoning_tokens") for each in details]
    return any(type(count) is int and count > 0 for count in counts)


def run_of(trial: Trial, role: str, index: int = 0, *, elsewhere: bool = False) -> Run | Abstain:
    """The answer of that role (one choice of it), or why nothing can be said about it.

    `elsewhere`: also if its text left the control before the place under test.
    """
    control = controls(trial)
    if isinstance(control, Abstain):
        return control
    reading = next(iter(trial.readings.get(role, ())), None)
    if reading is None:
        return Abstain("mat", "the control's text has no such place")
    whole = said(reading, index)
    if whole is None:
        return _not_whole(reading)
    stops = stop_strings(reading)
    cut = cut_at(control.first.text, stops)
    if not control.same if cut is None else control.shared < cut[1]:
        return Abstain("det", "equal requests without stop strings gave different texts")
    became = fate(control.first.text, whole.text, stops)
    if became is not Fate.EXACT and _may_end_thoughts(trial, stops):
        return Abstain(
            "reason", "a thought may hold the stop string, and what becomes of it is open"
        )
    if became is Fate.ELSEWHERE and not elsewhere:
        return Abstain("det", "the text left its control before the place under test")
    return Run(role, reading, whole, stops, cut, became, index)


def _not_whole(reading: Reading) -> Abstain:
    status = reading.status
    if reading.form is Form.REFUSAL and status is not None:
        busy = status in RATE or status >= 500
        return Abstain("rate" if busy else "not-seen", f"the request was answered {status}")
    return Abstain("not-seen", "the answer is not whole")


def runs(trial: Trial, *roles: str) -> Iterator[Run | Abstain]:
    """Those runs, in this order."""
    return (run_of(trial, role) for role in roles)


def honoured(trial: Trial) -> bool:
    """Does a stop string do anything here at all? Else near misses and parity show nothing."""
    cuts = [run for run in runs(trial, "cut", "several") if isinstance(run, Run)]
    return any(run.fate is not Fate.PASSED for run in cuts)


def finding(run: Run, rule: str, message: str) -> Finding:
    """At the last text of an answer: there it left what it ought to be. No event: all of it."""
    reading = run.reading
    life = next((life for life in expected(reading) if life.index == run.choice), None)
    at = max((at for at, c in life.pieces if c.text), default=None) if life else None
    if at is None:
        return Finding(rule, message, role=run.role)
    event = reading.chunks[at].event
    start = event.data_offset
    excerpt = reading.body[start : min(event.end, start + 120)].rstrip(b"\r\n")
    return Finding(rule, message, reading.place(start), excerpt=excerpt, role=run.role)


def shown(text: str) -> str:
    """A piece of text for a message: escaped, short."""
    return repr(text if len(text) <= 40 else text[:40] + "…")
