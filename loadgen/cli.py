"""The command `loadgen`. Parsers only; each command imports what it needs when it is called."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence

from conformance.entry import Version, execute
from conformance.options import OneLineParser

DESCRIPTION = "Offer a known load to a streaming LLM endpoint and learn what its users would feel."
EXAMPLES = {
    "loadgen": "loadgen run http://127.0.0.1:8000/v1 --rate 5 --duration 60",
    "run": "loadgen run http://127.0.0.1:8000/v1 --rate 5 --duration 60 --arrivals poisson "
    "--slo 'ttft:p99<500ms' --json run.json",
    "sweep": "loadgen sweep http://127.0.0.1:8000/v1 --slo 'ttft:p90<500ms' --slo 'tpot:p90<50ms'",
    "experiment": "loadgen experiment overlap http://127.0.0.1:8000/v1 --streams 64",
    "compare": "loadgen compare before.json after.json --threshold 10",
    "report": "loadgen report run.json --csv requests.csv",
    "selftest": "loadgen selftest --full --json selftest.json",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command. Returns the exit code: 0, 1, 2 or 3, and nothing else."""
    words = sys.argv[1:] if argv is None else list(argv)
    parser = build_parser()
    if (empty := _empty(words)) is not None:
        parser.error(f"{empty}: expected a value, got none")
    return execute("loadgen", parser.parse_args(words))


def _empty(words: Sequence[str]) -> str | None:
    """The option whose value is empty, as where a shell's variable is not set; None: there is none.

    No option of ours has a use for that, and many would take it as if they were not given.
    """
    for before, word in zip(["an argument", *words], words, strict=False):
        if not word:
            return before
        if re.fullmatch("--[a-z-]+=", word):
            return word
    return None


def build_parser() -> argparse.ArgumentParser:
    """The whole command line. Imports no heavy library."""
    parser = OneLineParser(
        prog="loadgen", description=DESCRIPTION, epilog=f"example: {EXAMPLES['loadgen']}"
    )
    parser.add_argument("--version", action=Version, help="print the version and stop")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    _add_run(commands)
    _add_sweep(commands)
    _add_experiment(commands)
    _add_compare(commands)
    _add_report(commands)
    _add_selftest(commands)
    return parser


def _subparser(
    commands: argparse._SubParsersAction[OneLineParser], name: str, help_: str, description: str
) -> OneLineParser:
    return commands.add_parser(
        name,
        help=help_,
        description=description,
        epilog=f"example: {EXAMPLES[name]}",
        allow_abbrev=False,
    )


def _add_run(commands: argparse._SubParsersAction[OneLineParser]) -> None:
    from loadgen import run_options

    parser = _subparser(
        commands,
        "run",
        "offer one load and report what came of it",
        "Offer one load and report what came of it. Exit: 2 could not run, 3 the "
        "result is not valid, 1 an objective was missed or too many requests failed, else 0.",
    )
    run_options.configure(parser)
    parser.set_defaults(command=_run)


def _add_sweep(commands: argparse._SubParsersAction[OneLineParser]) -> None:
    from loadgen import sweep_options

    parser = _subparser(
        commands,
        "sweep",
        "find the highest rate that meets every objective",
        "Find the highest rate that meets every objective, and where it breaks. Exit: "
        "2 could not run, 3 it could not be told, 1 no rate meets them, else 0.",
    )
    sweep_options.configure(parser)
    parser.set_defaults(command=_sweep)


def _add_experiment(commands: argparse._SubParsersAction[OneLineParser]) -> None:
    from loadgen.experiments import options

    parser = commands.add_parser(
        "experiment",
        help="a few loads that answer one question: overlap, hang-ups, slow readers, leaks …",
        description="A few loads that answer one question, and the table that they come to. Exit: "
        "2 could not run,\n3 the result is not valid, 1 a bound was missed or too many requests "
        "failed, else 0.",
        epilog=f"example: {EXAMPLES['experiment']}",
        allow_abbrev=False,
        add_help=False,
    )
    options.configure(parser)
    parser.set_defaults(command=_experiment)


def _add_compare(commands: argparse._SubParsersAction[OneLineParser]) -> None:
    from loadgen import again_options

    parser = _subparser(
        commands,
        "compare",
        "say whether the second of two runs is worse, or the difference is noise",
        "Say whether the second of two runs of one load is worse, or the difference is "
        "noise. Exit: 2 not comparable, 3 one of them is not valid or too short, 1 worse, else 0.",
    )
    again_options.configure_compare(parser)
    parser.set_defaults(command=_compare)


def _add_report(commands: argparse._SubParsersAction[OneLineParser]) -> None:
    from loadgen import again_options

    parser = _subparser(
        commands,
        "report",
        "render a stored run again",
        "Render what `loadgen run --json` wrote again. Exit: 0, or 2 for a bad file.",
    )
    again_options.configure_report(parser)
    parser.set_defaults(command=_report)


def _add_selftest(commands: argparse._SubParsersAction[OneLineParser]) -> None:
    from loadgen import selftest_options

    parser = _subparser(
        commands,
        "selftest",
        "the tool's own error and limits on this machine",
        "Load the bundled scripted server, which keeps a record of its writes, and say "
        "by how much the measured times are off. Exit: 2 could not run, 3 a load was not valid, "
        "else 0.",
    )
    selftest_options.configure(parser)
    parser.set_defaults(command=_selftest)


def _selftest(args: argparse.Namespace) -> int:
    from loadgen import selftest_command

    return selftest_command.main(args)


def _experiment(args: argparse.Namespace) -> int:
    from loadgen.experiments import command

    return command.main(args)


def _sweep(args: argparse.Namespace) -> int:
    from loadgen import sweep_command

    return sweep_command.main(args)


def _compare(args: argparse.Namespace) -> int:
    from loadgen import again

    return again.compare(args)


def _report(args: argparse.Namespace) -> int:
    from loadgen import again

    return again.report(args)


def _run(args: argparse.Namespace) -> int:
    from loadgen import against_command, run_command

    if args.against is not None:
        return against_command.main(args)
    against_command.refuse(args)
    return run_command.main(args)


if __name__ == "__main__":
    sys.exit(main())
