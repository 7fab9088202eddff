"""A server of others: an environment with its packages, and the server as a process.

The defaults are llama.cpp's own HTTP server; serve.py names another.
"""

from __future__ import annotations

import json
import select
import subprocess
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
ENVIRONMENT = ROOT / ".components" / "llama"
REQUIREMENTS = HERE / "requirements.txt"
START = 120.0  # seconds; assembling the model on a cold cache is most of it


@dataclass(frozen=True, slots=True)
class Running:
    """A server that answers: `url` ends in /v1."""

    url: str
    model: str
    version: str


def install(environment: Path, requirements: Path | None = None) -> Path:
    """The environment's python, with `requirements` (a pip file; None: llama.cpp's) installed.

    A second call does nothing.
    """
    requirements = requirements or REQUIREMENTS
    python = environment / "bin" / "python"
    done = environment / "installed.txt"
    wanted = requirements.read_text()
    if done.is_file() and done.read_text() == wanted:
        return python
    venv.create(environment, with_pip=True)
    quiet = ["-qq", "--disable-pip-version-check", "--no-input"]
    command = [str(python), "-m", "pip", "install", *quiet, "-r", str(requirements)]
    subprocess.run(command, check=True, timeout=500, capture_output=True, text=True)
    done.write_text(wanted)
    return python


def first_line(process: subprocess.Popen[bytes], seconds: float) -> bytes:
    """The first line on stdout; empty if the process ended or said nothing in time."""
    assert process.stdout is not None
    ready, _, _ = select.select([process.stdout], [], [], seconds)
    return process.stdout.readline() if ready else b""


@contextmanager
def serving(
    python: Path, log: Path, script: str = "llama_server.py", start: float = START
) -> Iterator[Running]:
    """The server in a process of its own; what it prints itself goes to `log`."""
    command = [str(python), str(HERE / script)]
    with (
        log.open("wb") as stderr,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr) as process,
    ):
        try:
            line = first_line(process, start)
            assert line, f"{script} did not start:\n{log.read_text(errors='replace')}"
            yield Running(**json.loads(line))
        finally:
            process.terminate()
            try:
                process.wait(20)
            finally:
                process.kill()
