"""`loadgen experiment`: a few loads that answer one question, and the table that they come to."""

from __future__ import annotations

import argparse
import os
import resource
import sys

from conformance.errors import UsageError
from conformance.options import OneLineParser
from conformance.report.escape import terminal
from conformance.schema import did_you_mean
from loadgen import progress, run_options
from loadgen.experiments import page
from loadgen.experiments.figures import Shot
from loadgen.experiments.outcome import Gates, csv_lines, dumps, outcome_of, render
from loadgen.experiments.playing import Playing
from loadgen.experiments.reports import REPORTS
from loadgen.experiments.spec import MOST, Experiment, find, known
from loadgen.experiments.table import known_columns, markdown, parse_bound
from loadgen.interrupting import running
from loadgen.output import Outputs
from loadgen.setup import DESCRIPTORS_OF_OURS, Setup, parse_allowed, setup_from_args
from loadgen.versions import version

NAMED = ("streams", "input_tokens", "output_tokens", "repeat")


def main(args: argparse.Namespace) -> int:
    """The command. Returns the exit code; raises StreamproofError for what cannot run."""
    experiment = find(args.name)
    playing = playing_from_args(args, experiment)
    gates = gates_from_args(args, experiment)
    wanted = {"json": args.json, "csv": args.csv, "markdown": args.markdown, "html": args.html}
    with Outputs(wanted) as outputs:
        try:
            running(playing.play, tell)
        except KeyboardInterrupt:
            playing.complete = False
        made = outcome_of(
            experiment, playing.options, playing.shots, gates, complete=playing.complete
        )
        outputs.write("json", iter([dumps(made, args.url, version())]))
        outputs.write("csv", csv_lines(made.table))
        outputs.write("markdown", iter([markdown(made.table)]))
        outputs.write("html", page.parts(made, playing.shots, args.url))
        outputs.tell(render(made))
    return made.exit


def listing() -> str:
    """Each with its sizes. Raises SpecError."""
    lines = []
    for name, each in known().items():
        sizes = " ".join(f"{key}={value}" for key, value in each.options.items())
        lines.append(f"{name}\n    {each.title}\n    {sizes}\n")
    return "".join(lines)


def tell(shot: Shot, number: int, most: int) -> None:
    """A line on stderr for each load that ended, on a terminal."""
    if not progress.wanted():
        return
    books = shot.result.summary.books
    said = f"{books.sent} sent, {books.succeeded} whole, {shot.result.failed} failed"
    print(terminal(f"{number} of {most}: {shot.turn.name}: {said}"), file=sys.stderr, flush=True)


def playing_from_args(args: argparse.Namespace, experiment: Experiment) -> Playing:
    """Raises UsageError and SpecError."""
    options = options_of(args, experiment)
    plain = plain_setup(args, options.get(experiment.doubling or "", 0))
    return Playing(experiment, options, plain, args.seed)


def options_of(args: argparse.Namespace, experiment: Experiment) -> dict[str, int]:
    """The experiment's, and what was said. Raises UsageError for what it does not have."""
    given = {name: value for name in NAMED if (value := getattr(args, name)) is not None}
    given.update(args.set)
    for name, value in given.items():
        if name not in experiment.options:
            words = ", ".join(experiment.options)
            hint = did_you_mean(name, experiment.options)
            raise UsageError(f"{experiment.name} has no {name}{hint}; it has {words}")
        if value > MOST:
            raise UsageError(f"{name}: expected at most {MOST}")
    return {**experiment.options, **given}


def gates_from_args(args: argparse.Namespace, experiment: Experiment) -> Gates:
    """Raises UsageError for a bound on what the table does not have."""
    own = tuple(parse_bound(text) for text in experiment.bounds)
    asked = tuple(parse_bound(text) for text in args.slo)
    known_columns((*own, *asked), REPORTS[experiment.report].columns)
    allowed = parse_allowed(args.max_failures)
    return Gates(own, asked, allowed.text, allowed.most, allowed.share)


def plain_setup(args: argparse.Namespace, most: int) -> Setup:
    """What `run` would make of the same options, for a load that is none yet. `most`: streams."""
    parser = OneLineParser()
    run_options.configure(parser)
    base = vars(parser.parse_args([args.url, "--concurrency", "1", "--requests", "1"]))
    said = {name: value for name, value in vars(args).items() if name in base}
    unsaid = {name: base[name] for name in ("slo", "input_tokens", "output_tokens", "repeat")}
    values = argparse.Namespace(**{**base, **said, **unsaid})
    return setup_from_args(values, os.environ, files_for(most))


def files_for(streams: int) -> int:
    """How many files we may open: where these are too few for so many streams, as many as may be
    had. (The soft limit is low for programs that use select; none of ours does.)"""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = streams + DESCRIPTORS_OF_OURS
    most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft == resource.RLIM_INFINITY or soft >= most:
        return wanted if soft == resource.RLIM_INFINITY else soft
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    return most
