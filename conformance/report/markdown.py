"""Markdown for a pull request or a job summary: counts, what failed and why, then every id."""

from __future__ import annotations

from conformance.findings import Result
from conformance.report import story
from conformance.report.escape import markdown, markdown_code
from conformance.report.model import Report, summary


def render(report: Report, context: story.Context) -> str:
    name = f" of {report.sample}" if report.sample else ""
    lines = [f"# Conformance{markdown(name)}: {'failed' if report.exit else 'passed'}", ""]
    counts = summary(report.results)
    lines += [f"{story.summary_line(counts, 'Checks')}. Exit code {report.exit}.", ""]
    lines += [f"- {markdown(problem)}" for problem in report.problems]
    told = [each for each in report.results if each.findings]
    for result in sorted(told, key=lambda each: not report.gates(each)):
        lines += _result(result, report, context)
    lines += _baseline(report)
    lines += ["## Every check", "", "| id | api | level | verdict | reason |", "|" + "---|" * 5]
    lines += [_row(each) for each in report.results]
    return "\n".join(lines) + "\n"


def _row(result: Result) -> str:
    cells = (
        markdown_code(result.id), result.api or "", result.level.value,
        result.verdict.value, markdown(result.reason or ""),
    )  # fmt: skip
    return f"| {' | '.join(cells)} |"


def _baseline(report: Report) -> list[str]:
    head, *entries = story.baseline_lines(report) or [""]
    if not head:
        return []
    return ["## Baseline", "", f"{markdown(head)}.", "", *(f"- {markdown(e)}" for e in entries), ""]


def _result(result: Result, report: Report, context: story.Context) -> list[str]:
    api = f", {result.api}" if result.api else ""
    lines = [
        f"## {result.verdict.value}: {markdown_code(result.id)} ({result.level.value}{api})",
        "",
        f"{markdown(result.title)}. Rules {markdown(', '.join(result.rules))}.",
        "",
    ]
    if report.excuses(result):
        lines.append(f"- Baseline: {markdown(story.excuse(result, report) or '')}")
    shown, left_out = story.shown_findings(result)
    for finding in shown:
        seen = f" {markdown_code(story.bytes_of(finding))}" if finding.excerpt else ""
        lines.append(f"- {markdown(story.place(finding))}: {markdown(finding.message)}{seen}")
    if left_out:
        lines.append(f"- and {left_out} more")
    lines += [f"- {markdown(line)}" for line in story.sentences(result, context)]
    if broken := story.harms(result, context):
        lines.append(f"- Breaks {markdown(', '.join(broken))}")
    if word := story.advice(result, context):
        lines.append(f"- Advice: {markdown(word)}")
    if files := story.dossiers(result):
        lines.append(f"- Dossier {', '.join(map(markdown_code, files[:3]))}")
    if again := story.command(result, context):
        lines.append(f"- Again: {markdown_code(again)}")
    return [*lines, ""]
