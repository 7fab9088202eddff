"""Many judgements of one exchange each, added up to one result a check and API. Pure, bounded."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from conformance.dossier import CHAT
from conformance.findings import Result, Verdict
from conformance.report.model import CONCLUSIVE
from conformance.specs import Case

MOST_FINDINGS = 50  # kept of one check on one API; all are counted

# The first of these that any exchange had is the verdict of all.
ORDER = (
    Verdict.FAIL, Verdict.INCONSISTENT, Verdict.HARNESS_ERROR, Verdict.NON_STRICT, Verdict.INFO,
    Verdict.PASS, Verdict.BLOCKED, Verdict.UNSUPPORTED, Verdict.INCONCLUSIVE,
)  # fmt: skip


@dataclass(slots=True)
class _Sum:
    worst: Result
    broken: int = 0
    decided: int = 0


@dataclass(slots=True)
class Tally:
    """`add` what each exchange was judged to be, then `results`."""

    _sums: dict[tuple[str, str | None], _Sum] = field(default_factory=dict)

    def add(self, results: Iterable[Result]) -> None:
        for result in results:
            known = self._sums.setdefault(
                (result.id, result.api), _Sum(replace(result, findings=()))
            )
            known.broken += bool(result.findings)
            known.decided += result.verdict in CONCLUSIVE
            room = MOST_FINDINGS - len(known.worst.findings)
            findings = known.worst.findings + result.findings[: max(0, room)]
            worse = ORDER.index(result.verdict) < ORDER.index(known.worst.verdict)
            known.worst = replace(result if worse else known.worst, findings=findings)

    def results(self, cases: Sequence[Case]) -> list[Result]:
        """One for every case on every API that was spoken (chat, if none was)."""
        apis = sorted({api for _, api in self._sums if api}) or [CHAT]
        return [self._of(case, api) for case in cases for api in apis if api in case.api]

    def _of(self, case: Case, api: str) -> Result:
        known = self._sums.get((case.id, api))
        if known is None:
            return Result(
                case.id, case.title, case.level, case.gate, api, case.rules,
                Verdict.INCONCLUSIVE, "not-seen",
            )  # fmt: skip
        if not known.broken:
            return known.worst
        return replace(known.worst, reason=f"{known.broken} of {known.decided}")
