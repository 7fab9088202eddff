"""The command `loadgen`. Parsers only; each command imports what it needs when it is called."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from conformance.errors import StreamproofError
from conformance.options import OneLineParser

DESCRIPTION = "Offer a known load to a streaming LLM endpoint and learn what its users would feel."
EXAMPLES = {
    "loadgen": "loadgen run http://127.0.0.1:8000/v1 --rate 5 --duration 60",
    "run": "loadgen run http://127.0.0.1:8000/v1 --rate 5 --duration 60 --arrivals poisson "
    "--slo 'ttft:p99<500ms' --json run.json",
    "sweep": "loadgen sweep http://127.0.0.1:8000/v1 --slo 'ttft:p90<500ms' --slo 'tpot:p90<50ms'",
    "compare": "loadgen compare before.json after.json --threshold 10",
    "report": "loadgen report run.json --csv requests.csv",
    "selftest": "loadgen selftest --full --json selftest.json",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command. Returns the exit code: 0, 1, 2 or 3, and nothing else."""
    args = build_parser().parse_args(argv)
    try:
        code: int = args.command(args)
    except StreamproofError as error:
        code = _refused(error, args)
    except KeyboardInterrupt:
        code = _complain("interrupted")
    except Exception as error:  # our own mistake: still one line, unless --debug asks for more
        code = _refused(error, args, f"internal error: {type(error).__name__}: ")
    _flush()
    return code


def build_parser() -> argparse.ArgumentParser:
    """The whole command line. Imports no heavy library."""
    parser = OneLineParser(
        prog="loadgen", description=DESCRIPTION, epilog=f"example: {EXAMPLES['loadgen']}"
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version and stop")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    _add_run(commands)
    _add_sweep(commands)
    _add_compare(commands)
    _add_report(commands)
    _add_selftest(commands)
    return parser


def _add_run(commands: argparse._SubParsersAction[OneLineParser]) -> None:
    from loadgen import run_options

    parser = commands.add_parser(
        "run",
        help="offer one load and report what came of it",
        description="Offer one load and report what came of it. Exit: 2 could not run, 3 the "
        "result is not valid, 1 an objective was missed or too many requests failed, else 0.",
        epilog=f"example: {EXAMPLES['run']}",
        allow_abbrev=False,
    )
    run_options.configure(parser)
    parser.set_defaults(command=_run)


def _add_sweep(commands: argparse._SubParsersAction[OneLineParser]) -> None:
    from loadgen import sweep_options

    parser = commands.add_parser(
        "sweep",
        help="find the highest rate that meets every objective",
        description="Find the highest rate that meets every objective, and where it breaks. Exit: "
        "2 could not run, 3 it could not be told, 1 no rate meets them, else 0.",
        epilog=f"example: {EXAMPLES['sweep']}",
        allow_abbrev=False,
    )
    sweep_options.configure(parser)
    parser.set_defaults(command=_sweep)


def _add_compare(commands: argparse._SubParsersAction[OneLineParser]) -> None:
    from loadgen import again_options

    parser = commands.add_parser(
        "compare",
        help="say whether the second of two runs is worse, or the difference is noise",
        description="Say whether the second of two runs of one load is worse, or the difference is "
        "noise. Exit: 2 not comparable, 3 one of them is not valid or too short, 1 worse, else 0.",
        epilog=f"example: {EXAMPLES['compare']}",
        allow_abbrev=False,
    )
    again_options.configure_compare(parser)
    parser.set_defaults(command=_compare)


def _add_report(commands: argparse._SubParsersAction[OneLineParser]) -> None:
    from loadgen import again_options

    parser = commands.add_parser(
        "report",
        help="render a stored run again",
        description="Render what `loadgen run --json` wrote again. Exit: 0, or 2 for a bad file.",
        epilog=f"example: {EXAMPLES['report']}",
        allow_abbrev=False,
    )
    again_options.configure_report(parser)
    parser.set_defaults(command=_report)


def _add_selftest(commands: argparse._SubParsersAction[OneLineParser]) -> None:
    from loadgen import selftest_options

    parser = commands.add_parser(
        "selftest",
        help="the tool's own error and limits on this machine",
        description="Load the bundled scripted server, which keeps a record of its writes, and say "
        "by how much the measured times are off. Exit: 2 could not run, 3 a load was not valid, "
        "else 0.",
        epilog=f"example: {EXAMPLES['selftest']}",
        allow_abbrev=False,
    )
    selftest_options.configure(parser)
    parser.set_defaults(command=_selftest)


def _selftest(args: argparse.Namespace) -> int:
    from loadgen import selftest_command

    return selftest_command.main(args)


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
    from loadgen import run_command

    return run_command.main(args)


class _Version(argparse.Action):
    """`--version` that reads the metadata only when asked: importing its reader costs 20 ms."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from importlib.metadata import version

        print(f"streamproof {version('streamproof')}")
        parser.exit()


def _refused(error: Exception, args: argparse.Namespace, head: str = "") -> int:
    if getattr(args, "debug", False):
        raise error
    return _complain(head + str(error))


def _complain(words: str) -> int:
    from conformance.report.escape import terminal

    print(f"loadgen: {terminal(words)}", file=sys.stderr)
    return 2


def _flush() -> None:
    """Leave nothing for the interpreter's own flush, which would print a traceback."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    sys.exit(main())
