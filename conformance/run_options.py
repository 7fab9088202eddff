"""Options of `conformance run`. Nothing heavy is imported: `--help` must start at once."""

from __future__ import annotations

import argparse
import math

from conformance.options import (
    add_gating,
    add_reports,
    add_selection,
    comma_list,
    count,
    positive,
)

MANNERS = ("polite", "heavy", "hostile")
DEFAULT_KEY = "OPENAI_API_KEY"
MIN_CONCLUSIVE = 80.0
NO_METRICS = "none"


def configure(parser: argparse.ArgumentParser) -> None:
    """Every option of `run`."""
    parser.add_argument(
        "url", metavar="URL", nargs="?",
        help="API base (…/v1) or server root: http://…, https://…, unix:PATH",
    )  # fmt: skip
    _add_endpoint(parser)
    add_connection(parser)
    _add_load(parser)
    add_selection(parser)
    add_gating(parser, MIN_CONCLUSIVE)
    add_reports(parser)
    parser.add_argument(
        "--captures", metavar="DIR", help="keep every dossier in this folder, for `judge`"
    )
    parser.add_argument(
        "--list-requests", action="store_true", help="print the plan and its bound, send nothing"
    )
    parser.add_argument("--verbose", action="store_true", help="a line for each scenario")


def _add_endpoint(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("endpoint")
    group.add_argument("--model", metavar="M", help="default: the first that the endpoint lists")
    group.add_argument(
        "--api", metavar="NAME,…", type=comma_list, default=(),
        help="chat, completions (default: every one that answers)",
    )  # fmt: skip
    group.add_argument("--target", metavar="FILE", help="YAML: everything about one endpoint")
    group.add_argument(
        "--header", metavar="K:V", action="append", default=[], help="added to every request"
    )
    group.add_argument(
        "--api-key-env", metavar="NAME",
        help=f"variable with the API key (default {DEFAULT_KEY}); never printed, never stored",
    )  # fmt: skip
    group.add_argument("--dialect", metavar="NAME", help="overlay of known deviations")
    add_metrics(group)


def add_metrics(parser: argparse._ActionsContainer) -> None:
    """Where the server's own metrics are."""
    parser.add_argument(
        "--metrics", metavar="URL|none",
        help="the server's Prometheus page (default: /metrics beside the API, if it has one)",
    )  # fmt: skip


def add_connection(parser: argparse.ArgumentParser) -> None:
    """How to reach an endpoint, and how long to wait for it."""
    group = parser.add_argument_group("connection")
    group.add_argument("--cacert", metavar="FILE", help="PEM file of trusted authorities")
    group.add_argument("--cert", metavar="FILE", help="PEM file of the client's certificate")
    group.add_argument("--key", metavar="FILE", help="PEM file of its key, if not in --cert")
    group.add_argument("--insecure", action="store_true", help="accept any certificate")
    group.add_argument(
        "--proxy", metavar="URL",
        help="http://[USER:PASSWORD@]HOST:PORT, asked with CONNECT; env:NAME is the variable's",
    )  # fmt: skip
    group.add_argument("--connect-to", metavar="HOST:PORT", help="dial this, whatever the URL says")
    group.add_argument(
        "--timeout", metavar="S", type=_seconds, default=60.0,
        help="seconds without progress (default %(default)g)",
    )  # fmt: skip


def _add_load(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("how much")
    group.add_argument(
        "--quick", action="store_true", help="one stream and one plain answer, wire and shape only"
    )
    group.add_argument("--trials", metavar="N", type=positive, help="runs of each scenario")
    group.add_argument(
        "--concurrency", metavar="N", type=positive,
        help="scenarios at once (default 4; 2 off loopback)",
    )  # fmt: skip
    group.add_argument(
        "--manners", choices=MANNERS, help="default: hostile on loopback, polite elsewhere"
    )
    group.add_argument("--max-requests", metavar="N", type=positive)
    group.add_argument(
        "--max-tokens-total", metavar="N", type=positive,
        help="prompt and completion together (default off loopback: 200000)",
    )  # fmt: skip
    group.add_argument(
        "--seed", metavar="N", type=count, default=7, help="sent as seed (default %(default)d)"
    )


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < 1e6:
        raise argparse.ArgumentTypeError(f"expected seconds; got {text!r}")
    return value
