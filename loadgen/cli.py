"""The `loadgen` command. It offers no load yet, and says so."""

from __future__ import annotations

import argparse
import sys

_EXAMPLE = """\
what it will be:
  loadgen run http://127.0.0.1:8000/v1 --model M --rate 5 --duration 60
"""


class _Version(argparse.Action):
    """`--version` that reads the metadata only when asked: importing its reader costs 20 ms."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from importlib.metadata import version

        print(f"streamproof {version('streamproof')}")
        parser.exit()


def main(argv: list[str] | None = None) -> int:
    """Run the command; returns the exit code (2: could not run)."""
    parser = argparse.ArgumentParser(
        prog="loadgen",
        description="Offer a known load to a streaming LLM endpoint. Not there yet.",
        epilog=_EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version and exit")
    parser.parse_known_args(argv)
    print("loadgen: not yet: this release has only `conformance` and its server", file=sys.stderr)
    return 2
