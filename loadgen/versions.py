"""Which version of ourselves wrote a report."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as installed

from loadgen.export import TOOL


def version() -> str:
    try:
        return installed(TOOL)
    except PackageNotFoundError:  # run from a checkout that was never installed
        return "unknown"
