"""The checker and the server as a user runs them: two processes and the machine's own clock."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

FAULTS = (
    "http.content-type",
    "http.end-of-body:reset",
    "sse.invalid-utf8",
    "sse.unterminated-event:chunk",
    "json.lone-surrogate",
    "done.missing",
    "fin.duplicate",
    "usage.sum",
    "tool.args-invalid",
    "parity.text",
)


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    command = [sys.executable, "-m", "reference_server", "--model", "scripted", "--port", "0"]
    with subprocess.Popen(
        [*command, "--allow-faults"], stdout=subprocess.PIPE, text=True
    ) as server:
        assert server.stdout is not None
        yield json.loads(server.stdout.readline())["url"]
        server.terminate()


def conformance(*words: str) -> tuple[int, dict[str, Any]]:
    command = [sys.executable, "-m", "conformance", *words, "--json", "-"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=110)
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


@pytest.mark.slow
def test_a_clean_server_gets_a_clean_report(url: str) -> None:
    code, report = conformance("run", url)
    broken = [r["id"] for r in report["results"] if r["verdict"] in ("fail", "non-strict")]
    assert (code, broken) == (0, [])
    assert report["complete"] is True


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_found_and_gates(url: str, fault: str) -> None:
    check = fault.split(":")[0]
    code, report = conformance(
        "run", url, "--header", f"x-streamproof-fault: {fault}", "--select", check
    )
    verdicts = {r["verdict"] for r in report["results"] if r["id"] == check}
    assert code == 1
    assert "fail" in verdicts


@pytest.mark.slow
def test_two_judgements_of_what_was_recorded_are_the_same_bytes(url: str, tmp_path: Path) -> None:
    conformance("run", url, "--quick", "--captures", str(tmp_path))
    command = [sys.executable, "-m", "conformance", "judge", str(tmp_path), "--json", "-"]
    first, second = (subprocess.run(command, capture_output=True, check=False) for _ in range(2))
    assert first.stdout
    assert first.stdout == second.stdout
