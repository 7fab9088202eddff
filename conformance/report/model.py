"""Report: what was judged, with which verdicts, and the exit code that follows from them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from importlib.metadata import PackageNotFoundError, version

from conformance.baseline import Baseline, Judged, hold
from conformance.capture import Json
from conformance.findings import Finding, Level, Result, Verdict, fails

SCHEMA = 1
TOOL = "streamproof"

_UNTESTED = "not tested: fewer than half of the exchanges got an answer to judge"

# A must check is conclusive when the record decided it, whichever way.
CONCLUSIVE = frozenset(
    {Verdict.PASS, Verdict.NON_STRICT, Verdict.FAIL, Verdict.INFO, Verdict.INCONSISTENT}
)


def tool_version() -> str:
    try:
        return version(TOOL)
    except PackageNotFoundError:  # run from a checkout that was never installed
        return "unknown"


@dataclass(frozen=True, slots=True)
class Gating:
    """What the caller lets gate. `required` are the capabilities that the profile demands.

    `baseline` needs `today`: what has expired is decided by the caller's day.
    """

    strict: bool = False
    min_conclusive: float = 0.0  # percent of the must checks that were not declared off
    required: tuple[str, ...] = ()
    baseline: Baseline | None = None
    today: date | None = None


@dataclass(frozen=True, slots=True)
class Report:
    """One judgement. `problems` says, one line each, why `exit` is not 0 beside the failures."""

    results: tuple[Result, ...]
    target: Mapping[str, Json] = field(default_factory=dict)
    profile: str | None = None
    seed: int | None = None
    complete: bool = True
    exit: int = 0
    strict: bool = False
    problems: tuple[str, ...] = ()
    sample: str | None = None  # id within a JSON-lines file
    version: str = field(default_factory=tool_version)
    baseline: Judged | None = None  # None: judged without one

    def gates(self, result: Result) -> bool:
        """Does this result turn the exit code red?"""
        return fails(result, self.strict) and not self.excuses(result)

    def excuses(self, result: Result) -> bool:
        """Does it fail, and the baseline knows it?"""
        return self.baseline is not None and self.baseline.excuses(result)


def make_report(
    results: Sequence[Result],
    gating: Gating,
    *,
    target: Mapping[str, Json],
    profile: str | None = None,
    seed: int | None = None,
    complete: bool = True,
    tested: bool = True,
    instead: str = "",
    needs: Mapping[str, Sequence[str]] | None = None,
    sample: str | None = None,
) -> Report:
    """Order the results, and decide the exit code.

    `tested` is False when fewer than half of the exchanges got an answer that can be judged;
    `instead` says what most of the others got.
    `needs` gives the capabilities of each id, for `Gating.required`.
    """
    ordered = tuple(sorted(map(_ordered, results), key=lambda each: (each.id, each.api or "")))
    missing = _missing_capabilities(ordered, gating, needs or {})
    held = _held(ordered, gating)
    untested = None if tested else _UNTESTED + (f"; most others {instead}" if instead else "")
    code, problems = _decide(ordered, gating, complete, untested, missing, held)
    return Report(
        ordered, target, profile, seed, complete, code, gating.strict, problems, sample,
        baseline=held,
    )  # fmt: skip


def _held(results: Sequence[Result], gating: Gating) -> Judged | None:
    if gating.baseline is None:
        return None
    assert gating.today is not None
    return hold(gating.baseline, results, gating.strict, gating.today)


def summary(results: Sequence[Result]) -> dict[str, int]:
    """How many results have each verdict, every verdict named, in the order of the contract."""
    counts = Counter(each.verdict for each in results)
    order = (
        Verdict.PASS, Verdict.FAIL, Verdict.NON_STRICT, Verdict.INFO, Verdict.UNSUPPORTED,
        Verdict.INCONCLUSIVE, Verdict.INCONSISTENT, Verdict.BLOCKED, Verdict.HARNESS_ERROR,
    )  # fmt: skip
    return {verdict.value: counts[verdict] for verdict in order}


def conclusive_percent(results: Sequence[Result]) -> float | None:
    """Share of the must checks that the record decided; None where no must check counts."""
    counted = [
        each
        for each in results
        if each.level is Level.MUST and each.verdict is not Verdict.UNSUPPORTED
    ]
    if not counted:
        return None
    return 100.0 * sum(each.verdict in CONCLUSIVE for each in counted) / len(counted)


def _decide(
    results: Sequence[Result],
    gating: Gating,
    complete: bool,
    untested: str | None,
    missing: Sequence[str],
    held: Judged | None,
) -> tuple[int, tuple[str, ...]]:
    if not complete:
        return 2, ("interrupted before the end",)
    if untested is not None:
        return 2, (untested,)
    red = [each.problem for each in held.standings] if held else []
    problems = [*missing, *(words for words in red if words is not None)]
    share = conclusive_percent(results)
    if share is not None and share < gating.min_conclusive:
        problems.append(
            f"only {share:.0f} % of the must checks were conclusive, "
            f"--min-conclusive asks for {gating.min_conclusive:g} %"
        )
    failed = [each for each in results if fails(each, gating.strict)]
    if problems or any(held is None or not held.excuses(each) for each in failed):
        return 1, tuple(problems)
    if any(each.verdict is Verdict.HARNESS_ERROR for each in results):
        return 2, ("a check of ours broke (harness-error)",)
    return 0, ()


def _missing_capabilities(
    results: Sequence[Result], gating: Gating, needs: Mapping[str, Sequence[str]]
) -> list[str]:
    missing = {
        need
        for each in results
        if each.verdict is Verdict.UNSUPPORTED
        for need in needs.get(each.id, ())
        if need in gating.required
    }
    return [f"the profile requires {need}, which is unsupported" for need in sorted(missing)]


def _ordered(result: Result) -> Result:
    return replace(result, findings=tuple(sorted(result.findings, key=_place)))


def _place(finding: Finding) -> tuple[str, str, int, int, int, str, str]:
    offset = -1 if finding.offset is None else finding.offset
    event = -1 if finding.event is None else finding.event
    return (
        finding.dossier, finding.role, finding.take, offset, event, finding.rule, finding.message
    )  # fmt: skip
