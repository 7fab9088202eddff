"""A line more in the file of host names, seen by one child process alone."""

from __future__ import annotations

import shutil
import subprocess
from functools import cache
from pathlib import Path

import pytest

HOSTS = Path("/etc/hosts")
# $1 is laid over $2 in a mount namespace of its own, which ends with the command.
SCRIPT = 'mount --bind "$1" "$2" && shift 2 && exec "$@"'
WAYS = (("unshare", "--mount"), ("unshare", "--mount", "--map-root-user"))


@cache
def _way() -> tuple[str, ...]:
    """How this system gives a process a namespace of its own; skips where it does not."""
    if not HOSTS.is_file():
        pytest.skip(f"no {HOSTS} to lay another over")
    said = "no unshare command"
    for way in WAYS if shutil.which("unshare") else ():
        tried = subprocess.run(
            [*way, "sh", "-c", SCRIPT, "sh", str(HOSTS), str(HOSTS), "true"],
            capture_output=True, text=True,
        )  # fmt: skip
        if tried.returncode == 0:
            return way
        said = tried.stderr.strip()
    pytest.skip(f"no mount namespace to lay another {HOSTS} over: {said}")


def with_host(name: str, address: str, folder: Path, command: list[str]) -> list[str]:
    """`command`, so that it takes `name` for `address`; the machine's file is not touched."""
    way = _way()
    copy = folder / "hosts"
    copy.write_text(f"{HOSTS.read_text()}\n{address} {name}\n")
    return [*way, "sh", "-c", SCRIPT, "sh", str(copy), str(HOSTS), *command]
