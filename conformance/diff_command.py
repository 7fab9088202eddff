"""`conformance diff`: two reports in, what changed between them out."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from conformance.baseline_command import read_report
from conformance.errors import UsageError
from conformance.report import difference
from conformance.report.escape import terminal
from conformance.report.output import Console


def main(args: argparse.Namespace) -> int:
    """Returns 1 if anything got worse, else 0; raises StreamproofError for unreadable reports."""
    found = difference.between(read_report(args.old), read_report(args.new))
    screen = Console()
    text = json.dumps(difference.to_json(found), indent=2, ensure_ascii=False) + "\n"
    for name in args.json:
        if name == "-":
            screen.write(text)
        else:
            _write(name, text)
    if "-" not in args.json:
        screen.write("".join(f"{terminal(line).rstrip()}\n" for line in difference.lines(found)))
    return int(found.is_worse)


def _write(name: str, text: str) -> None:
    try:
        Path(name).write_text(text, encoding="utf-8", errors="backslashreplace")
    except OSError as error:
        raise UsageError(f"{name}: cannot be written: {error.strerror}") from None
