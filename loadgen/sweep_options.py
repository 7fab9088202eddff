"""Options of `loadgen sweep`. Nothing heavy is imported: `--help` must start at once."""

from __future__ import annotations

import argparse

from conformance.options import percent, positive
from conformance.run_options import add_connection
from loadgen import run_options


def configure(parser: argparse.ArgumentParser) -> None:
    """Every option of `sweep`."""
    run_options.add_url(parser)
    run_options.add_endpoint(parser)
    _add_search(parser)
    run_options.add_workload(parser)
    run_options.add_gates(parser)
    parser.add_argument(
        "--json", metavar="FILE", action="append", default=[], help="repeatable; - is stdout"
    )
    parser.add_argument("--debug", action="store_true", help="tracebacks for errors of ours")
    add_connection(parser)


def _add_search(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("which rates, and how long each")
    number = run_options.positive_number
    group.add_argument(
        "--from", dest="least", metavar="R", type=number, default=1.0,
        help="requests a second to begin with (default %(default)g); it doubles from there",
    )  # fmt: skip
    group.add_argument(
        "--to", dest="most", metavar="R", type=number, default=10_000.0,
        help="none above it is tried (default %(default)g)",
    )  # fmt: skip
    group.add_argument(
        "--resolution", metavar="PERCENT", type=percent, default=5.0,
        help="how far apart met and missed may be in the end (default %(default)g)",
    )  # fmt: skip
    group.add_argument(
        "--trials", metavar="N", type=_odd, default=3,
        help="of each rate at most; their majority decides (default %(default)d)",
    )  # fmt: skip
    group.add_argument(
        "--duration", metavar="S", type=number, default=30.0,
        help="seconds of a trial, more where a percentile needs them (default %(default)g)",
    )  # fmt: skip
    group.add_argument(
        "--settle", metavar="S", type=run_options.number, default=2.0,
        help="seconds between trials (default %(default)g)",
    )  # fmt: skip
    group.add_argument(
        "--warmup", metavar="S", type=run_options.number, default=0.0,
        help="seconds at the start of a trial that count in no figure (default %(default)g)",
    )  # fmt: skip
    run_options.add_arrivals(group)
    run_options.add_workers(group)


def _odd(text: str) -> int:
    value = positive(text)
    if value % 2 == 0:
        raise argparse.ArgumentTypeError("expected an odd number, so that a majority decides")
    return value
