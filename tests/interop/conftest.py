"""Servers that nobody here wrote, each in an environment of its own, set up once and kept."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.demo import serving as serving_reference
from tests.interop.llama import ENVIRONMENT, Running, install, serving


@pytest.fixture(scope="session")
def reference_url() -> Iterator[str]:
    """The bundled server, one token in 20 ms, so that a burst can be told from a stream."""
    with serving_reference("--step-ms", "20") as url:
        yield url


@pytest.fixture(scope="session")
def llama_python() -> Path:
    """The python that has the packages: $STREAMPROOF_LLAMA_PYTHON, else one set up here."""
    if given := os.environ.get("STREAMPROOF_LLAMA_PYTHON"):
        return Path(given)
    try:
        return install(ENVIRONMENT)
    except subprocess.CalledProcessError as failed:
        last = (failed.stderr or "").strip().splitlines()[-1:] or ["pip said nothing"]
        pytest.skip(f"llama.cpp's packages cannot be installed: {last[0]}")
    except subprocess.TimeoutExpired as late:
        pytest.skip(f"llama.cpp's packages cannot be installed: no end after {late.timeout:g} s")


@pytest.fixture(scope="session")
def llama(llama_python: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with serving(llama_python, tmp_path_factory.mktemp("llama") / "stderr.txt") as running:
        yield running
