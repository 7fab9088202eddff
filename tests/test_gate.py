"""The gate itself: a skip that must not be one, and a machine that cannot set up."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tests.conftest import Room

ROOT = Path(__file__).resolve().parent.parent

SUITE = """
import pytest

@pytest.mark.absent
def test_with_a_component_that_is_nowhere(): pass

def test_that_asks_itself_to_be_skipped(): pytest.skip("no reason at all")

def test_that_no_gate_could_run(): pytest.skip("this machine: one core")

@pytest.mark.xfail(strict=True)
def test_that_is_expected_to_fail(): raise AssertionError
"""
LATE = "import pytest\npytest.skip('a whole module', allow_module_level=True)\n"


@pytest.mark.parametrize(
    ("required", "processes", "closing"),
    [
        ("", "0", "4 skipped, 1 xfailed"),
        ("1", "0", "1 failed, 1 skipped, 1 xfailed, 2 errors"),
        ("1", "2", "1 failed, 1 skipped, 1 xfailed, 2 errors"),
    ],
)
def test_a_skip_fails_where_components_are_required(
    required: str, processes: str, closing: str, tmp_path: Path
) -> None:
    conftest = (ROOT / "tests" / "conftest.py").read_text()
    absent = conftest.replace('"chromium": _command("chromium")', '"absent": _command("no such")')
    (tmp_path / "conftest.py").write_text(absent)
    (tmp_path / "test_suite.py").write_text(SUITE)
    (tmp_path / "test_late.py").write_text(LATE)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = absent: nowhere\n")
    words = [sys.executable, "-m", "pytest", "--continue-on-collection-errors", "-n", processes]
    env = os.environ | {"STREAMPROOF_REQUIRE_COMPONENTS": required}
    done = subprocess.run(words, cwd=tmp_path, env=env, capture_output=True, text=True)
    assert closing in done.stdout.splitlines()[-1]
    assert ("set, yet: Skipped: absent is not installed" in done.stdout) == bool(required)


def test_who_is_alone_comes_into_an_empty_room_and_before_those_who_come_later(
    tmp_path: Path,
) -> None:
    entered: list[str] = []

    def enter(name: str, alone: bool) -> None:
        with Room(tmp_path).taken(alone):
            entered.append(name)

    later = threading.Thread(target=enter, args=("shares it", False))
    alone = threading.Thread(target=enter, args=("is alone", True))
    with Room(tmp_path).taken(alone=False):
        enter("shares it too", False)
        alone.start()
        until_shut(tmp_path / "door")
        later.start()
        later.join(0.05)  # it cannot be in too soon, however long it takes
        assert entered == ["shares it too"]
    for thread in (alone, later):
        thread.join()
    assert entered == ["shares it too", "is alone", "shares it"]


def until_shut(door: Path) -> None:
    limit = time.monotonic() + 20
    with door.open("w") as file:
        while True:
            assert time.monotonic() < limit
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return
            fcntl.flock(file, fcntl.LOCK_UN)
            time.sleep(0.001)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, tmp_path)
    return tmp_path


def make(folder: Path, python: str) -> subprocess.CompletedProcess[str]:
    words = ["make", "--silent", "setup", f"PYTHON={python}"]
    return subprocess.run(words, cwd=folder, capture_output=True, text=True)


def pretend(folder: Path, script: str) -> str:
    """A python3 that answers as `script` says."""
    program = folder / "python3"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return str(program)


def test_a_python_that_is_too_old_is_named_in_one_line(checkout: Path) -> None:
    done = make(checkout, pretend(checkout, "exit 1"))
    assert done.returncode != 0
    assert "is missing or older than 3.11" in done.stderr.splitlines()[0]
    assert not (checkout / ".venv").exists()


def test_a_missing_venv_module_is_named_in_one_line(checkout: Path) -> None:
    done = make(checkout, pretend(checkout, 'case "$2" in *ensurepip*) exit 1;; esac'))
    assert done.returncode != 0
    assert "has no venv module" in done.stderr.splitlines()[0]
    assert not (checkout / ".venv").exists()


def test_what_is_set_up_is_not_set_up_again(checkout: Path) -> None:
    (checkout / ".venv").mkdir()
    (checkout / ".venv" / "set-up").touch()
    done = make(checkout, "/no/such/python")
    assert (done.returncode, done.stderr) == (0, "")


TORCH = """
import pytest

@pytest.mark.torch
def test_that_needs_torch(): pass
"""


def test_a_test_that_needs_torch_is_skipped_without_it_and_says_how_to_get_it(
    tmp_path: Path,
) -> None:
    conftest = (ROOT / "tests" / "conftest.py").read_text()
    (tmp_path / "conftest.py").write_text(conftest.replace('find_spec("torch")', "None"))
    (tmp_path / "test_suite.py").write_text(TORCH)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = torch: the extra\n")
    env = os.environ | {"STREAMPROOF_REQUIRE_COMPONENTS": ""}
    words = [sys.executable, "-m", "pytest", "-rs"]
    done = subprocess.run(words, cwd=tmp_path, env=env, capture_output=True, text=True)
    assert "torch is not installed (make reference installs it)" in done.stdout
    assert "1 skipped" in done.stdout.splitlines()[-1]
