"""`conformance tap` as a command: its arguments, its lines, its sums, and Ctrl-C."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from conformance import storage
from conformance.cli import main
from conformance.errors import UsageError
from conformance.findings import Finding, Level, Result, Verdict
from conformance.tap.command import line_of, listen_at
from conformance.tap.judging import Told
from conformance.tap.tally import MOST_FINDINGS, Tally
from tests.conformance.tapped import PASSIVE
from tests.demo import serving

# Arguments


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("9000", ("127.0.0.1", 9000)),
        (":9000", ("127.0.0.1", 9000)),
        ("0", ("127.0.0.1", 0)),
        ("localhost:0", ("localhost", 0)),
        ("0.0.0.0:81", ("0.0.0.0", 81)),
        ("[::1]:9000", ("::1", 9000)),
    ],
)
def test_listen_is_on_loopback_unless_a_host_is_named(text: str, where: tuple[str, int]) -> None:
    assert listen_at(text) == where


@pytest.mark.parametrize("text", ["", "a:b", "127.0.0.1", "127.0.0.1:70000", "-1"])
def test_another_listen_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"LISTEN .*: expected HOST:PORT"):
        listen_at(text)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["0", "nonsense"], "not a URL: nonsense"),
        (["0", "http://a", "--select", "done.mising"], "did you mean done.missing"),
        (["0", "http://a", "--select", "parity.*", "--skip", "parity.text"], "no check is left"),
        (["0", "http://a", "--select", "fin.limit"], "provoked by `run`, not seen passing"),
        (["0", "http://a", "--api-key-env", "NO_SUCH_KEY_7"], "NO_SUCH_KEY_7 is not set"),
        (["0", "http://a", "--json", "absent/x"], "absent/x: cannot be written"),
        (["0", "https://a", "--cacert", "absent"], "cannot load TLS files (absent)"),
        (["0", "http://a", "--dialect", "azur"], "did you mean azure"),
    ],
)
def test_what_cannot_be_is_told_in_one_line(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["tap", *words]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1


def test_a_port_that_is_taken_is_told_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert main(["tap", str(port), "http://127.0.0.1:1"]) == 2
    error = capsys.readouterr().err
    assert f"LISTEN 127.0.0.1:{port}: cannot listen" in error
    assert error.count("\n") == 1


# Lines


def told(**changes: Any) -> Told:
    fields: dict[str, Any] = {
        "number": 7, "method": "POST", "path": "/v1/completions", "status": 200,
        "api": "completions", "events": 3, "outcome": "complete", "seconds": 0.25, "failed": (),
        "noted": (), "results": (), "size": 1,
    }  # fmt: skip
    return Told(**{**fields, **changes})


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({}, "#7  POST /v1/completions  200  3 events  complete  0.250 s  ok"),
        (
            {"failed": ("sse.bom", "done.missing"), "noted": ("sse.no-space",)},
            "#7  POST /v1/completions  200  3 events  complete  0.250 s  "
            "FAIL sse.bom, done.missing  also sse.no-space",
        ),
        (
            {"api": None, "events": 0, "outcome": "whole"},
            "#7  POST /v1/completions  200  whole  0.250 s  not judged",
        ),
        (
            {"api": None, "status": None, "events": 0, "unreached": True,
             "outcome": "not-connected (ECONNREFUSED)", "seconds": None},
            "#7  POST /v1/completions  502 by the tap  not-connected (ECONNREFUSED)  not judged",
        ),
        (
            {"path": "/" + "a" * 200},
            f"#7  POST /{'a' * 118}…  200  3 events  complete  0.250 s  ok",
        ),
        (
            {"status": None, "events": 0, "outcome": "no-answer"},
            "#7  POST /v1/completions  no answer  no-answer  0.250 s  ok",
        ),
    ],
)  # fmt: skip
def test_an_exchange_is_one_line(changes: dict[str, Any], line: str) -> None:
    assert line_of(told(**changes)) == line


# Sums


def result(verdict: Verdict, count: int = 0, id: str = "done.missing") -> Result:
    findings = tuple(Finding("Z07", f"finding {number}") for number in range(count))
    return Result(
        id, "A title", Level.MUST, "wire", "chat", ("Z07",), verdict, "1 of 1", findings=findings
    )


def summed(*results: Result) -> Result:
    tally = Tally()
    for each in results:
        tally.add([each])
    case = next(case for case in PASSIVE if case.id == "done.missing")
    (found,) = tally.results([case])
    return found


@pytest.mark.parametrize(
    ("verdicts", "wanted"),
    [
        ([Verdict.INCONCLUSIVE], Verdict.INCONCLUSIVE),
        ([Verdict.INCONCLUSIVE, Verdict.PASS, Verdict.INCONCLUSIVE], Verdict.PASS),
        ([Verdict.PASS, Verdict.FAIL, Verdict.PASS], Verdict.FAIL),
        ([Verdict.PASS, Verdict.NON_STRICT], Verdict.NON_STRICT),
        ([Verdict.NON_STRICT, Verdict.FAIL], Verdict.FAIL),
        ([Verdict.BLOCKED, Verdict.PASS], Verdict.PASS),
        ([Verdict.HARNESS_ERROR, Verdict.PASS], Verdict.HARNESS_ERROR),
    ],
)
def test_the_worst_of_what_was_decided_is_the_verdict_of_all(
    verdicts: list[Verdict], wanted: Verdict
) -> None:
    assert summed(*map(result, verdicts)).verdict is wanted


def test_a_failure_says_of_how_many() -> None:
    seen = [result(Verdict.PASS), result(Verdict.FAIL, 2), result(Verdict.INCONCLUSIVE)]
    found = summed(*seen, result(Verdict.FAIL, 1))
    assert found.reason == "2 of 3"
    assert [each.message for each in found.findings] == ["finding 0", "finding 1", "finding 0"]


def test_a_tap_that_runs_for_long_keeps_a_bounded_number_of_findings() -> None:
    found = summed(*[result(Verdict.FAIL, 3)] * 100)
    assert len(found.findings) == MOST_FINDINGS
    assert found.reason == "100 of 100"


def test_what_was_never_seen_is_not_seen() -> None:
    found = [each for each in Tally().results(PASSIVE) if each.id == "done.missing"]
    assert [(each.api, each.verdict, each.reason) for each in found] == [
        ("chat", Verdict.INCONCLUSIVE, "not-seen")
    ]


# The command itself


@contextmanager
def tapping(*words: str, cwd: Path) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """The command in a process of its own, and the port on which it listens."""
    process = subprocess.Popen(
        [sys.executable, "-m", "conformance", "tap", "0", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=cwd,
        start_new_session=True,
    )
    try:
        assert process.stderr is not None
        first = process.stderr.readline()
        assert first.startswith("tap on http://127.0.0.1:"), first
        yield process, int(first.split(" → ")[0].rsplit(":", 1)[1].split("/")[0])
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate(timeout=10)


def ask(port: int, *, stream: bool = True) -> bytes:
    body = {"model": "scripted", "messages": [{"role": "user", "content": "hi"}],
            "stream": stream, "max_tokens": 8}  # fmt: skip
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    connection.request(
        "POST", "/v1/chat/completions", json.dumps(body), {"Content-Type": "application/json"}
    )
    data = connection.getresponse().read()
    connection.close()
    return data


def interrupted(process: subprocess.Popen[str], whole_group: bool = True) -> tuple[str, str]:
    """Ctrl-C, as a terminal sends it: to every process of the group."""
    if whole_group:
        os.killpg(process.pid, signal.SIGINT)
    else:
        process.send_signal(signal.SIGINT)
    return process.communicate(timeout=30)


def test_ctrl_c_leaves_a_line_for_each_exchange_and_every_report(tmp_path: Path) -> None:
    reports = ["--json", "r.json", "--junit", "r.xml", "--markdown", "r.md", "--captures", "kept"]
    with (
        serving("--fault", "done.missing") as url,
        tapping(url, *reports, cwd=tmp_path) as (process, port),
    ):
        assert b"data: " in ask(port)
        assert b"[DONE]" not in ask(port)
        assert b"chat.completion" in ask(port, stream=False)
        out, err = interrupted(process)
        assert process.returncode == 1
    lines = out.splitlines()
    assert [line.split()[0] for line in lines[:3]] == ["#1", "#2", "#3"]
    assert "FAIL done.missing" in lines[0]
    assert lines[2].endswith("ok")
    assert err == ""
    report = json.loads((tmp_path / "r.json").read_text())
    (broken,) = [each for each in report["results"] if each["verdict"] == "fail"]
    assert (broken["id"], broken["reason"]) == ("done.missing", "2 of 2")
    assert (report["target"]["exchanges"], report["exit"], report["complete"]) == (3, 1, True)
    assert "done.missing" in (tmp_path / "r.xml").read_text()
    assert "done.missing" in (tmp_path / "r.md").read_text()
    kept = broken["findings"][0]["dossier"]
    assert f"  replay   conformance replay '{kept}#done.missing'" in lines
    assert storage.read(tmp_path / kept).roles["stream"]


def test_a_tap_through_which_nothing_passed_has_tested_nothing(tmp_path: Path) -> None:
    with tapping("http://127.0.0.1:1", "--json", "-", cwd=tmp_path) as (process, port):
        assert b"upstream_unreachable" in ask(port)
        out, err = interrupted(process, whole_group=False)
        assert process.returncode == 2
    report = json.loads(out)
    assert report["problems"] == [
        "not tested: fewer than half of the exchanges got an answer to judge"
    ]
    assert (report["target"]["exchanges"], report["target"]["judged"]) == (1, 0)
    assert err.splitlines() == [
        line
        for line in err.splitlines()
        if line.startswith("#1  POST /v1/chat/completions  502 by")
    ]


def test_no_process_outlives_a_tap_that_was_killed(tmp_path: Path) -> None:
    with tapping("http://127.0.0.1:1", cwd=tmp_path) as (process, _):
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        assert children
        process.kill()
        assert process.stdout is not None
        # The judging process holds the other end of this pipe until it ends.
        assert process.stdout.read() == ""
