"""Options of `loadgen report` and `loadgen compare`."""

from __future__ import annotations

import argparse

from conformance.options import percent


def configure_report(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN.json", help="what `loadgen run --json` wrote")
    add_definitions(parser)
    _add_files(parser, ("json", "jsonl", "csv", "html"))


def add_definitions(parser: argparse._ActionsContainer) -> None:
    parser.add_argument(
        "--definitions", action="store_true",
        help="also by the definitions of vLLM bench, GuideLLM, AIPerf, inference-perf, MLPerf",
    )  # fmt: skip


def configure_compare(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("a", metavar="A.json", help="what `loadgen run --json` wrote: the base")
    parser.add_argument("b", metavar="B.json", help="the same load on what may have become worse")
    parser.add_argument(
        "--threshold", metavar="PERCENT", type=percent, default=5.0,
        help="differences up to that part of A do not matter (default %(default)g)",
    )  # fmt: skip
    parser.add_argument("--seed", metavar="N", type=int, default=7, help="default %(default)d")
    _add_files(parser, ("json", "html"))


def _add_files(parser: argparse.ArgumentParser, forms: tuple[str, ...]) -> None:
    for form in forms:
        parser.add_argument(
            f"--{form}", metavar="FILE", action="append", default=[],
            help="repeatable; - is stdout",
        )  # fmt: skip
    parser.add_argument("--debug", action="store_true", help="tracebacks for errors of ours")
