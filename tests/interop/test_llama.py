"""`conformance run` on llama.cpp's own server: each failure below was confirmed in the bytes."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.interop.llama import Running, install

pytestmark = [pytest.mark.slow, pytest.mark.llama, pytest.mark.timeout(900)]

Row = tuple[str, str]  # case id, API

# The bytes that each stands for are quoted in captures/llama/FINDINGS.md, by number.
FAILS: dict[Row, str] = {
    ("echo.prompt", "completions"): "4: `echo` is accepted and the prompt is not in the text",
    ("logprobs.arrays", "completions"): '3: "logprobs":{"content":[{"id":…}]}, the chat shape',
    ("usage.intermediate", "completions"): "5: each of n choices brings a usage of its own",
}
# Which choice speaks first depends on the slots that are free: not in every run, on either API.
SOMETIMES: dict[Row, str] = {
    ("choice.order", "chat"): '2: a stream of n choices begins with "index":1',
    ("choice.order", "completions"): "2",
}
NOT_STRICT: dict[Row, str] = {
    ("chunk.created-changes", "chat"): "14: each chunk is stamped anew",
    ("chunk.created-changes", "completions"): "14",
    ("err.code-type", "chat"): '17: "code":400',
    ("err.code-type", "completions"): "17",
    ("err.envelope", "chat"): "17: no `param`",
    ("err.envelope", "completions"): "17",
    ("http.keep-alive", "chat"): "19: closed behind the zero chunk, unannounced",
    ("http.keep-alive", "completions"): "19",
    ("usage.null-before", "chat"): "15: no `usage` member before the usage chunk",
    ("usage.null-before", "completions"): "15",
    ("usage.placement", "chat"): "5: with n choices the usage chunk stands n times",
    ("usage.placement", "completions"): "16: usage stands on the finish chunk, asked for or not",
    ("usage.under-count", "chat"): "6: the tokens of one choice of n are counted",
    ("usage.under-count", "completions"): "6",
}
# Why an applicable check could not decide: the reason's code, and what is behind it.
UNDECIDED: dict[Row, str] = {
    # Every mistake that is sent gets a 4xx or an answer; an error inside a 200 takes two prompts.
    ("err.followed", "chat"): "not-seen",
    ("err.followed", "completions"): "not-seen",
    ("err.not-terminated", "chat"): "not-seen",
    ("err.not-terminated", "completions"): "not-seen",
    ("err.shape", "chat"): "not-seen",
    ("err.shape", "completions"): "not-seen",
    # A base model of this size goes on until its limit, whatever it is told.
    ("fin.natural-stop", "chat"): "mat",
    ("fin.natural-stop", "completions"): "mat",
    # The connection is closed after each stream (19), so no second answer comes on it.
    ("http.keep-alive-own-answer", "chat"): "not-seen",
    ("http.keep-alive-own-answer", "completions"): "not-seen",
    # No reasoning model.
    ("reasoning.empty-field", "chat"): "not-seen",
}


@pytest.fixture(scope="module")
def report(llama: Running, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The default profile on both APIs, as a user runs it."""
    file = tmp_path_factory.mktemp("run") / "report.json"
    command = [str(Path(sys.executable).parent / "conformance"), "run", llama.url]
    began = time.monotonic()
    done = subprocess.run([*command, "--json", str(file)], capture_output=True, text=True)
    print(f"\nconformance run: {time.monotonic() - began:.0f} s\n{done.stdout}", file=sys.stderr)
    assert done.returncode == 1, done.stderr
    return json.loads(file.read_text())


def rows(report: Any, *verdicts: str) -> dict[Row, str]:
    return {
        (row["id"], row["api"]): row["reason"] or ""
        for row in report["results"]
        if row["verdict"] in verdicts
    }


def test_it_fails_where_the_bytes_are_wrong_and_nowhere_else(report: Any) -> None:
    found = set(rows(report, "fail"))
    assert found - set(SOMETIMES) == set(FAILS)


def test_the_shoulds_that_it_breaks_are_these(report: Any) -> None:
    assert set(rows(report, "non-strict")) == set(NOT_STRICT)


def test_nothing_else_went_wrong(report: Any) -> None:
    odd = rows(report, "inconsistent", "blocked", "harness-error", "unsupported")
    assert odd == {}


def test_what_could_not_be_decided_says_why(report: Any) -> None:
    found = {row: why.partition(":")[0] for row, why in rows(report, "inconclusive").items()}
    assert found == UNDECIDED


def test_packages_that_cannot_be_installed_are_an_error_with_pips_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = tmp_path / "requirements.txt"
    wanted.write_text("./no-such-package\n")
    monkeypatch.setattr("tests.interop.llama.REQUIREMENTS", wanted)
    with pytest.raises(subprocess.CalledProcessError) as failed:
        install(tmp_path / "environment")
    assert "no-such-package" in failed.value.stderr
    assert not (tmp_path / "environment" / "installed.txt").exists()
