"""What a person is told about one result, before any medium has its say: unescaped strings."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from conformance.baseline import EXCUSING, Standing
from conformance.findings import Finding, Result, Verdict
from conformance.report.escape import excerpt
from conformance.report.model import Report
from conformance.specs import Case

_ATTENTION = (
    Verdict.FAIL, Verdict.INCONSISTENT, Verdict.HARNESS_ERROR, Verdict.NON_STRICT, Verdict.INFO,
    Verdict.BLOCKED, Verdict.UNSUPPORTED, Verdict.INCONCLUSIVE, Verdict.PASS,
)  # fmt: skip
MOST_FINDINGS = 3  # of one result; the JSON report has all of them


@dataclass(frozen=True, slots=True)
class Context:
    """What a report needs beside the results.

    `again` is the command line that made the report, without selections; a failure adds its own.
    `captures` is the folder in which its dossiers are kept, None where they are not.
    """

    cases: Mapping[str, Case]
    again: tuple[str, ...] = ()
    captures: str | None = None


def place(finding: Finding) -> str:
    """`byte 17, event 2 of stream` as far as it is known."""
    parts = [] if finding.offset is None else [f"byte {finding.offset}"]
    parts += [] if finding.event is None else [f"event {finding.event}"]
    take = f" #{finding.take + 1}" if finding.take else ""
    return f"{', '.join(parts)} of {finding.role}{take}" if parts else f"{finding.role}{take}"


def shown_findings(result: Result) -> tuple[tuple[Finding, ...], int]:
    """The findings worth printing, and how many are left out."""
    kept = result.findings[:MOST_FINDINGS]
    return kept, len(result.findings) - len(kept)


def bytes_of(finding: Finding) -> str:
    return excerpt(finding.excerpt)


def sentences(result: Result, context: Context) -> list[str]:
    """Each source as one line: the standard, its section and what it says."""
    case = context.cases.get(result.id)
    lines = []
    for source in case.sources if case else ():
        said = f": “{source.quote}”" if source.quote else ""
        lines.append(f"{source.standard} {source.section}{said}")
    return lines


def harms(result: Result, context: Context) -> list[str]:
    """The clients that break, each with how where the case says it."""
    case = context.cases.get(result.id)
    known = {harm.client: harm.how for harm in (case.harms if case else ())}
    named = dict.fromkeys(client for each in result.findings for client in each.harms)
    return [f"{name} ({known[name]})" if name in known else name for name in named]


def advice(result: Result, context: Context) -> str | None:
    case = context.cases.get(result.id)
    return case.advice if case else None


def dossiers(result: Result) -> list[str]:
    return list(dict.fromkeys(each.dossier for each in result.findings if each.dossier))


def command(result: Result, context: Context) -> str | None:
    """The shell line that runs this check again."""
    if not context.again:
        return None
    return shlex.join([*context.again, "--select", result.id])


def replay(result: Result, context: Context) -> str | None:
    """The shell line that sends again what the first dossier recorded."""
    names = dossiers(result)
    if context.captures is None or not names:
        return None
    kept = names[0] if names[0].endswith(".jsonl") else f"{context.captures}/{names[0]}.jsonl"
    return shlex.join(["conformance", "replay", f"{kept}#{result.id}"])


def summary_line(counts: Mapping[str, int], judged: str) -> str:
    """`3 pass, 1 fail` with what was judged before it; verdicts that nothing has are left out."""
    parts = [f"{count} {verdict}" for verdict, count in counts.items() if count]
    return f"{judged}: {', '.join(parts) or 'nothing was checked'}"


def by_reason(results: Sequence[Result]) -> dict[str, list[str]]:
    """`verdict` or `verdict (reason)` → ids with it; what needs attention first, passes last."""
    groups: dict[str, list[str]] = {}
    for each in sorted(results, key=lambda each: _ATTENTION.index(each.verdict)):
        plain = each.findings or each.verdict is Verdict.PASS or not each.reason
        head = each.verdict.value if plain else f"{each.verdict.value} ({each.reason})"
        groups.setdefault(head, []).append(each.id)
    return groups


def baseline_lines(report: Report) -> list[str]:
    """One line for the baseline as a whole, then one for each entry; nothing without one."""
    if report.baseline is None or not report.baseline.standings:
        return []
    standings = report.baseline.standings
    counts = Counter(each.state.value for each in standings)
    told = ", ".join(f"{count} {state}" for state, count in counts.items())
    return [f"baseline {report.baseline.file}: {told}", *map(_standing, standings)]


def _standing(standing: Standing) -> str:
    entry = standing.entry
    until = f"until {entry.until}" if entry.until else None
    tail = ", ".join(part for part in (entry.reason, entry.issue, until) if part)
    return f"{standing.state.value} {entry.name}: {tail}"


def excuse(result: Result, report: Report) -> str | None:
    """Why the result fails and yet does not gate."""
    for standing in report.baseline.standings if report.baseline else ():
        entry = standing.entry
        if standing.state in EXCUSING and (entry.check, entry.api) == (result.id, result.api):
            return f"{standing.state.value}: {entry.reason}"
    return None
