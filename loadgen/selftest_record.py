"""The last selftest of this machine, kept where caches are kept (XDG), for reports to quote."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from conformance.capture import Json

AT_MOST = 1 << 20  # bytes


def machine() -> str:
    """The name by which a record is known to be of this machine."""
    return f"{platform.node()} {platform.machine()} {platform.release()} {os.cpu_count()}"


def path(environment: Mapping[str, str] = os.environ) -> Path:
    """XDG Base Directory: "$XDG_CACHE_HOME", or "$HOME/.cache" where it is empty or not set."""
    cache = environment.get("XDG_CACHE_HOME", "")
    root = Path(cache) if os.path.isabs(cache) else Path.home() / ".cache"
    return root / "streamproof" / "selftest.json"


def store(report: Mapping[str, Json]) -> None:
    """Where it cannot be written, reports have nothing to quote; no more is lost."""
    with suppress(OSError, RuntimeError):
        place = path()
        place.parent.mkdir(parents=True, exist_ok=True)
        part = place.with_suffix(f".{os.getpid()}")
        part.write_text(json.dumps(report, allow_nan=False), encoding="utf-8")
        part.replace(place)


def quoted() -> Json:
    """When it was, and what it said of each load; None: none of this machine is on record."""
    with suppress(OSError, RuntimeError, ValueError):
        place = path()
        if place.stat().st_size > AT_MOST:
            return None
        report = json.loads(place.read_text(encoding="utf-8"))
        if isinstance(report, dict) and report.get("machine") == machine():
            return {"at": report.get("at"), "loads": report.get("loads")}
    return None
