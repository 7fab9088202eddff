"""What each fault of the reference server trips, under a virtual clock and over real sockets.

python -m tests.fault_matrix      renders tests/data/fault-matrix.md again
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import trio
import trio.testing

from conformance.findings import Result, Verdict
from conformance.judge import Policy, judge
from conformance.options import OneLineParser
from conformance.run import execute
from conformance.run_options import DEFAULT_KEY, configure
from conformance.run_report import Recorded
from conformance.run_setup import setup_from_args
from conformance.specs import known_cases
from reference_server.bridge import Bridge
from reference_server.engine.scripted import ScriptedEngine
from reference_server.faults.fault import Fault
from reference_server.faults.table import FAULTS, seams_for
from reference_server.wire.server import Server, Settings

STEP_S = 0.01
KEY = "sk-matrix"  # so that a wrong one is tried as well
MATRIX = Path(__file__).parent / "data" / "fault-matrix.md"
CASES = {case.id: case for case in known_cases()}
NOT_CAUGHT = "**not caught**"
BROKEN = (Verdict.FAIL, Verdict.NON_STRICT, Verdict.INFO, Verdict.INCONSISTENT)


def run(faults: Sequence[Fault], *words: str, key: str | None = None) -> Recorded:
    """One `conformance run` with these flags against a server with these faults."""
    recorded = Recorded()

    async def main() -> None:
        bridge = Bridge(ScriptedEngine(16, seed=7), STEP_S)
        server = Server(bridge, Settings(api_key=key), seams=seams_for(faults))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(bridge.run)
            listeners = await nursery.start(trio.serve_tcp, server.serve_connection, 0)
            parser = OneLineParser()
            configure(parser)
            port = listeners[0].socket.getsockname()[1]
            args = parser.parse_args([f"http://127.0.0.1:{port}/v1", *words])
            made = setup_from_args(args, {DEFAULT_KEY: key or ""})
            await execute(made, recorded, lambda line: None)
            nursery.cancel_scope.cancel()

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
    return recorded


def results(recorded: Recorded) -> tuple[Result, ...]:
    """Every check's verdict on what was recorded, whichever was selected."""
    unsupported = {
        (endpoint.api, name): why
        for endpoint in recorded.endpoints
        for name, why in endpoint.unsupported.items()
    }
    return judge(recorded.dossiers, tuple(CASES.values()), Policy(unsupported=unsupported))


def tripped(fault: Fault) -> dict[str, set[str]]:
    """Check id → the APIs on which it broke, with the scenarios that provoke the fault's check."""
    found: dict[str, set[str]] = {}
    for result in results(run([fault], "--select", fault.id, key=KEY)):
        if result.verdict in BROKEN:
            found.setdefault(result.id, set()).add(result.api or "")
    return found


def row(fault: Fault, found: Mapping[str, set[str]]) -> str:
    """One line: what the fault does, where its check saw it, what else it trips."""
    where = ", ".join(sorted(found.get(fault.id, ()))) or NOT_CAUGHT
    others = " ".join(f"`{check}`" for check in sorted(set(found) - {fault.id}))
    return f"| `{fault.name}` | {fault.title} | {where} | {others} |"


def head() -> list[str]:
    """What stands above the rows."""
    return [
        "# What each fault trips",
        "",
        "Rendered by `python -m tests.fault_matrix`; a test runs every fault again.",
        "",
        "| fault | what the server does | caught on | also tripped |",
        "|---|---|---|---|",
    ]


if __name__ == "__main__":
    lines = [row(fault, tripped(fault)) for fault in FAULTS.values()]
    MATRIX.write_text("\n".join([*head(), *lines]) + "\n")
