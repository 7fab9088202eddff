"""The command line: one clear line and exit code 2 for what cannot run, reports for what did."""

from __future__ import annotations

import csv
import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from conformance.errors import StreamproofError
from loadgen import cli
from loadgen.export import COLUMNS
from loadgen.setup import parse_allowed
from tests.loadgen.playing import setup
from tests.loadgen.test_workers import finished

URL = "http://127.0.0.1:9/v1"
LOAD = ("--rate", "1", "--requests", "2")


def said(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    """Exit code and stderr of a command."""
    try:
        code = cli.main(list(words))
    except SystemExit as exit:
        code = int(exit.code or 0)
    return code, capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ((), "required: COMMAND"),
        (("experience", URL), "invalid choice: 'experience'"),
        (("run",), "required: URL"),
        (("run", URL), "one of the arguments --rate --concurrency --stages --trace is required"),
        (("run", URL, "--rate", "1", "--concurrency", "2"), "not allowed with"),
        (("run", URL, "--rate", "0"), "expected at least 0.001"),
        (("run", URL, "--rate", "nan"), "expected a number"),
        (("run", URL, "--rate", "1"), "--rate needs --duration or --requests"),
        (("run", URL, "--concurrency", "1"), "--concurrency needs --duration or --requests"),
        (("run", URL, "--stages", "1:2", "--duration", "5"), "say their own duration"),
        (("run", URL, *LOAD, "--arrivals", "often"), "expected constant, poisson or gamma:CV"),
        (("run", URL, "--concurrency", "1", "--arrivals", "poisson"), "is for --rate and --stages"),
        (("run", URL, *LOAD, "--warmup", "9"), "the load takes only 1 s"),
        (("run", URL, "--concurrency", "1", "--duration", "9", "--warmup", "9"), "takes only 9 s"),
        (("run", URL, *LOAD, "--slo", "itl:p99<1s"), "no metric is named itl"),
        (("run", URL, *LOAD, "--max-failures", "many"), "expected a number or a percentage"),
        (("run", URL, *LOAD, "--checks", "behaviour"), "expected wire, shape"),
        (("run", URL, *LOAD, "--input-tokens", "few"), "--input-tokens few: expected a number"),
        (("run", URL, "--trace", "/none"), "/none: cannot be read"),
        (("run", URL, *LOAD, "--prompts", "/none"), "/none: cannot be read"),
        (("run", URL, *LOAD, "--json", "-", "--csv", "-"), "only one report can go to stdout"),
        (("run", URL, *LOAD, "--json", "/none/x"), "/none/x: cannot be written"),
        (("run", URL, *LOAD, "--repeat", "0"), "expected at least 1"),
        (("compare", "/none", "/none"), "/none: cannot be read"),
        (("report", "/none"), "/none: cannot be read"),
        (("run", URL, *LOAD, "--leave", "10%"), "--leave 10%: expected SHARE%:WAY, one of"),
        (("run", URL, *LOAD, "--read", "9%:rate"), "--read 9%:rate: expected rate:BYTES a second"),
        (("run", URL, *LOAD, "--read", "9%:rate:1", "--clock", "kernel"), "go by --clock user"),
        (
            ("run", URL, "--concurrency", "2", "--requests", "9", "--workers", "3"),
            "--workers 3: more than the 2 clients of the load",
        ),
        (
            ("run", URL, "--rate", "2", "--requests", "2", "--workers", "3"),
            "--workers 3: more than the 2 requests of the load",
        ),
        (("run", URL, *LOAD, "--input-tokens", ""), "--input-tokens: expected a value, got none"),
        (("run", URL, "--stages="), "--stages=: expected a value, got none"),
        (("run", "", *LOAD), "run: expected a value, got none"),
        (("run", URL, *LOAD, "--threshold", "5"), "--threshold is for --against URL2"),
        (("run", URL, *LOAD, "--against-model", "m"), "--against-model is for --against URL2"),
        (("run", "ftp://x", *LOAD), "not a URL"),
        (("run", URL, *LOAD), "cannot reach http://127.0.0.1:9/v1: ECONNREFUSED"),
        (("run", URL, *LOAD, "--header", "x"), "expected NAME:VALUE"),
    ],
)
def test_what_cannot_run_is_one_line_and_exit_2(
    words: tuple[str, ...], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, text = said(capsys, *words)
    assert code == 2
    assert expected in text
    assert len(text.splitlines()) == 1
    assert text.startswith("loadgen")


@pytest.mark.parametrize(
    ("text", "sent", "most"), [("0", 100, 0), ("7", 9, 7), ("1%", 199, 1), ("0.5%", 200, 1)]
)
def test_failures_are_allowed_by_number_or_by_share(text: str, sent: int, most: int) -> None:
    assert parse_allowed(text).most_of(sent) == most


@pytest.mark.parametrize("text", ["-1", "101%", "1e3", "", "5 %"])
def test_another_allowance_is_refused(text: str) -> None:
    with pytest.raises(StreamproofError, match="--max-failures"):
        parse_allowed(text)


def test_a_key_comes_from_the_environment_and_is_a_secret() -> None:
    made = setup(URL, *LOAD, environment={"OPENAI_API_KEY": "sk-very-secret"})
    assert made.fields == (("Authorization", "Bearer sk-very-secret"),)
    assert [secret.value for secret in made.secrets] == [b"sk-very-secret"]
    assert "sk-very-secret" not in json.dumps(dict(made.described))


# -- two processes and the machine's own clock -----------------------------------------------------


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    command = [sys.executable, "-m", "reference_server", "--model", "scripted", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        yield json.loads(server.stdout.readline())["url"]
        server.terminate()


def loadgen(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "loadgen", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=100)


@pytest.mark.slow
def test_three_reports_of_one_run_tell_the_same(url: str, tmp_path: Path) -> None:
    files = {form: tmp_path / f"run.{form}" for form in ("json", "jsonl", "csv")}
    words = [word for form, file in files.items() for word in (f"--{form}", str(file))]
    done = loadgen("run", url, "--rate", "20", "--duration", "1", *words)
    assert done.stderr == ""
    report: dict[str, Any] = json.loads(files["json"].read_text())
    rows = [json.loads(line) for line in files["jsonl"].read_text().splitlines()]
    with files["csv"].open(newline="") as file:
        header, *cells = list(csv.reader(file))
    assert tuple(header) == COLUMNS
    assert len(rows) == len(cells) == report["requests"]["scheduled"] == 20
    assert report["requests"]["outcomes"] == {"complete": 20}
    assert report["metrics"]["ttft"]["n"] == 20
    assert all(metric["formula"] for metric in report["metrics"].values())
    assert report["exit"] == done.returncode
    assert done.returncode == (3 if report["reasons"] else 0)
    assert f"exit {done.returncode}" in done.stdout.splitlines()[-1]


@pytest.mark.slow
def test_runs_are_repeated_with_the_next_seed_each(url: str, tmp_path: Path) -> None:
    file, table = tmp_path / "run.json", tmp_path / "run.csv"
    words = ("--rate", "20", "--requests", "4", "--repeat", "3")
    done = loadgen("run", url, *words, "--json", str(file), "--csv", str(table))
    report: dict[str, Any] = json.loads(file.read_text())
    assert [run["load"]["seed"] for run in report["runs"]] == [7, 8, 9]
    assert [len(run["rows"]) for run in report["runs"]] == [4, 4, 4]
    prompts = {row["prompt_hash"] for run in report["runs"] for row in run["rows"]}
    assert len(prompts) == 12
    with table.open(newline="") as rows:
        assert [row["run"] for row in csv.DictReader(rows)] == ["1"] * 4 + ["2"] * 4 + ["3"] * 4
    assert f"exit {done.returncode}" in done.stdout.splitlines()[-1]


@pytest.mark.slow
def test_a_report_on_stdout_is_alone_there(url: str) -> None:
    done = loadgen("run", url, "--concurrency", "2", "--requests", "4", "--json", "-")
    assert json.loads(done.stdout)["requests"]["outcomes"] == {"complete": 4}
    assert "complete 4" in done.stderr


@pytest.mark.slow
def test_ctrl_c_leaves_a_report_marked_incomplete(url: str, tmp_path: Path) -> None:
    file = tmp_path / "run.json"
    command = [sys.executable, "-m", "loadgen", "run", url, "--rate", "20", "--duration", "60"]
    before = finished(url)
    with subprocess.Popen(
        [*command, "--json", str(file)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as run:
        while finished(url) < before + 5:
            assert run.poll() is None
            time.sleep(0.05)
        run.send_signal(signal.SIGINT)
        out, err = run.communicate(timeout=60)
    report = json.loads(file.read_text())
    assert (err, run.returncode, report["complete"]) == ("", 3, False)
    assert report["requests"]["succeeded"] > 0
    assert report["requests"]["scheduled"] == 1200
    assert "interrupted" in out


@pytest.mark.slow
def test_a_server_whose_generations_are_all_reset_is_exit_1() -> None:
    """It accepts and closes at once, the models list included; --model says what to ask for."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        command = [sys.executable, "-m", "loadgen", "run", f"http://127.0.0.1:{port}/v1"]
        words = ["--model", "m", "--rate", "50", "--requests", "20"]
        with subprocess.Popen([*command, *words], stdout=subprocess.PIPE, text=True) as run:
            listener.settimeout(0.2)
            while run.poll() is None:
                try:
                    listener.accept()[0].close()
                except TimeoutError:
                    continue
            out = run.stdout.read() if run.stdout else ""
    assert "no-answer 20" in out
    assert run.returncode in (1, 3)
