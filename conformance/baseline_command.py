"""`conformance baseline`: today's failures of a report, written as a baseline."""

from __future__ import annotations

import argparse
from datetime import date
from pathlib import Path

from conformance import baseline_file
from conformance.baseline import Baseline, Entry, State
from conformance.errors import RecordError, UsageError
from conformance.findings import Result, fails
from conformance.report import json_report
from conformance.report.model import Report
from conformance.report.output import Console


def main(args: argparse.Namespace) -> int:
    """Returns 0; raises StreamproofError for a report that cannot be read or a file not written."""
    _check(args, baseline_file.today())
    report = read_report(args.report)
    made = baseline_of(report, args.reason, args.issue, args.until)
    form = "json" if str(args.output or "").endswith(".json") else "yaml"
    text = baseline_file.dumps(made, form)
    if args.output is None:
        Console().write(text)
        return 0
    try:
        Path(args.output).write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{args.output}: cannot be written: {error.strerror}") from None
    Console().write(f"{args.output}: {len(made.expected)} expected, {len(made.flaky)} flaky\n")
    return 0


def _check(args: argparse.Namespace, day: date) -> None:
    for name in ("reason", "issue"):
        text = getattr(args, name)
        if text is not None and not (text.strip() and text.isprintable()):
            raise UsageError(f"--{name}: expected one line of printable text")
    if args.until is not None and args.until < day:
        raise UsageError(f"--until {args.until}: expected a day to come, that one is over")


def read_report(name: str) -> Report:
    """A report as `--json` wrote it. Raises RecordError."""
    try:
        return json_report.loads(Path(name).read_bytes(), name)
    except OSError as error:
        raise RecordError(f"{name}: {error.strerror}") from None


def baseline_of(report: Report, reason: str, issue: str | None, until: date | None) -> Baseline:
    """Every failure as an entry; what an older baseline excuses keeps its own words."""
    kept = report.baseline.standings if report.baseline else ()
    expected = [each.entry for each in kept if each.state is State.EXPECTED]
    flaky = [each.entry for each in kept if each.state in (State.FLAKY, State.QUIET, State.OPEN)]
    new = [
        Entry(each.id, each.api or "chat", reason, issue=issue, until=until)
        for each in report.results
        if fails(each, report.strict) and not _is_excused(each, report)
    ]
    fresh = {(each.check, each.api) for each in new}
    expected = [each for each in expected if (each.check, each.api) not in fresh]
    ordered = sorted([*expected, *new], key=lambda each: (each.check, each.api, each.rule or ""))
    return Baseline(tuple(ordered), tuple(flaky))


def _is_excused(result: Result, report: Report) -> bool:
    return report.baseline is not None and report.baseline.excuses(result)
