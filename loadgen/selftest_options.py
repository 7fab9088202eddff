"""Options of `loadgen selftest`. Nothing heavy is imported."""

from __future__ import annotations

import argparse


def configure(parser: argparse.ArgumentParser) -> None:
    """Every option of `selftest`."""
    parser.add_argument(
        "--full", action="store_true", help="1,000 streams besides the 100 of the usual load"
    )
    parser.add_argument(
        "--seconds", metavar="S", type=_seconds, default=6.0,
        help="of either load (default %(default)g)",
    )  # fmt: skip
    parser.add_argument(
        "--clock",
        choices=("user", "kernel", "packet"),
        help="default: the kernel's stamps where there are any",
    )
    parser.add_argument(
        "--json", metavar="FILE", action="append", default=[],
        help="the figures; repeatable; - is stdout",
    )  # fmt: skip
    parser.add_argument("--debug", action="store_true", help="tracebacks for errors of ours")


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 1 <= value <= 3600:
        raise argparse.ArgumentTypeError(f"expected a number from 1 to 3600; got {text!r}")
    return value
