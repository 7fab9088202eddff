"""`loadgen run --against URL2`: one load on two endpoints in turns, and which of them is worse."""

from __future__ import annotations

import argparse
import os
import resource
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from conformance.errors import UsageError
from conformance.run_options import DEFAULT_KEY
from loadgen.against import PAIRS, turns, versus, write
from loadgen.compare import THRESHOLD
from loadgen.interrupting import Shelter
from loadgen.output import Outputs
from loadgen.run_command import played
from loadgen.setup import AUTO, NONE, Setup, setup_from_args
from loadgen.versions import version

SIDE = "b"  # what tells the second's marks from the first's


def main(args: argparse.Namespace) -> int:
    """The command. Returns the exit code; raises StreamproofError for what cannot run."""
    descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    order = turns(args.repeat or PAIRS, args.seed)
    setups = setups_of(args, order, os.environ, descriptors)
    wanted = {"json": args.json, "jsonl": args.jsonl, "csv": args.csv, "html": args.html}
    with Outputs(wanted) as outputs, Shelter() as shelter:
        threshold = THRESHOLD if args.threshold is None else args.threshold / 100
        made = versus(list(played(setups, shelter)), order, args.seed, threshold)
        write(outputs, made, version(), definitions=args.definitions)
    return made.exit


def refuse(args: argparse.Namespace) -> None:
    """Without a second endpoint. Raises UsageError for what only that one has a use for."""
    for name in ("against_model", "against_key_env", "threshold"):
        if getattr(args, name) is not None:
            raise UsageError(f"--{name.replace('_', '-')} is for --against URL2")


def setups_of(
    args: argparse.Namespace,
    order: tuple[int, ...],
    environment: Mapping[str, str],
    descriptors: int,
) -> list[Setup]:
    """One for each turn; both turns of a pair have the same seed. Raises UsageError, SpecError."""
    out = []
    for turn, side in enumerate(order):
        given = argparse.Namespace(**{**vars(args), "seed": args.seed + turn // 2})
        out.append(
            _second(given, environment, descriptors)
            if side
            else setup_from_args(given, environment, descriptors)
        )
    return out


def _second(args: argparse.Namespace, environment: Mapping[str, str], descriptors: int) -> Setup:
    """The other endpoint gets no key that was not named for it."""
    known = dict(environment)
    if args.against_key_env is None:
        known.pop(DEFAULT_KEY, None)
    changed = {
        "url": args.against,
        "model": args.against_model or args.model,
        "api_key_env": args.against_key_env,
        "metrics": args.metrics if args.metrics in (AUTO, NONE) else AUTO,
        "captures": str(Path(args.captures) / "against") if args.captures else None,
    }
    setup = setup_from_args(argparse.Namespace(**{**vars(args), **changed}), known, descriptors)
    return replace(setup, workload=replace(setup.workload, side=SIDE))
