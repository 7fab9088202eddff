"""Options of `loadgen experiment`. Nothing heavy is imported: `--help` must start at once."""

from __future__ import annotations

import argparse
from typing import Any

from conformance.options import count, positive
from conformance.run_options import add_connection
from loadgen import run_options

LIST = "list"
SLO = "COLUMN OP VALUE on every line of the table, e.g. gap-p99<50ms"


class Help(argparse.Action):
    """Reads the experiments only when asked: their files are YAML."""

    def __init__(self, option_strings: list[str], dest: str, **rest: Any) -> None:
        super().__init__(option_strings, argparse.SUPPRESS, nargs=0, help=rest.get("help"))

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from loadgen.experiments.spec import known

        lines = [f"  {name:<14}{each.title}" for name, each in known().items()]
        parser.epilog = "\n".join(["experiments:", *lines, "", str(parser.epilog)])
        parser.print_help()
        parser.exit(0)


class Name(argparse.Action):
    """`list` needs no URL."""

    def __call__(
        self, parser: argparse.ArgumentParser, space: argparse.Namespace, values: Any, *_: object
    ) -> None:
        if values == LIST:
            from loadgen.experiments.command import listing

            print(listing(), end="")
            parser.exit(0)
        setattr(space, self.dest, values)


def configure(parser: argparse.ArgumentParser) -> None:
    """Every option of `experiment`; the parser has no help of its own yet."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("-h", "--help", action=Help, help="show this help message and exit")
    parser.add_argument(
        "name", metavar="NAME", action=Name,
        help="one of those below, a .yaml file of your own, or `list` for their sizes",
    )  # fmt: skip
    run_options.add_url(parser)
    run_options.add_endpoint(parser)
    _add_sizes(parser)
    run_options.add_gates(parser, SLO)
    _add_reports(parser)
    add_connection(parser)


def _add_sizes(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("sizes (each experiment has its own defaults: `list`)")
    group.add_argument("--streams", metavar="N", type=positive, help="streams at once")
    group.add_argument("--input-tokens", metavar="N", type=positive, help="words of a prompt")
    group.add_argument("--output-tokens", metavar="N", type=positive, help="max_tokens of a stream")
    group.add_argument("--repeat", metavar="N", type=positive, help="rounds of all loads")
    group.add_argument(
        "--set", metavar="NAME=N", type=setting, action="append", default=[],
        help="any of its sizes by name; repeatable",
    )  # fmt: skip
    group.add_argument("--seed", metavar="N", type=count, default=7, help="default %(default)d")
    group.add_argument(
        "--clock", choices=("user", "kernel"),
        help="times of what is received, as for `run`",
    )  # fmt: skip


def _add_reports(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("reports")
    tables = dict.fromkeys(("csv", "markdown"), "the table")
    forms = {"json": "all of it", **tables, "html": "a page with plots"}
    run_options.add_files(group, forms)
    run_options.add_watching(group)


def setting(text: str) -> tuple[str, int]:
    """`crowd=40`."""
    name, mark, number = text.partition("=")
    if not mark or not name:
        raise argparse.ArgumentTypeError(f"expected NAME=N; got {text!r}")
    return name.strip(), count(number.strip())
