"""A run as its reports tell it: everything in one frozen record, and the exit code. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from conformance.capture import Json
from loadgen.asked import Lengths, lengths
from loadgen.bounds import is_by_reads
from loadgen.crew import Crew
from loadgen.crosstalk import Solo
from loadgen.looking import Tally
from loadgen.measure import Row
from loadgen.outcome import OURS, Fate
from loadgen.recovered import Recovery
from loadgen.server_metrics import Served
from loadgen.slo import Judged, Met, Slo
from loadgen.strata import Stratum, strata
from loadgen.summary import Summary, Window, summarise
from loadgen.trust import REASONS, Doubt, doubts
from loadgen.verdict import judged_slos

INTERRUPTED = Doubt("interrupted", REASONS["interrupted"])


@dataclass(frozen=True, slots=True)
class Target:
    """Who was asked, as far as a report may show it."""

    url: str
    api: str
    model: str


@dataclass(frozen=True, slots=True)
class Failure:
    """Requests that failed alike, and what the first of them was told."""

    fate: Fate
    status: int | None
    detail: str | None
    count: int
    told: bytes


@dataclass(frozen=True, slots=True)
class Result:
    """One run. `failed`: failures and broken streams among all requests that were sent.

    `complete`: played to its end, and all of it is known. `crew`: who played it, None: one process.
    `selftest`: what `selftest_record.quoted` said of the machine that it ran on.
    """

    target: Target
    load: Mapping[str, Json]
    complete: bool
    rows: tuple[Row, ...]
    summary: Summary
    judged: tuple[Judged, ...]
    doubts: tuple[Doubt, ...]
    failures: tuple[Failure, ...]
    tally: Tally
    gates: tuple[str, ...]
    failed: int
    too_many: bool  # more failures than allowed
    allowed: str
    recovery: Recovery | None = None
    solo: Solo | None = None
    served: Served | None = None
    selftest: Json = None
    crew: Crew | None = None

    @property
    def measured(self) -> tuple[Row, ...]:
        """The rows of the window."""
        return tuple(row for row in self.rows if self.summary.window.holds(row.intended))

    @property
    def strata(self) -> tuple[Stratum, ...]:
        """Kinds of requests side by side, where there are several."""
        return strata(self.rows, self.measured)

    @property
    def lengths(self) -> Lengths | None:
        """How true the prompts' lengths came out."""
        return lengths(self.measured)

    @property
    def valid(self) -> bool:
        return not self.doubts

    @property
    def exit(self) -> int:
        """3: not valid. 1: an objective missed, too many failures, not recovered. 0: none."""
        if self.doubts:
            return 3
        lost = self.recovery is not None and self.recovery.recovered is False
        return int(self.too_many or lost or any(each.met is Met.NO for each in self.judged))


def exit_of(results: Iterable[Result]) -> int:
    """Of several runs: the first that applies to any."""
    codes = {result.exit for result in results}
    return next(code for code in (3, 1, 0) if code in codes)


@dataclass(frozen=True, slots=True)
class Ran:
    """What the command hands over once everything was sent and looked at.

    `lags`: of the worker whose timer woke latest, where there are several.
    """

    target: Target
    load: Mapping[str, Json]
    rows: Sequence[Row]
    tally: Tally
    gates: tuple[str, ...]
    window: Window
    lags: Sequence[float]
    complete: bool
    steady: bool
    recovery: Recovery | None = None
    solo: Solo | None = None
    served: Served | None = None
    selftest: Json = None
    crew: Crew | None = None


def result_of(ran: Ran, slos: Sequence[Slo], most: int, allowed: str) -> Result:
    """`most`: requests that may fail; `allowed`: the same as the user wrote it."""
    broken = frozenset(ran.tally.broken)
    summary = summarise(ran.rows, ran.window, slos, broken, is_by_reads=is_by_reads(ran.load))
    measured = [row for row in ran.rows if ran.window.holds(row.intended)]
    judged = judged_slos(slos, measured, summary, broken)
    found = doubts(measured, ran.lags, judged, steady=ran.steady)
    lost = () if ran.crew is None else ran.crew.doubts
    interrupted = () if ran.complete else (INTERRUPTED,)
    failed = sum(is_failed(row, broken) for row in ran.rows)
    return Result(
        target=ran.target,
        load=ran.load,
        complete=ran.complete and not lost,
        rows=tuple(ran.rows),
        summary=summary,
        judged=judged,
        doubts=(*found, *lost, *interrupted),
        failures=tuple(failures(ran.rows)),
        tally=ran.tally,
        gates=ran.gates,
        failed=failed,
        too_many=failed > most,
        allowed=allowed,
        recovery=ran.recovery,
        solo=ran.solo,
        served=ran.served,
        selftest=ran.selftest,
        crew=ran.crew,
    )


def is_failed(row: Row, broken: frozenset[int]) -> bool:
    """Was it sent, and not answered as it should be? What we took back failed nobody."""
    if row.fate in OURS or not row.was_sent:
        return False
    return not row.success or row.index in broken


def failures(rows: Sequence[Row]) -> list[Failure]:
    """Alike: same fate, status and end. The most frequent first."""
    lost = [row for row in rows if row.was_sent and not row.success and row.fate not in OURS]
    kinds = Counter((row.fate, row.status, row.detail) for row in lost)
    first = {(row.fate, row.status, row.detail): row.told for row in reversed(lost)}
    return [Failure(*kind, count, first[kind]) for kind, count in kinds.most_common()]
