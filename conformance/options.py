"""Options that `run` and `judge` share. Nothing heavy is imported: `--help` must start at once."""

from __future__ import annotations

import argparse
from datetime import date
from typing import NoReturn


class OneLineParser(argparse.ArgumentParser):
    """Usage errors in one line on stderr, exit code 2."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message} (see {self.prog} --help)\n")


def comma_list(text: str) -> tuple[str, ...]:
    """`a,b` as ("a", "b")."""
    parts = tuple(part.strip() for part in text.split(","))
    if not all(parts):
        raise argparse.ArgumentTypeError(f"expected NAME,NAME,…; got {text!r}")
    return parts


def count(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 15):
        raise argparse.ArgumentTypeError(f"expected a whole number; got {text!r}")
    return int(text)


def positive(text: str) -> int:
    value = count(text)
    if value < 1:
        raise argparse.ArgumentTypeError("expected at least 1")
    return value


def percent(text: str) -> float:
    try:
        value = float(text.removesuffix("%"))
    except ValueError:
        value = -1.0
    if not 0 <= value <= 100:
        raise argparse.ArgumentTypeError(f"expected a percentage from 0 to 100; got {text!r}")
    return value


def add_selection(parser: argparse.ArgumentParser) -> None:
    """Which checks: `--profile --select --skip --gate --specs`."""
    group = parser.add_argument_group("which checks")
    group.add_argument("--profile", metavar="NAME", help="a frozen set of checks, e.g. must-chat")
    group.add_argument(
        "--select", metavar="GLOB", action="append", default=[], help="only these ids; repeatable"
    )
    group.add_argument(
        "--skip", metavar="GLOB", action="append", default=[], help="not these ids; repeatable"
    )
    group.add_argument(
        "--gate", metavar="GATE,…", type=comma_list, default=(), help="wire, shape, behaviour"
    )
    group.add_argument(
        "--specs", metavar="DIR", action="append", default=[], help="add a folder of cases"
    )


def add_gating(parser: argparse.ArgumentParser, min_conclusive: float) -> None:
    """What turns the exit code: `--strict --clients --min-conclusive`."""
    group = parser.add_argument_group("what gates")
    group.add_argument(
        "--strict", action="store_true", help="sentences of level should gate as well"
    )
    group.add_argument(
        "--clients",
        metavar="NAME,…",
        type=comma_list,
        default=(),
        help="what breaks these clients counts as a failure",
    )
    group.add_argument(
        "--min-conclusive",
        metavar="PERCENT",
        type=percent,
        default=min_conclusive,
        help="fail if fewer of the must checks were decided (default %(default)g)",
    )
    group.add_argument(
        "--baseline", metavar="FILE", help="known failures, which do not gate (YAML or JSON)"
    )


def day(text: str) -> date:
    """`2027-01-31`."""
    try:
        if len(text) != 10:  # no week dates, no basic format
            raise ValueError
        return date.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"expected a day such as 2027-01-31; got {text!r}"
        ) from None


def add_reports(parser: argparse.ArgumentParser) -> None:
    """`--json --junit --markdown FILE`, each repeatable, `-` is stdout; and `--debug`."""
    group = parser.add_argument_group("reports")
    for form in ("json", "junit", "markdown"):
        group.add_argument(
            f"--{form}", metavar="FILE", action="append", default=[], help="repeatable; - is stdout"
        )
    group.add_argument("--debug", action="store_true", help="tracebacks for errors of ours")
