"""`conformance run` on the embedded model: nothing fails, and what stays open says why."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.demo import serving

pytestmark = [pytest.mark.slow, pytest.mark.torch, pytest.mark.timeout(1500)]

Row = tuple[str, str]  # case id, API

# What no right server shows on such prompts, whatever its model.
NEVER_SEEN: dict[str, str] = {
    "err.followed": "not-seen: no error arises once a stream runs",
    "err.not-terminated": "not-seen: the same",
    "err.shape": "not-seen: the same",
    "heartbeat.comments": "not-seen: no silence is long enough to be filled",
    "reasoning.empty-field": "not-seen: no reasoning model",
    "tool.id-duplicate": "mat: the server makes one call at a time",
    "tool.resumed": "mat: the same",
}
# Depends on what the model says to one prompt, so either may be seen on some machine.
OF_TINY: dict[str, str] = {
    "abort.before-headers": "fast: the answer begins before the hang-up",
    "abort.fin": "fast: its longest answer ends too soon after the hang-up to tell",
    "abort.rst": "fast: the same",
    "buffering.first-content": "fast: its longest answer takes less than the check needs",
    "buffering.progressive": "fast: the same",
    "fin.natural-stop": "mat: the answer to that prompt reached its limit",
    "isolation.invalid-neighbour": "mat: an answer that does not hold the word asked for",
    "isolation.keep-alive": "mat: the same",
    "stop.mid-token": "mat: no place begins and ends in the middle of a delta",
}


def checked(model: str | Path, folder: Path, *options: str) -> Any:
    """The report of a run on a server with `model`; its table goes to stderr."""
    file = folder / "report.json"
    with serving(model=str(model)) as url:
        began = time.monotonic()
        command = [str(Path(sys.executable).parent / "conformance"), "run", url, *options]
        done = subprocess.run([*command, "--json", str(file)], capture_output=True, text=True)
    print(f"\n{model}: {time.monotonic() - began:.0f} s\n{done.stdout}", file=sys.stderr)
    assert done.returncode in (0, 1), done.stderr
    return json.loads(file.read_text())


def rows(report: Any, *verdicts: str) -> dict[Row, str]:
    return {
        (row["id"], row["api"]): row["reason"] or ""
        for row in report["results"]
        if row["verdict"] in verdicts
    }


def unexplained(report: Any, explained: dict[str, str]) -> dict[Row, str]:
    """What could not be decided for another reason than the one that is known."""
    codes = {check: why.partition(":")[0] for check, why in explained.items()}
    return {
        row: why
        for row, why in rows(report, "inconclusive").items()
        if codes.get(row[0]) != why.partition(":")[0]
    }


def conclusive(report: Any) -> float:
    """Share of the applicable MUST checks that could be decided."""
    verdicts = [r["verdict"] for r in report["results"] if r["level"] == "must"]
    return 1 - verdicts.count("inconclusive") / len(verdicts)


def test_nothing_fails_on_the_embedded_model_and_what_stays_open_is_explained(
    tmp_path: Path,
) -> None:
    report = checked("tiny", tmp_path)
    assert rows(report, "fail", "inconsistent", "blocked", "harness-error") == {}
    assert unexplained(report, NEVER_SEEN | OF_TINY) == {}
    assert conclusive(report) >= 0.9
