"""`--ray` on a real cluster of two nodes in this machine. Ray itself runs in other processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import trio

from conformance.errors import StreamproofError, UsageError
from loadgen import actors
from tests.demo import serving
from tests.loadgen.ray_cluster import LOOPBACK
from tests.loadgen.test_workers import LOADGEN, LONG, SHORT, asked, finished, gone, played, told

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("address", "why"),
    [("127.0.0.1:9", "--ray 127.0.0.1:9: nobody answers"), ("here", "expected HOST:PORT")],
)
def test_an_address_where_no_cluster_answers_is_one_line(address: str, why: str) -> None:
    async def main() -> None:
        async with actors.actors(address, 2):
            raise AssertionError("there is no cluster")

    with pytest.raises(StreamproofError, match=why) as raised:
        trio.run(main)
    assert "\n" not in str(raised.value)


@dataclass(frozen=True, slots=True)
class Nodes:
    """A cluster: its address, and the folder that only its processes know."""

    address: str
    folder: str

    def started(self, count: int) -> list[int]:
        """The pids of its actors, once there are so many."""
        limit = time.monotonic() + 60
        while len(found := [pid for pid in processes() if self._acts(pid)]) < count:
            assert time.monotonic() < limit
            time.sleep(0.1)
        return found

    def _acts(self, pid: int) -> bool:
        """An actor calls itself after the method that it runs."""
        named = said(pid, "cmdline").startswith("ray::Worker.")
        return named and f"RAY_TMPDIR={self.folder}" in said(pid, "environ").split("\0")


def processes() -> Iterator[int]:
    return (int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdecimal())


def said(pid: int, name: str) -> str:
    try:
        return Path(f"/proc/{pid}/{name}").read_text(errors="replace")
    except OSError:
        return ""


@contextmanager
def cluster() -> Iterator[Nodes]:
    """Sockets need a short path, so it is not pytest's folder."""
    with tempfile.TemporaryDirectory(prefix="ray-") as folder:
        command = [sys.executable, "-m", "tests.loadgen.ray_cluster", folder]
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            cwd=ROOT,
        )
        try:
            assert process.stdout is not None
            yield Nodes(process.stdout.readline().strip(), folder)
        finally:
            process.communicate(timeout=60)


@pytest.fixture(scope="module")
def nodes() -> Iterator[Nodes]:
    with cluster() as found, pytest.MonkeyPatch.context() as patch:
        for name, value in LOOPBACK.items():
            patch.setenv(name, value)
        yield found


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with serving("--step-ms", "10", "--max-batch", "64") as found:
        yield found


@pytest.mark.slow
@pytest.mark.ray
@pytest.mark.timeout(240)
def test_two_nodes_of_two_workers_play_what_one_process_plays(
    nodes: Nodes, url: str, tmp_path: Path
) -> None:
    one = played(url, tmp_path / "one.json", *SHORT)
    words = (*SHORT, "--workers", "4", "--ray", nodes.address)
    four = played(url, tmp_path / "four.json", *words)
    assert asked(four) == asked(one)
    assert [row["index"] for row in four["rows"]] == list(range(60))
    assert told(four) == told(one)
    workers = four["workers"]["each"]
    places = [each["place"].split("node ")[1] for each in workers]
    assert sorted(places.count(place) for place in set(places)) == [2, 2]
    assert all(each["alive"] and each["sent"] == 15 for each in workers)
    least, most = four["workers"]["starts_apart"]
    assert least == most < 0.05


@pytest.mark.slow
@pytest.mark.ray
@pytest.mark.timeout(240)
def test_more_workers_than_the_cluster_has_cores_are_refused_at_once(
    nodes: Nodes, url: str
) -> None:
    words = ("--workers", "5", "--ray", nodes.address)
    done = subprocess.run([LOADGEN, "run", url, *SHORT, *words], capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr == "loadgen: --workers 5: the cluster has 4 CPUs, one for each worker\n"


@pytest.mark.slow
@pytest.mark.ray
@pytest.mark.timeout(240)
def test_an_actor_that_is_killed_is_named_and_none_outlives_the_run(
    nodes: Nodes, url: str, tmp_path: Path
) -> None:
    file = tmp_path / "run.json"
    words = [*LONG[:-2], "--requests", "160", "--ray", nodes.address, "--json", str(file)]
    before = finished(url)
    with subprocess.Popen(
        [LOADGEN, "run", url, *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        pids = nodes.started(2)
        while finished(url) < before + 20:
            time.sleep(0.05)
        os.kill(pids[0], signal.SIGKILL)
        text, _ = process.communicate(timeout=100)
    assert process.returncode == 3
    assert f"(pid {pids[0]} on 127.0.0.1, node " in text
    assert "ActorDiedError: The actor is dead because its worker process has died" in text
    assert "80 of 80 requests are in no figure" in text
    assert gone(pids)


@pytest.mark.slow
@pytest.mark.ray
@pytest.mark.timeout(240)
def test_the_actors_of_a_driver_that_is_killed_end(nodes: Nodes, url: str) -> None:
    with subprocess.Popen(
        [LOADGEN, "run", url, *LONG, "--ray", nodes.address],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as process:
        pids = nodes.started(2)
        process.kill()
    limit = time.monotonic() + 60  # Ray's own, to notice
    while not gone(pids):
        assert time.monotonic() < limit


def test_without_the_extra_one_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(actors, "_answers", lambda address: None)
    monkeypatch.setitem(sys.modules, "ray", None)

    async def main() -> None:
        async with actors.actors("auto", 2):
            raise AssertionError("there is no Ray")

    with pytest.raises(
        UsageError, match=r"--ray needs the extra: pip install 'streamproof\[ray\]'"
    ):
        trio.run(main)
