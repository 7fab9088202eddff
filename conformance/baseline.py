"""A baseline: failures that are known and do not gate, and what became of each of them. Pure.

An entry names a check on an API, or one rule of it. It excuses a failure until its date is over;
an entry that excuses nothing any more is as red as a new failure, or the file would only grow.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import date
from enum import Enum

from conformance.findings import Finding, Level, Result, Verdict, fails

# Verdicts with which a record decides that the check does not fail.
_SOUND = (Verdict.PASS, Verdict.INFO)


class State(Enum):
    """What a judgement makes of one entry; STALE and EXPIRED are red, the others only listed."""

    EXPECTED = "expected"  # fails as the entry says
    STALE = "stale"  # does not fail any more: remove the entry
    EXPIRED = "expired"  # its date is over, whatever the check says
    FLAKY = "flaky"  # on the flaky list, and fails
    QUIET = "quiet"  # on the flaky list, and does not fail
    OPEN = "open"  # unsupported, inconclusive or blocked: nothing can be said
    ABSENT = "not-selected"


EXCUSING = (State.EXPECTED, State.FLAKY)


@dataclass(frozen=True, slots=True)
class Entry:
    """`rule` None: every failure of the check. `until`: the last day on which it excuses."""

    check: str
    api: str
    reason: str
    rule: str | None = None
    issue: str | None = None
    until: date | None = None

    @property
    def key(self) -> tuple[str, str, str | None]:
        return self.check, self.api, self.rule

    @property
    def name(self) -> str:
        rule = f" {self.rule}" if self.rule else ""
        return f"{self.check}{rule} ({self.api})"


@dataclass(frozen=True, slots=True)
class Baseline:
    """`expected` must fail and `flaky` may; `file` is the name that reports show."""

    expected: tuple[Entry, ...] = ()
    flaky: tuple[Entry, ...] = ()
    file: str = ""


@dataclass(frozen=True, slots=True)
class Standing:
    """One entry after a judgement."""

    entry: Entry
    state: State

    @property
    def problem(self) -> str | None:
        """Why it is red, in one line."""
        if self.state is State.STALE:
            return f"baseline: {self.entry.name} does not fail any more: remove the stale entry"
        if self.state is State.EXPIRED:
            return f"baseline: {self.entry.name} was excused until {self.entry.until}: it expired"
        return None


@dataclass(frozen=True, slots=True)
class Judged:
    """A baseline held against results: every entry's standing, and the results that it excuses."""

    file: str = ""
    standings: tuple[Standing, ...] = ()
    excused: frozenset[tuple[str, str | None]] = field(default_factory=frozenset)

    def excuses(self, result: Result) -> bool:
        return (result.id, result.api) in self.excused


def hold(baseline: Baseline, results: Sequence[Result], strict: bool, today: date) -> Judged:
    """What the results make of each entry, expected ones first, in the file's order."""
    by_key = {(each.id, each.api): each for each in results}
    standings = [
        Standing(entry, _state(entry, by_key.get((entry.check, entry.api)), flaky, strict, today))
        for entries, flaky in ((baseline.expected, False), (baseline.flaky, True))
        for entry in entries
    ]
    excusing = [each.entry for each in standings if each.state in EXCUSING]
    excused = {
        key
        for key, result in by_key.items()
        if fails(result, strict) and _is_covered(result, excusing, strict)
    }
    return Judged(baseline.file, tuple(standings), frozenset(excused))


def _state(entry: Entry, result: Result | None, flaky: bool, strict: bool, today: date) -> State:
    if result is None:
        return State.ABSENT
    if entry.until is not None and entry.until < today:
        return State.EXPIRED
    if fails(result, strict):
        hit = entry.rule is None or entry.rule in gating_rules(result, strict)
        if flaky:
            return State.FLAKY if hit else State.QUIET
        return State.EXPECTED if hit else State.STALE
    if result.verdict in _SOUND:
        return State.QUIET if flaky else State.STALE
    return State.OPEN


def gating_rules(result: Result, strict: bool) -> set[str]:
    """The rules of the findings that make this result fail."""
    return {each.rule for each in _gating(result, strict)}


def _gating(result: Result, strict: bool) -> Iterator[Finding]:
    levels = (Level.MUST, Level.SHOULD) if strict else (Level.MUST,)
    return (each for each in result.findings if (each.level or result.level) in levels)


def _is_covered(result: Result, entries: Sequence[Entry], strict: bool) -> bool:
    """Does an entry, or one for each rule, excuse everything that fails here?"""
    mine = [each for each in entries if (each.check, each.api) == (result.id, result.api)]
    if any(each.rule is None for each in mine):
        return True
    rules = gating_rules(result, strict)
    return bool(rules) and rules <= {each.rule for each in mine}
