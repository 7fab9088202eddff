"""The report for a terminal: what failed with its bytes first, then every id, then one line."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from tabulate import tabulate

from conformance.findings import Finding, Result, Verdict
from conformance.report import story
from conformance.report.escape import terminal
from conformance.report.model import Report, conclusive_percent, summary
from conformance.specs import GATES, Case

WIDTH = 100


def render(report: Report, context: story.Context, judged: str) -> str:
    """`judged` names what was judged, e.g. `3 records`. Ends with the summary line."""
    told = [each for each in report.results if each.findings or report.gates(each)]
    told.sort(key=lambda each: not report.gates(each))
    lines: list[str] = []
    for result in told:
        lines += [*_result(result, report, context), ""]
    lines += [_table(report.results), ""]
    for head, ids in story.by_reason(report.results).items():
        lines += _wrapped(f"{terminal(head)}: ", " ".join(dict.fromkeys(ids)))
    for line in story.baseline_lines(report):
        lines += _wrapped("", line)
    lines += ["", *(f"problem: {terminal(problem)}" for problem in report.problems)]
    return "\n".join([*lines, summary_line(report, judged)]) + "\n"


def summary_line(report: Report, judged: str) -> str:
    """What was judged, the count of each verdict, the exit code."""
    counts = story.summary_line(summary(report.results), terminal(judged))
    share = conclusive_percent(report.results)
    decided = "" if share is None else f" · {share:.0f} % of the musts conclusive"
    return f"{counts}{decided} · exit {report.exit}"


def _result(result: Result, report: Report, context: story.Context) -> list[str]:
    word = "FAIL" if report.gates(result) else result.verdict.value
    excused = story.excuse(result, report) if report.excuses(result) else None
    tags = [result.level.value, result.gate, *([result.api] if result.api else []), *result.rules]
    share = f"  {terminal(result.reason)}" if result.reason else ""  # n of m captures
    lines = [f"{word}  {terminal(result.id)}  [{' · '.join(map(terminal, tags))}]{share}"]
    lines += _wrapped("  ", result.title)
    lines += _wrapped("  baseline ", excused) if excused else []
    shown, left_out = story.shown_findings(result)
    for finding in shown:
        lines += _finding(finding)
    if left_out:
        lines.append(f"  and {left_out} more places")
    for sentence in story.sentences(result, context):
        lines += _wrapped("  source   ", sentence)
    if broken := story.harms(result, context):
        lines += _wrapped("  breaks   ", ", ".join(broken))
    if advice := story.advice(result, context):
        lines += _wrapped("  advice   ", advice)
    lines += [f"  dossier  {terminal(name)}" for name in story.dossiers(result)[:3]]
    if again := story.command(result, context):
        lines.append(f"  again    {terminal(again)}")
    if replay := story.replay(result, context):
        lines.append(f"  replay   {terminal(replay)}")
    return lines


def _finding(finding: Finding) -> list[str]:
    lines = _wrapped("  found    ", f"{finding.message} ({story.place(finding)})")
    if finding.excerpt:
        lines.append(f"  bytes    {terminal(story.bytes_of(finding))}")
    return lines


def _wrapped(head: str, text: str) -> list[str]:
    body = textwrap.wrap(
        terminal(text),
        WIDTH,
        initial_indent=head,
        subsequent_indent=" " * min(len(head), 11),
        break_on_hyphens=False,
        break_long_words=False,
    )
    return body or [head.rstrip()]


def _table(results: Sequence[Result]) -> str:
    columns = [verdict for verdict in Verdict if any(r.verdict is verdict for r in results)]
    rows = []
    for gate in GATES:
        mine = [each for each in results if each.gate == gate]
        if mine:
            rows.append([gate, *(sum(r.verdict is each for r in mine) or "" for each in columns)])
    return tabulate(rows, headers=["gate", *(each.value for each in columns)])


def case_table(cases: Sequence[Case], form: str = "simple") -> str:
    """`conformance list`; `form` is a table format of tabulate."""
    rows = [
        [case.id, case.level.value, case.gate, ", ".join(case.rules), case.title] for case in cases
    ]
    return tabulate(
        rows,
        headers=["id", "level", "gate", "rules", "title"],
        tablefmt=form,
        disable_numparse=True,
    )
