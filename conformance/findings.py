"""Findings and verdicts: what a check says about a record, and what the record's verdict is."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Level(Enum):
    """RFC 2119's words as this project uses them; the order is severity, worst first."""

    MUST = "must"
    SHOULD = "should"
    MAY = "may"


class Verdict(Enum):
    """Exactly one per selected check and API."""

    PASS = "pass"
    NON_STRICT = "non-strict"  # only sentences of level should are broken
    FAIL = "fail"  # a must is broken
    INFO = "info"  # worth knowing, never gates
    UNSUPPORTED = "unsupported"  # an honest 4xx, or declared off
    INCONCLUSIVE = "inconclusive"
    INCONSISTENT = "inconsistent"  # equal trials disagree
    BLOCKED = "blocked"
    HARNESS_ERROR = "harness-error"


# The closed list of reasons for INCONCLUSIVE. "not-recorded": the record lacks what the rule needs
# (no framing, no times, no plain text); "not-seen": nothing of the kind occurred.
REASONS = (
    "mat", "det", "fast", "oracle", "burst", "reason", "rate", "net", "proxy", "resume", "budget",
    "hook", "not-recorded", "not-seen",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Finding:
    """One broken sentence at one place.

    `offset` counts bytes in `Capture.received` of the capture that `role` and `take` name (None: no
    place), `event` is the ordinal of the SSE event (0 first). `level` None means the case's own.
    `harms` names clients known to break on exactly this. `dossier` is filled in by the judge.
    """

    rule: str
    message: str
    offset: int | None = None
    event: int | None = None
    excerpt: bytes = b""
    level: Level | None = None
    harms: tuple[str, ...] = ()
    role: str = "stream"
    take: int = 0
    dossier: str = ""


@dataclass(frozen=True, slots=True)
class Abstain:
    """A check's word that it could not decide: `reason` is a member of REASONS."""

    reason: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Result:
    """The verdict of one check on one API over all its trials."""

    id: str
    title: str
    level: Level  # the worst level among the findings, else the case's own
    gate: str
    api: str | None
    rules: tuple[str, ...]
    verdict: Verdict
    reason: str | None = None
    trials: tuple[Verdict, ...] = ()
    findings: tuple[Finding, ...] = ()


def fails(result: Result, strict: bool = False) -> bool:
    """Does this result turn the exit code red by itself, a baseline apart."""
    if result.verdict is Verdict.FAIL:
        return True
    if result.verdict is Verdict.INCONSISTENT:
        return result.level is Level.MUST or (strict and result.level is Level.SHOULD)
    return strict and result.verdict is Verdict.NON_STRICT
