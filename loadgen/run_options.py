"""Options of `loadgen run`. Nothing heavy is imported: `--help` must start at once."""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping

from conformance.options import count, percent, positive
from conformance.run_options import DEFAULT_KEY, add_connection
from loadgen.again_options import add_definitions
from loadgen.clients import LEAVING, READING

APIS = ("chat", "completions")
LENGTH = "N, A..B, normal:M,S or lognormal:M,S"


def configure(parser: argparse.ArgumentParser) -> None:
    """Every option of `run`."""
    add_url(parser)
    add_endpoint(parser)
    _add_load(parser)
    add_workload(parser)
    _add_clients(parser)
    _add_against(parser)
    add_gates(parser)
    _add_reports(parser)
    add_connection(parser)


def add_url(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "url", metavar="URL", help="API base (…/v1) or server root: http://…, https://…, unix:PATH"
    )


def add_endpoint(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("endpoint")
    group.add_argument("--model", metavar="M", help="default: the first that the endpoint lists")
    group.add_argument("--api", choices=APIS, default="chat", help="default %(default)s")
    group.add_argument(
        "--header", metavar="K:V", action="append", default=[], help="added to every request"
    )
    group.add_argument(
        "--api-key-env", metavar="NAME",
        help=f"variable with the API key (default {DEFAULT_KEY}); never printed, never stored",
    )  # fmt: skip


def _add_load(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("load (one of the first four)")
    kinds = group.add_mutually_exclusive_group(required=True)
    kinds.add_argument("--rate", metavar="R", type=positive_number, help="requests a second")
    kinds.add_argument("--concurrency", metavar="C", type=positive, help="clients of a closed loop")
    kinds.add_argument(
        "--stages", metavar="SPEC", help="RATE:SECONDS or FROM..TO:SECONDS, with commas between"
    )
    kinds.add_argument(
        "--trace", metavar="FILE",
        help='JSON lines {"at", "input_tokens", "output_tokens"} or Mooncake\'s (with hash_ids: '
        "what prompts share), Azure CSV",
    )  # fmt: skip
    group.add_argument("--duration", metavar="S", type=positive_number, help="seconds of load")
    group.add_argument("--requests", metavar="N", type=positive, help="requests in all")
    group.add_argument(
        "--warmup", metavar="S", type=number, default=0.0,
        help="seconds at the start that count in no figure (default %(default)g)",
    )  # fmt: skip
    group.add_argument(
        "--max-requests", metavar="N", type=positive, help="send no more; the rest is dropped"
    )
    group.add_argument(
        "--max-tokens-total", metavar="N", type=positive,
        help="send no request by which those of all prompts and max_tokens could exceed N",
    )  # fmt: skip
    add_arrivals(group)
    add_workers(group)
    group.add_argument(
        "--solo", metavar="N", type=positive,
        help="ask at temperature 0; afterwards ask N of the requests twice more, alone, and say "
        "how many answers are the same (gates nothing)",
    )  # fmt: skip
    group.add_argument(
        "--repeat", metavar="N", type=positive,
        help="runs of the load, one after the other, each with the next seed (default 1)",
    )  # fmt: skip


def add_workers(group: argparse._ActionsContainer) -> None:
    group.add_argument(
        "--workers", metavar="N", type=positive,
        help="processes that share the load; each reads, measures and judges its own answers",
    )  # fmt: skip
    group.add_argument(
        "--ray", metavar="ADDRESS",
        help="workers on a Ray cluster (auto, HOST:PORT; extra `ray`), one a node unless --workers",
    )  # fmt: skip


def add_arrivals(group: argparse._ActionsContainer) -> None:
    group.add_argument(
        "--arrivals",
        metavar="SPEC",
        help="constant (default), poisson or gamma:CV",
    )
    group.add_argument("--seed", metavar="N", type=count, default=7, help="default %(default)d")
    group.add_argument(
        "--clock", choices=("user", "kernel", "packet"),
        help="times of what is received: the kernel's stamps (default on Linux, but for unix "
        "sockets), when a read returned, or when its packets arrived (Linux, CAP_NET_RAW, no TLS)",
    )  # fmt: skip


def add_workload(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("what is asked")
    group.add_argument(
        "--input-tokens", metavar="SPEC",
        help=f"tokens of the prompt as usage counts them, template included: {LENGTH} (128 words)",
    )  # fmt: skip
    group.add_argument(
        "--output-tokens", metavar="SPEC",
        help=f"max_tokens of each request: {LENGTH} (64; of conversations in a file 4/3 of the "
        "words of its answers)",
    )  # fmt: skip
    group.add_argument(
        "--tokenizer", metavar="HOW",
        help="how a prompt comes to its tokens: auto (the endpoint's /tokenize, else usage), "
        "endpoint, usage, words (one a token), or a FILE or DIR with a tokenizer.json",
    )  # fmt: skip
    group.add_argument(
        "--prompts", metavar="FILE",
        help='one prompt a line: text, {"prompt"}, {"messages"} or ShareGPT\'s {"conversations"}; '
        "or a JSON array of these",
    )  # fmt: skip
    group.add_argument(
        "--turns", metavar="SPEC",
        help=f"sessions of so many turns, each with the answers before it: {LENGTH}; rate, "
        "concurrency and requests then count sessions",
    )  # fmt: skip
    group.add_argument(
        "--think", metavar="SPEC", help="seconds from an answer's end to the next turn (0)"
    )
    group.add_argument(
        "--prefix", metavar="SPEC",
        help="SHARE%%:TOKENS:GROUPS: that share begins with one of GROUPS texts of TOKENS tokens",
    )  # fmt: skip
    group.add_argument(
        "--stream", choices=("on", "off"), help="off: ask for every answer in one piece"
    )
    group.add_argument("--plain", metavar="SHARE", help="ask for that share in one piece")
    group.add_argument(
        "--mix", metavar="FILE",
        help="YAML list of parts with name, weight, and what they ask, under the names of these "
        "options; figures of each part",
    )  # fmt: skip


def _add_clients(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group(
        "clients that are not ordinary (SHARE%:WAY, repeatable; a number may be A..B, exp:M, "
        "normal:M,S, lognormal:M,S)"
    )
    for flag, ways in (("--leave", LEAVING), ("--read", READING)):
        said = " · ".join(way.said for way in ways.values())
        group.add_argument(flag, metavar="SPEC", action="append", default=[], help=said)
    group.add_argument(
        "--retry", metavar="TIMES:SECONDS",
        help="who runs out of patience before the first byte asks again, so long after",
    )  # fmt: skip


def _add_against(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("a second endpoint, compared with the first")
    group.add_argument(
        "--against", metavar="URL2",
        help="play the load on both, in turns: --repeat pairs (default 8) of runs in drawn order, "
        "never both at once; exit 1 where URL2 is worse than URL",
    )  # fmt: skip
    group.add_argument(
        "--against-model", metavar="M", help="default: that of --model, else the first it lists"
    )
    group.add_argument(
        "--against-key-env", metavar="NAME",
        help="variable with the API key for URL2; without, it gets none",
    )  # fmt: skip
    group.add_argument(
        "--threshold", metavar="PERCENT", type=percent,
        help="differences up to that part of URL's figure do not matter (default 5)",
    )  # fmt: skip


def add_gates(
    parser: argparse.ArgumentParser, slo: str = "METRIC:STAT OP VALUE, e.g. ttft:p99<500ms"
) -> None:
    group = parser.add_argument_group("what gates")
    group.add_argument(
        "--slo", metavar="SPEC", action="append", default=[], help=f"{slo}; repeatable"
    )
    group.add_argument(
        "--max-failures", metavar="N|PERCENT", default="0",
        help="requests that may fail, or break a MUST (default %(default)s)",
    )  # fmt: skip
    group.add_argument(
        "--checks", metavar="GATE,…|none", default="wire,shape",
        help="checks of every answer (default %(default)s)",
    )  # fmt: skip


def _add_reports(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("reports")
    files = {"json": "the run", "jsonl": "a line a request", "csv": "the same"}
    add_files(group, {**files, "html": "a page with plots"})
    add_definitions(group)
    group.add_argument(
        "--captures", metavar="DIR",
        help="keep a sample of the exchanges there, the lost ones first, for `conformance judge`",
    )  # fmt: skip
    add_watching(group)


def add_files(group: argparse._ActionsContainer, forms: Mapping[str, str]) -> None:
    """`forms`: form of a report → what it holds."""
    for form, what in forms.items():
        group.add_argument(
            f"--{form}", metavar="FILE", action="append", default=[],
            help=f"{what}; repeatable; - is stdout",
        )  # fmt: skip


def add_watching(group: argparse._ActionsContainer) -> None:
    group.add_argument(
        "--metrics", metavar="URL|none", default="auto",
        help="the server's own metrics page (default: the one beside the API, if there is one)",
    )  # fmt: skip
    group.add_argument("--debug", action="store_true", help="tracebacks for errors of ours")


def number(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value <= 1e7:
        raise argparse.ArgumentTypeError(f"expected a number from 0 to 10000000; got {text!r}")
    return value


def positive_number(text: str) -> float:
    value = number(text)
    if value < 1e-3:
        raise argparse.ArgumentTypeError("expected at least 0.001")
    return value
