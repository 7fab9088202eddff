"""JUnit XML: each selected id is a test case, so that CI systems show every verdict."""

from __future__ import annotations

from xml.etree.ElementTree import Element, SubElement, indent, tostring

from conformance.findings import Result, Verdict
from conformance.report import story
from conformance.report.escape import xml
from conformance.report.model import Report

_SKIPPED = frozenset({Verdict.UNSUPPORTED, Verdict.INCONCLUSIVE, Verdict.BLOCKED})


HEAD = '<?xml version="1.0" encoding="UTF-8"?>\n<testsuites name="conformance">\n'
TAIL = "</testsuites>\n"


def suite(report: Report, context: story.Context) -> str:
    """One report as a suite, named after its sample; it stands between HEAD and TAIL."""
    element = _suite(report, context)
    indent(element)
    text: str = tostring(element, encoding="unicode")
    return text + "\n"


def _suite(report: Report, context: story.Context) -> Element:
    failed = [each for each in report.results if report.gates(each)]
    broken = [each for each in report.results if each.verdict is Verdict.HARNESS_ERROR]
    skipped = [each for each in report.results if each.verdict in _SKIPPED or report.excuses(each)]
    suite = Element(
        "testsuite",
        name=xml(report.sample or "conformance"),
        tests=str(len(report.results)),
        failures=str(len(failed)),
        errors=str(len(broken)),
        skipped=str(len(skipped)),
    )
    for result in report.results:
        _case(suite, result, report, context)
    if lines := story.baseline_lines(report):
        SubElement(suite, "system-out").text = xml("\n".join(lines))
    if report.problems:
        SubElement(suite, "system-err").text = xml("\n".join(report.problems))
    return suite


def _case(suite: Element, result: Result, report: Report, context: story.Context) -> None:
    group = ".".join(part for part in ("conformance", result.api, result.gate) if part)
    case = SubElement(suite, "testcase", classname=xml(group), name=xml(result.id))
    details = xml(_details(result, context))
    if report.gates(result):
        message = result.findings[0].message if result.findings else result.title
        failure = SubElement(case, "failure", message=xml(message), type=result.level.value)
        failure.text = details
    elif report.excuses(result):
        SubElement(case, "skipped", message=xml(story.excuse(result, report) or "expected"))
        SubElement(case, "system-out").text = details
    elif result.verdict is Verdict.HARNESS_ERROR:
        SubElement(case, "error", message=xml(result.reason or "a check of ours broke"))
    elif result.verdict in _SKIPPED:
        words = ": ".join(part for part in (result.verdict.value, result.reason) if part)
        SubElement(case, "skipped", message=xml(words))
    elif result.findings:
        SubElement(case, "system-out").text = details


def _details(result: Result, context: story.Context) -> str:
    share = f", {result.reason}" if result.reason else ""  # n of m captures
    lines = [f"{result.verdict.value} ({result.level.value}{share}): {result.title}"]
    shown, left_out = story.shown_findings(result)
    for finding in shown:
        lines.append(f"{story.place(finding)}: {finding.message}")
        if finding.excerpt:
            lines.append(f"  bytes: {story.bytes_of(finding)}")
        if finding.dossier:
            lines.append(f"  dossier: {finding.dossier}")
    if left_out:
        lines.append(f"and {left_out} more")
    lines += story.sentences(result, context)
    if broken := story.harms(result, context):
        lines.append(f"breaks: {', '.join(broken)}")
    if word := story.advice(result, context):
        lines.append(f"advice: {word}")
    if again := story.command(result, context):
        lines.append(f"again: {again}")
    return "\n".join(_one_line(line) for line in lines)


def _one_line(text: str) -> str:
    return " ".join(text.split("\n"))
