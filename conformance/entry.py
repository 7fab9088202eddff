"""How a command of ours begins and ends: its version, its one line for an error, its exit code."""

from __future__ import annotations

import argparse
import os
import sys

from conformance.errors import StreamproofError


class Version(argparse.Action):
    """Looks the version up only when asked: importing its reader costs 20 ms."""

    def __init__(self, option_strings: list[str], dest: str, **rest: str | None) -> None:
        super().__init__(option_strings, dest, nargs=0, help=rest.get("help"))

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from conformance.report.model import TOOL, tool_version

        print(f"{TOOL} {tool_version()}")
        parser.exit(0)


def execute(name: str, args: argparse.Namespace) -> int:
    """The exit code of `args.command`, or 2 and one line on stderr that begins with `name`.

    `args.debug` lets what was raised pass on, for a traceback.
    """
    try:
        code: int = args.command(args)
    except StreamproofError as error:
        code = _refused(name, error, args)
    except KeyboardInterrupt:
        code = _complain(name, "interrupted")
    except Exception as error:  # our own mistake: still one line, unless --debug asks for more
        code = _refused(name, error, args, f"internal error: {type(error).__name__}: ")
    _flush()
    return code


def _refused(name: str, error: Exception, args: argparse.Namespace, head: str = "") -> int:
    if getattr(args, "debug", False):
        raise error
    return _complain(name, head + str(error))


def _complain(name: str, words: str) -> int:
    from conformance.report.escape import terminal

    print(f"{name}: {terminal(words)}", file=sys.stderr)
    return 2


def _flush() -> None:
    """Leave nothing for the interpreter's own flush, which would print a traceback."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
