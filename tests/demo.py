"""`make demo`: the checker and a short load on the bundled server, then three faults in it.

Exit 0 if the clean server is clean and every fault is found, 1 if not, 2 if it could not be tried.
A load that is not valid (a busy machine) says why, and is no fault of the server.
"""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

BIN = Path(sys.executable).parent
# A fault is named after the check that must catch it: one of framing, one of shape, one of an end.
FAULTS = ("sse.bom", "chunk.id-changes", "done.missing")
SCRIPTED = "scripted"
NOT_VALID = 3  # exit code of a load whose figures are not to be trusted


class DemoError(Exception):
    """What kept the server from answering, in one line."""


@contextmanager
def serving(*options: str, model: str = SCRIPTED) -> Iterator[str]:
    """A reference server on a free port; its API base. It is gone when the block ends."""
    command = [str(BIN / "reference-server"), "--model", model, "--port", "0", *options]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        first = server.stdout.readline()
        if not first:
            raise DemoError(f"the reference server ended at once with code {server.wait()}")
        yield json.loads(first)["url"]
    finally:
        _end(server)


def _end(server: subprocess.Popen[str]) -> None:
    for order in (signal.SIGTERM, signal.SIGTERM, signal.SIGKILL):  # drain, stop, end
        server.send_signal(order)
        try:
            server.communicate(timeout=5)
        except subprocess.TimeoutExpired:
            continue
        return


def check(url: str, report: Path) -> int:
    """Run the checker with its table on our stdout; its exit code."""
    return subprocess.run([BIN / "conformance", "run", url, "--json", report]).returncode


def load(url: str, model: str) -> int:
    """Four seconds of load with its table on our stdout; its exit code."""
    words = ["--rate", "5", "--duration", "4", "--arrivals", "poisson"]
    if model != SCRIPTED:  # a small model ends some answers before their first token
        words += ["--max-failures", "75%"]
    return subprocess.run([BIN / "loadgen", "run", url, *words]).returncode


def failed(report: Path) -> set[str]:
    """Ids that the report does not simply pass: fail, or non-strict where a should is broken."""
    results = json.loads(report.read_text())["results"]
    return {r["id"] for r in results if r["verdict"] in ("fail", "inconsistent", "non-strict")}


def demo(folder: Path, model: str) -> int:
    print(f"The bundled server with its model {model}, as it is:\n", flush=True)
    with serving(model=model) as url:
        code = check(url, folder / "clean.json")
        if code == 0:
            print("\nFive requests a second for four seconds:\n", flush=True)
            code = load(url, model)
            code = 0 if code == NOT_VALID else code
    if code != 0:
        print(f"\ndemo: the clean server was not clean (exit {code})", file=sys.stderr)
        return 1 if code == 1 else 2

    print(f"\nThe same server with three faults: {', '.join(FAULTS)}\n", flush=True)
    faults = [word for fault in FAULTS for word in ("--fault", fault)]
    with serving(*faults, model=model) as url:
        code = check(url, folder / "faulty.json")
    if code == 2:
        return 2
    missed = set(FAULTS) - failed(folder / "faulty.json")
    if missed or code != 1:
        print(f"\ndemo: not found: {', '.join(sorted(missed))} (exit {code})", file=sys.stderr)
        return 1
    print(f"\nClean as it is, and {len(FAULTS)} of {len(FAULTS)} faults found.")
    return 0


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="demo")
    parser.add_argument("--model", default=SCRIPTED, help="as reference-server takes it")
    model = parser.parse_args(argv).model
    with tempfile.TemporaryDirectory(prefix="streamproof-demo-") as folder:
        try:
            return demo(Path(folder), model)
        except DemoError as error:
            print(f"demo: {error}", file=sys.stderr)
            return 2


if __name__ == "__main__":
    sys.exit(main())
