"""`loadgen sweep`: the highest rate that still meets every objective, and where it breaks."""

from __future__ import annotations

import argparse
import json
import os
import resource
import sys

from conformance.capture import Json
from conformance.errors import UsageError
from conformance.report.escape import terminal
from loadgen.export import SCHEMA, TOOL
from loadgen.interrupting import running
from loadgen.knee import Search, Trial
from loadgen.output import Outputs
from loadgen.quantiles import least
from loadgen.setup import Setup, setup_from_args
from loadgen.slo import Slo, parse_slo
from loadgen.sweep import Make, sweep
from loadgen.versions import version

SPARE = 1.2  # times the requests that the rarest percentile asks for
UNSAID = {
    **dict.fromkeys(("concurrency", "stages", "trace", "requests", "solo", "max_requests")),
    **dict.fromkeys(("max_tokens_total", "captures", "retry")),
    "leave": (),
    "read": (),
    "metrics": "none",
}


def main(args: argparse.Namespace) -> int:
    """The command. Returns the exit code; raises StreamproofError for what cannot run."""
    if args.least > args.most:
        raise UsageError(f"--from {args.least:g} is above --to {args.most:g}")
    make = maker(args)
    search = Search(args.least, args.most, args.resolution / 100, args.trials)
    make(args.least, 0)  # what cannot run is said before anything is sent
    with Outputs({"json": args.json}) as outputs:
        complete = played(make, search, args.settle)
        text = json.dumps(document(search, args, complete=complete), indent=1, allow_nan=False)
        outputs.write("json", iter([text + "\n"]))
        outputs.tell(heading(args) + render(search, complete=complete))
    return exit_of(search, complete=complete)


def maker(args: argparse.Namespace) -> Make:
    """From a rate and the number of a trial to its setup. Raises UsageError."""
    slos = [parse_slo(text) for text in args.slo]
    if not slos:
        raise UsageError("sweep needs at least one --slo, e.g. --slo 'ttft:p99<500ms'")
    descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)

    def make(rate: float, number: int) -> Setup:
        seconds = max(args.duration, needed(slos) / rate) + args.warmup
        values = {**vars(args), **UNSAID, "rate": rate, "duration": seconds}
        values["seed"] = args.seed + number
        return setup_from_args(argparse.Namespace(**values), os.environ, descriptors)

    return make


def played(make: Make, search: Search, settle: float) -> bool:
    """False where it was interrupted."""

    def tell(trial: Trial) -> None:
        print(terminal(line(trial)), file=sys.stderr, flush=True)

    try:
        running(sweep, make, search, settle, tell)
    except KeyboardInterrupt:
        return False
    return search.rate is None


def needed(slos: list[Slo]) -> float:
    """Requests that let every percentile be told."""
    return max((SPARE * least(slo.q) for slo in slos if slo.q is not None), default=1.0)


def line(trial: Trial) -> str:
    detail = f": {trial.detail}" if trial.detail else ""
    return f"{trial.rate:.4g}/s {trial.outcome.value}{detail}"


def exit_of(search: Search, *, complete: bool) -> int:
    """3: it could not be told. 1: no rate was met. 0: there is a rate."""
    if search.untold is not None or not complete:
        return 3
    return int(search.met is None)


def heading(args: argparse.Namespace) -> str:
    """What was looked for, and where."""
    rates = f"{args.least:g} to {args.most:g} requests a second, within {args.resolution:g} %"
    return f"{terminal(args.url)}: {terminal(', '.join(args.slo))}; {rates}\n"


def render(search: Search, *, complete: bool) -> str:
    lines = []
    if search.disagreed:
        rates = ", ".join(f"{rate:.4g}" for rate in search.disagreed)
        lines.append(f"trials did not agree at {rates}/s")
    if search.missed is not None:
        lines.append(f"breaks at {search.missed:.4g}/s: {'; '.join(search.why)}")
    if search.untold is not None:
        lines.append(f"not valid: at {line(search.untold)}")
    if not complete:
        lines.append("not complete: interrupted")
    lines.append(f"{_found(search)} · exit {exit_of(search, complete=complete)}")
    return "".join(f"{terminal(each)}\n" for each in lines)


def _found(search: Search) -> str:
    if search.met is None:
        return "no rate that was tried meets every objective"
    more = " (or more: none was missed)" if search.missed is None else ""
    return f"every objective is met up to {search.met:.4g} requests a second{more}"


def document(search: Search, args: argparse.Namespace, *, complete: bool) -> dict[str, Json]:
    """Rates are requests a second; null where there is none."""
    return {
        "schema": SCHEMA,
        "tool": {"name": TOOL, "version": version()},
        "command": "sweep",
        "url": args.url,
        "slo": list(args.slo),
        "complete": complete,
        "valid": search.untold is None and complete,
        "exit": exit_of(search, complete=complete),
        "met": search.met,
        "missed": search.missed,
        "why": list(search.why),
        "resolution": search.resolution,
        "disagreed": list(search.disagreed),
        "trials": [
            {"rate": t.rate, "outcome": t.outcome.value, "detail": t.detail} for t in search.told
        ],
    }
