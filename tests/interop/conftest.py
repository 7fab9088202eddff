"""Servers that nobody here wrote, each in an environment of its own, set up once and kept."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.demo import serving as serving_reference
from tests.interop import serve
from tests.interop.llama import ENVIRONMENT, Running, install, serving


@pytest.fixture(scope="session")
def reference_url() -> Iterator[str]:
    """The bundled server, one token in 20 ms, so that a burst can be told from a stream."""
    with serving_reference("--step-ms", "20") as url:
        yield url


def python_of(server: str, environment: Path, requirements: Path | None = None) -> Path:
    """The python that has the packages: $STREAMPROOF_<SERVER>_PYTHON, else one set up here."""
    if given := os.environ.get(f"STREAMPROOF_{server.upper()}_PYTHON"):
        return Path(given)
    try:
        return install(environment, requirements)
    except subprocess.CalledProcessError as failed:
        last = (failed.stderr or "").strip().splitlines()[-1:] or ["pip said nothing"]
        pytest.skip(f"the packages of {server} cannot be installed: {last[0]}")
    except subprocess.TimeoutExpired as late:
        pytest.skip(f"the packages of {server} cannot be installed: no end in {late.timeout:g} s")


@pytest.fixture(scope="session")
def llama_python() -> Path:
    return python_of("llama", ENVIRONMENT)


@pytest.fixture(scope="session")
def llama(llama_python: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with serving(llama_python, tmp_path_factory.mktemp("llama") / "stderr.txt") as running:
        yield running


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """`transformers serve` with the same model."""
    python = python_of("serve", serve.ENVIRONMENT, serve.REQUIREMENTS)
    log = tmp_path_factory.mktemp("serve") / "stderr.txt"
    with serving(python, log, serve.SCRIPT, serve.START) as running:
        yield running
