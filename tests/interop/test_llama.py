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
    ("err.client-mistake-5xx", "chat"): "11: 500 for a `tools` that is a string, a missing role",
    ("err.wrong-types", "chat"): "12: 200 for temperature -1, stop 5, messages [] and others",
    ("err.wrong-types", "completions"): "12: 200 for temperature -1, suffix 5 and others",
    ("logprobs.arrays", "completions"): '3: "logprobs":{"content":[{"id":…}]}, the chat shape',
    ("stop.near-miss", "chat"): "14: text held back for a stop string is lost at the limit",
    ("stop.near-miss", "completions"): "14",
    ("tool.named", "chat"): "7: get_time is named, get_weather is called as well",
    ("tool.parallel", "chat"): "8: parallel_tool_calls is false, and there are several calls",
    ("usage.choices", "chat"): "6: the tokens of one choice of n are counted",
    ("usage.choices", "completions"): "6",
    ("usage.intermediate", "completions"): "5: each of n choices brings a usage of its own",
}
# What the model says, and which choice speaks first, depends on the cache and on the free slots.
SOMETIMES: dict[Row, str] = {
    ("choice.order", "chat"): '2: a stream of n choices begins with "index":1',
    ("choice.order", "completions"): "2",
    ("tool.markup-leak", "chat"): '9: "content":"</" "tool" "_" "call" ">" before a call',
    ("delta.empty-flood", "completions"): "22: an empty chunk for each token that is held back",
    ("sse.raw-line-separator", "chat"): "19: E2 80 A8 where the model repeats it",
    ("sse.raw-line-separator", "completions"): "19",
}
NOT_STRICT: dict[Row, str] = {
    ("chunk.created-changes", "chat"): "15: each chunk is stamped anew",
    ("chunk.created-changes", "completions"): "15",
    ("err.code-type", "chat"): '18: "code":400',
    ("err.code-type", "completions"): "18",
    ("err.envelope", "chat"): "18: no `param`",
    ("err.envelope", "completions"): "18",
    ("http.keep-alive", "chat"): "20: closed behind the zero chunk, unannounced",
    ("http.keep-alive", "completions"): "20",
    ("usage.null-before", "chat"): "16: no `usage` member before the usage chunk",
    ("usage.null-before", "completions"): "16",
    ("usage.placement", "chat"): "5: with n choices the usage chunk stands n times",
    ("usage.placement", "completions"): "17: usage stands on the finish chunk",
}
# Told by another check, which says more of the same place.
BLOCKED: dict[Row, str] = {
    ("tool.unknown-name", "chat"): "tool.named",
    ("usage.under-count", "chat"): "usage.choices",
    ("usage.under-count", "completions"): "usage.choices",
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
    # The connection is closed after each stream (20), so no second answer comes on it.
    ("http.keep-alive-own-answer", "chat"): "not-seen",
    ("http.keep-alive-own-answer", "completions"): "not-seen",
    ("isolation.keep-alive", "chat"): "not-seen",
    ("isolation.keep-alive", "completions"): "not-seen",
    # It fills a silence with comments while it prefills a long prompt, and none is sent.
    ("heartbeat.comments", "chat"): "not-seen",
    ("heartbeat.comments", "completions"): "not-seen",
    # The near miss does not leave its text whole (14), so the answer is needed for a control.
    ("stop.whitespace", "chat"): "not-seen",
    ("stop.whitespace", "completions"): "not-seen",
    # No reasoning model.
    ("reasoning.empty-field", "chat"): "not-seen",
}
# Hang-ups race with a small model on a busy machine, and not every text of its has a place for a
# stop string: these may abstain, each with one of these reasons.
MAY_ABSTAIN: dict[str, tuple[str, ...]] = {
    "abort.": ("fast", "det", "oracle", "burst"),
    "isolation.stop": ("mat", "det"),
    "slow.": ("fast", "det", "oracle", "burst"),
}


@pytest.fixture(scope="module")
def report(llama: Running, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Everything on both APIs, as a user runs it; hang-ups are seen through its own metrics."""
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
    assert set(rows(report, "fail")) - set(SOMETIMES) == set(FAILS)


def test_the_shoulds_that_it_breaks_are_these(report: Any) -> None:
    assert set(rows(report, "non-strict")) - set(SOMETIMES) == set(NOT_STRICT)


def test_nothing_else_went_wrong(report: Any) -> None:
    assert rows(report, "blocked") == BLOCKED
    odd = rows(report, "inconsistent", "harness-error", "unsupported")
    # The server was started without a key, so none can be wrong.
    assert odd == {("err.wrong-key", api): "key: none was given" for api in ("chat", "completions")}


def test_what_could_not_be_decided_says_why(report: Any) -> None:
    found = {row: why.partition(":")[0] for row, why in rows(report, "inconclusive").items()}
    assert {row: why for row, why in found.items() if not may_abstain(row[0], why)} == UNDECIDED


def may_abstain(check: str, why: str) -> bool:
    return any(check.startswith(name) and why in whys for name, whys in MAY_ABSTAIN.items())


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
