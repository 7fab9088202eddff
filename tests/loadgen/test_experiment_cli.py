"""`loadgen experiment` as a command: what there is, what it refuses, what Ctrl-C leaves."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

from loadgen import cli
from loadgen.experiments.spec import known
from tests.demo import serving

URL = "http://127.0.0.1:9/v1"


def said(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    """Exit code, stdout, stderr."""
    try:
        code = cli.main(["experiment", *words])
    except SystemExit as exit:
        code = int(exit.code or 0)
    out = capsys.readouterr()
    return code, out.out, out.err


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("overlap",), "required: URL"),
        (("overlaps", URL), "no experiment is named overlaps (did you mean overlap?)"),
        (("none.yaml", URL), "none.yaml:1: file: expected an existing file"),
        (("overlap", URL, "--set", "crowd=3"), "overlap has no crowd; it has streams, "),
        (("buffers", URL, "--streams", "3"), "buffers has no streams; it has input_tokens"),
        (("overlap", URL, "--set", "solo"), "expected NAME=N"),
        (("overlap", URL, "--set", "solo=99999999"), "solo: expected at most 1000000"),
        (("overlap", URL, "--streams", "0"), "expected at least 1"),
        (("overlap", URL, "--slo", "ttft:p99<1s"), "expected COLUMN OP VALUE"),
        (("overlap", URL, "--slo", "gab-p50<1s"), "no column gab-p50; there are tokens-s, gain"),
        (("overlap", URL, "--max-failures", "many"), "expected a number or a percentage"),
        (("overlap", URL, "--json", "/none/x"), "/none/x: cannot be written"),
        (("overlap", URL), "cannot reach http://127.0.0.1:9/v1: ECONNREFUSED"),
        (("long-prompt", URL), "cannot reach http://127.0.0.1:9/v1: ECONNREFUSED"),
    ],
)
def test_what_cannot_be_played_is_one_line_and_exit_2(
    words: tuple[str, ...], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = said(capsys, *words)
    assert (code, len(err.splitlines())) == (2, 1)
    assert expected in err


def test_the_experiments_are_listed_with_their_sizes_and_named_in_the_help(
    capsys: pytest.CaptureFixture[str],
) -> None:
    code, listed, _ = said(capsys, "list")
    assert code == 0
    code, helped, _ = said(capsys, "--help")
    assert code == 0
    for name, each in known().items():
        assert f"{name}\n    {each.title}" in listed
        assert f"  {name}" in helped
        assert each.title in helped
    assert "streams=32 input_tokens=32" in listed


def test_options_may_stand_between_the_name_and_the_url(
    capsys: pytest.CaptureFixture[str],
) -> None:
    code, _, err = said(capsys, "overlap", "--streams", "2", URL)
    assert (code, "cannot reach" in err) == (2, True)


def until_finished(url: str, requests: int) -> None:
    """By the server's counter."""
    page = url.removesuffix("/v1") + "/metrics"
    for _ in range(600):
        with urllib.request.urlopen(page, timeout=10) as answer:
            text = answer.read().decode()
        found = re.search(r"request_success_total\S* (\d+)", text)
        if found is not None and int(found[1]) >= requests:
            return
        time.sleep(0.1)
    raise AssertionError("the server finished too few")


@pytest.mark.slow
def test_an_interruption_leaves_the_loads_that_were_over(tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    with serving("--step-ms", "10") as url:
        command = [sys.executable, "-m", "loadgen", "experiment", "overlap", url]
        sizes = ["--streams", "8", "--output-tokens", "60", "--set", "solo=1", "--checks", "none"]
        process = subprocess.Popen(
            [*command, *sizes, "--json", str(report)], stdout=subprocess.PIPE, text=True
        )
        until_finished(url, 12)  # the first load took three, or nine where it was played again
        process.send_signal(signal.SIGINT)
        try:
            out, _ = process.communicate(timeout=30)
        finally:
            process.kill()
    assert process.returncode == 3
    found = json.loads(report.read_text())
    assert (found["complete"], found["exit"]) == (False, 3)
    assert [each["n"] for each in found["loads"]][:1] == [1]
    assert len(found["loads"]) < 12
    assert found["rows"][0]["tokens-s"] > 0
    assert "not complete: interrupted · exit 3" in out
