"""`--workers 2` for real: processes that share a load, die, are interrupted, and leave nobody."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.demo import serving

pytestmark = pytest.mark.slow
LOADGEN = str(Path(sys.executable).parent / "loadgen")
LOAD = ("--rate", "20", "--arrivals", "poisson", "--output-tokens", "10", "--tokenizer", "words")
SHORT = (*LOAD, "--requests", "60")
LONG = (*LOAD, "--duration", "60")


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with serving("--step-ms", "10", "--max-batch", "64") as found:
        yield found


def played(url: str, file: Path, *words: str) -> dict[str, Any]:
    """On a busy machine it may not be valid; what was asked is the same."""
    command = [LOADGEN, "run", url, "--json", str(file), *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode in (0, 3), done.stderr
    found: dict[str, Any] = json.loads(file.read_text())
    return found


def asked(run: dict[str, Any]) -> set[tuple[int, float, str]]:
    start = run["window"]["start"]
    return {
        (row["index"], round(row["intended"] - start, 6), row["prompt_hash"]) for row in run["rows"]
    }


def told(run: dict[str, Any]) -> dict[str, Any]:
    """What does not hang on who played it."""
    usage = [row["completion_tokens"] for row in run["rows"]]
    return {
        **{name: run[name] for name in ("requests", "complete", "target")},
        "judged": run["checks"]["judged"],
        "tokens": sum(usage),
        "prompts": sum(row["prompt_tokens"] for row in run["rows"]),
    }


def test_two_processes_play_what_one_plays(url: str, tmp_path: Path) -> None:
    one = played(url, tmp_path / "one.json", *SHORT)
    folder = tmp_path / "kept"
    two = played(url, tmp_path / "two.json", *SHORT, "--workers", "2", "--captures", str(folder))
    assert asked(two) == asked(one)
    assert told(two) == told(one)
    assert two["requests"]["sent"] == 60
    assert sorted(row["index"] for row in two["rows"]) == list(range(60))
    workers = two["workers"]
    assert [each["scheduled"] for each in workers["each"]] == [30, 30]
    assert all(each["alive"] and each["lag"] is not None for each in workers["each"])
    least, most = workers["starts_apart"]
    assert least == most < 0.05  # by one clock: it is known, and not the way of the messages
    assert two["load"]["pacing"] == one["load"]["pacing"]
    kept = [int(file.stem.split("-")[1]) for file in folder.iterdir()]
    assert {index % 2 for index in kept} == {0, 1}
    assert len(kept) <= 20


class Running:
    """A run by two workers, and whatever belongs to it."""

    def __init__(self, url: str, file: Path, *words: str) -> None:
        self.url, self.file = url, file
        self.before = finished(url)
        command = [LOADGEN, "run", url, "--json", str(file), "--workers", "2", *words]
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )

    def workers(self) -> list[int]:
        """Their pids, once the load is well under way."""
        limit = time.monotonic() + 60
        while finished(self.url) < self.before + 20:
            assert time.monotonic() < limit
            time.sleep(0.05)
        found = children(self.process.pid)
        assert len(found) == 2
        return found

    def ended(self) -> tuple[int, str, dict[str, Any]]:
        text, _ = self.process.communicate(timeout=60)
        return self.process.returncode, text, json.loads(self.file.read_text())


def finished(url: str) -> int:
    """Requests that the server has answered whole."""
    with urllib.request.urlopen(f"{url.removesuffix('/v1')}/stats") as answer:
        return int(json.load(answer)["engine"]["finished"])


def children(pid: int) -> list[int]:
    """Of any of its threads."""
    tasks = Path(f"/proc/{pid}/task").glob("*/children")
    return sorted(int(each) for task in tasks for each in task.read_text().split())


def gone(pids: list[int]) -> bool:
    """Some time after whoever they belong to; one that nobody waits for is gone too."""
    limit = time.monotonic() + 20
    while any(_runs(pid) for pid in pids):
        if time.monotonic() > limit:
            return False
        time.sleep(0.02)
    return True


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_worker_that_is_killed_is_named_and_counted(url: str, tmp_path: Path) -> None:
    running = Running(url, tmp_path / "run.json", *LOAD, "--requests", "160")
    pids = running.workers()
    os.kill(pids[1], signal.SIGKILL)
    code, text, run = running.ended()
    assert code == 3
    (lost,) = [each for each in run["workers"]["each"] if not each["alive"]]
    number = lost["number"]
    assert f"lost: worker {number} (pid {pids[1]}): killed by SIGKILL; 80 of 80 requests" in text
    assert (run["valid"], run["complete"], run["workers"]["missing"]) == (False, False, 80)
    assert [each["reason"] for each in run["reasons"]][-1] == "worker_lost"
    assert run["requests"]["scheduled"] == 80
    assert {row["index"] % 2 for row in run["rows"]} == {1 - number}
    assert gone(pids)


def test_ctrl_c_leaves_what_both_had(url: str, tmp_path: Path) -> None:
    running = Running(url, tmp_path / "run.json", *LONG)
    pids = running.workers()
    running.process.send_signal(signal.SIGINT)
    code, _, run = running.ended()
    requests = run["requests"]
    assert (code, run["complete"]) == (3, False)
    assert requests["scheduled"] == requests["sent"] + requests["cancelled"] > 1000
    assert requests["succeeded"] > 5
    assert all(each["alive"] and each["sent"] > 0 for each in run["workers"]["each"])
    assert gone(pids)


def test_the_workers_of_a_parent_that_is_killed_end(url: str, tmp_path: Path) -> None:
    running = Running(url, tmp_path / "run.json", *LONG)
    pids = running.workers()
    running.process.kill()
    running.process.communicate()
    assert gone(pids)
