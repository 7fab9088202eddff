"""The command `conformance`. Parsers only; each command imports what it needs when it is called."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from conformance.entry import Version, execute
from conformance.options import OneLineParser, add_gating, add_reports, add_selection, day

DESCRIPTION = "Is this stream right? Checks an OpenAI-compatible endpoint, or what was recorded."
EXAMPLES = {
    "conformance": "conformance run http://127.0.0.1:8000/v1",
    "run": "conformance run http://127.0.0.1:8000/v1 --quick --junit report.xml",
    "judge": "curl -siN --raw URL -d @request.json > dump; "
    "conformance judge dump --request request.json",
    "list": "conformance list --json",
    "show": "conformance show sse.bom",
    "replay": "conformance replay dossiers/chat-stream.jsonl#done.missing",
    "tap": "conformance tap 127.0.0.1:9000 http://127.0.0.1:8000",
    "diff": "conformance diff yesterday.json today.json",
    "baseline": "conformance baseline report.json --reason since-1.4 -o known.yaml",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command. Returns the exit code: 0, 1 or 2, and nothing else."""
    return execute("conformance", build_parser().parse_args(argv))


def build_parser() -> argparse.ArgumentParser:
    """The whole command line. Imports no heavy library."""
    parser = OneLineParser(
        prog="conformance", description=DESCRIPTION, epilog=f"example: {EXAMPLES['conformance']}"
    )
    parser.add_argument("--version", action=Version, help="print the version and stop")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    _add_run(commands)
    _add_judge(commands)
    _add_list(commands)
    _add_show(commands)
    _add_replay(commands)
    _add_tap(commands)
    _add_diff(commands)
    _add_baseline(commands)
    return parser


def _subparser(
    commands: argparse._SubParsersAction[OneLineParser], name: str, help: str
) -> OneLineParser:
    return commands.add_parser(
        name,
        help=help,
        description=f"{help[0].upper()}{help[1:]}.",
        epilog=f"example: {EXAMPLES[name]}",
        allow_abbrev=False,
    )


def _add_run(commands: argparse._SubParsersAction[OneLineParser]) -> None:
    from conformance import run_options

    parser = _subparser(commands, "run", "check an endpoint")
    run_options.configure(parser)
    parser.set_defaults(command=_run)


def _add_judge(commands: argparse._SubParsersAction[OneLineParser]) -> None:
    parser = _subparser(commands, "judge", "judge what is already recorded, without any network")
    parser.add_argument(
        "files", metavar="FILE", nargs="+",
        help="dossier, capture, folder of them, response dump (curl -siN --raw), "
        "event-stream body, HAR, JSON lines; - is stdin",
    )  # fmt: skip
    group = parser.add_argument_group("what the record does not say")
    group.add_argument("--request", metavar="FILE", help="JSON body of the request")
    group.add_argument("--plain", metavar="FILE", help="the non-streamed text, or its JSON answer")
    group.add_argument("--status", metavar="N", type=_status, help="status of a bare body")
    group.add_argument("--content-type", metavar="TYPE", help="content type of a bare body")
    group.add_argument("--dialect", metavar="NAME", help="overlay of a server's known deviations")
    parser.add_argument(
        "--sample", metavar="ID", action="append", default=[], help="only these JSON-lines samples"
    )
    add_selection(parser)
    add_gating(parser, 0.0)
    add_reports(parser)
    parser.set_defaults(command=_judge)


def _add_list(commands: argparse._SubParsersAction[OneLineParser]) -> None:
    parser = _subparser(commands, "list", "list every check")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="everything that `show` prints, as JSON")
    form.add_argument("--markdown", action="store_true", help="the table as Markdown")
    add_selection(parser)
    parser.add_argument("--debug", action="store_true", help="tracebacks for errors of ours")
    parser.set_defaults(command=_list)


def _add_show(commands: argparse._SubParsersAction[OneLineParser]) -> None:
    parser = _subparser(commands, "show", "show everything about one check")
    parser.add_argument("id", metavar="ID")
    parser.add_argument("--specs", metavar="DIR", action="append", default=[])
    parser.add_argument("--debug", action="store_true", help="tracebacks for errors of ours")
    parser.set_defaults(command=_show)


def _add_replay(commands: argparse._SubParsersAction[OneLineParser]) -> None:
    from conformance.run_options import add_connection, add_metrics

    parser = _subparser(commands, "replay", "provoke a failure again: FIXED, FAILED or ERROR")
    parser.add_argument(
        "what", metavar="DOSSIER#ID", help="a file that `--captures` kept, and a check it breaks"
    )
    parser.add_argument("--url", metavar="URL", help="send it there, not where it was recorded")
    parser.add_argument(
        "--api-key-env", metavar="NAME", help="variable with the API key, if not the recorded one"
    )
    add_metrics(parser)
    add_connection(parser)
    parser.add_argument("--captures", metavar="DIR", help="keep the new dossier in this folder")
    parser.add_argument("--specs", metavar="DIR", action="append", default=[])
    parser.add_argument("--debug", action="store_true", help="tracebacks for errors of ours")
    parser.set_defaults(command=_replay)


def _add_tap(commands: argparse._SubParsersAction[OneLineParser]) -> None:
    parser = _subparser(commands, "tap", "a recording reverse proxy that judges what passes")
    parser.add_argument(
        "listen", metavar="LISTEN", help="PORT (on loopback) or HOST:PORT; 0 is any free port"
    )
    parser.add_argument(
        "upstream", metavar="UPSTREAM", help="http://…, https://… or unix:PATH; paths pass as asked"
    )
    group = parser.add_argument_group("upstream")
    group.add_argument("--cacert", metavar="FILE", help="PEM file of trusted authorities")
    group.add_argument("--cert", metavar="FILE", help="PEM file of the tap's certificate")
    group.add_argument("--key", metavar="FILE", help="PEM file of its key, if not in --cert")
    group.add_argument("--insecure", action="store_true", help="accept any certificate")
    group.add_argument("--dialect", metavar="NAME", help="overlay of known deviations")
    group.add_argument(
        "--api-key-env", metavar="NAME", help="variable with the key that passes, to mask by name"
    )
    add_selection(parser)
    add_gating(parser, 0.0)
    add_reports(parser)
    parser.add_argument("--captures", metavar="DIR", help="keep every exchange in this folder")
    parser.set_defaults(command=_tap, proxy=None, connect_to=None)


def _add_diff(commands: argparse._SubParsersAction[OneLineParser]) -> None:
    parser = _subparser(commands, "diff", "what changed between two reports")
    parser.add_argument("old", metavar="OLD.json", help="a report that `--json` wrote")
    parser.add_argument("new", metavar="NEW.json", help="a later one; exit 1 if anything got worse")
    parser.add_argument(
        "--json", metavar="FILE", action="append", default=[], help="repeatable; - is stdout"
    )
    parser.add_argument("--debug", action="store_true", help="tracebacks for errors of ours")
    parser.set_defaults(command=_diff)


def _add_baseline(commands: argparse._SubParsersAction[OneLineParser]) -> None:
    parser = _subparser(commands, "baseline", "write a report's failures as a baseline")
    parser.add_argument("report", metavar="REPORT.json", help="as `--json` wrote it")
    parser.add_argument("--reason", metavar="TEXT", required=True, help="why these are known")
    parser.add_argument("--issue", metavar="URL", help="where they are followed up")
    parser.add_argument(
        "--until", metavar="DATE", type=day, help="the last day on which they are excused"
    )
    parser.add_argument(
        "-o", "--output", metavar="FILE", help="YAML, or JSON if it ends in .json (default stdout)"
    )
    parser.add_argument("--debug", action="store_true", help="tracebacks for errors of ours")
    parser.set_defaults(command=_baseline)


def _status(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 100 <= int(text[:4]) <= 999):
        raise argparse.ArgumentTypeError(f"expected an HTTP status such as 200; got {text!r}")
    return int(text)


def _run(args: argparse.Namespace) -> int:
    from conformance import run

    code: int = run.main(args)
    return code


def _judge(args: argparse.Namespace) -> int:
    from conformance import judge_command

    return judge_command.main(args)


def _list(args: argparse.Namespace) -> int:
    from conformance import list_command

    return list_command.list_cases(args)


def _show(args: argparse.Namespace) -> int:
    from conformance import list_command

    return list_command.show_case(args)


def _replay(args: argparse.Namespace) -> int:
    from conformance.replay import command

    return command.main(args)


def _tap(args: argparse.Namespace) -> int:
    from conformance.tap import command

    return command.main(args)


def _diff(args: argparse.Namespace) -> int:
    from conformance import diff_command

    return diff_command.main(args)


def _baseline(args: argparse.Namespace) -> int:
    from conformance import baseline_command

    return baseline_command.main(args)


if __name__ == "__main__":
    sys.exit(main())
