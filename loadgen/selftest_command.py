"""`loadgen selftest`: the tool's own error and limits on this machine, against a server that keeps
a record of its writes."""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

import trio
from tabulate import tabulate

from conformance.capture import Json
from conformance.connect import Door
from conformance.dossier import CHAT, PATHS
from conformance.errors import TargetError
from conformance.reading import read
from conformance.script import Bounds, Clocks, Exchange
from conformance.target import Target, parse_url, request_bytes
from loadgen import selftest_record
from loadgen.arrivals import parse_process, schedule, steady
from loadgen.lengths import Length
from loadgen.load import Open
from loadgen.measure import Row, row_from
from loadgen.output import Outputs
from loadgen.play import Offered, Player
from loadgen.played import Played
from loadgen.quantiles import quantile
from loadgen.recording import recording
from loadgen.selftest import (
    Errors,
    Figures,
    document,
    errors_of,
    outside,
    shares,
    together,
    writes_from,
    zero_of,
)
from loadgen.trust import Doubt, doubts
from loadgen.workload import Workload

EVENTS_A_SECOND = 20
TOKENS = 40  # of an answer: two seconds
SMALL, LARGE = 100, 1000  # streams at once
START_WITHIN = 20.0  # seconds for the server
_REQUEST = Workload(CHAT, "scripted", 7, Length("fixed", 16), Length("fixed", TOKENS))


@dataclass(frozen=True, slots=True)
class Tried:
    """One load. `cpu`: seconds of this process while it ran; `about`: clock, recorder, pacing."""

    streams: int
    seconds: float
    errors: Errors
    rows: tuple[Row, ...]
    doubts: tuple[Doubt, ...]
    lags: tuple[float, ...]
    cpu: float
    about: dict[str, Json]


def main(args: argparse.Namespace) -> int:
    """The command. Exit: 0, or 3 where a load was not valid. Raises StreamproofError."""
    with Outputs({"json": args.json}) as outputs:
        loads = (SMALL, LARGE) if args.full else (SMALL,)
        tried = [try_out(streams, args.seconds, args.clock) for streams in loads]
        report = _document(tried)
        selftest_record.store(report)
        outputs.write("json", iter([json.dumps(report, indent=1, allow_nan=False) + "\n"]))
        outputs.tell("\n\n".join(map(_render, tried)) + "\n")
    return 3 if any(one.doubts for one in tried) else 0


def try_out(
    streams: int,
    seconds: float,
    clock: str | None,
    beside: Callable[[], AbstractContextManager[object]] = nullcontext,
) -> Tried:
    """One load on a server of its own. `beside`: entered when the server stands, for the load."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder, "writes.jsonl")
        with _server(streams, log) as url, beside():
            played, offered, cpu, origin, about = trio.run(_play, url, streams, seconds, clock)
        with log.open(encoding="ascii") as lines:
            writes = writes_from(lines)
    readings = [(one, read(one.capture, api=CHAT)) for one in played if one.capture is not None]
    rows = tuple(row_from(one, _REQUEST.ask(one.index), CHAT, r) for one, r in readings)
    return Tried(
        streams,
        seconds,
        together(errors_of(reading, writes, origin) for _, reading in readings),
        rows,
        doubts(rows, offered.lags, (), steady=False),
        tuple(offered.lags),
        cpu,
        about,
    )


@contextmanager
def _server(streams: int, log: Path) -> Iterator[str]:
    """The scripted server as a process of its own; gives the API's base URL."""
    command = [sys.executable, "-m", "reference_server", "--model", "scripted", "--port", "0"]
    command += ["--step-ms", str(1000 / EVENTS_A_SECOND), "--max-batch", str(2 * streams)]
    process = subprocess.Popen(
        [*command, "--log-writes", str(log)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # Ctrl-C is ours
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            _, told = process.communicate(timeout=START_WITHIN)
            raise TargetError(f"the reference server did not start: {told.strip()[-200:]}")
        yield str(json.loads(line)["url"])
        process.terminate()
        process.wait(START_WITHIN)
    finally:
        process.kill()
        process.communicate()


async def _play(
    url: str, streams: int, seconds: float, clock: str | None
) -> tuple[list[Played], Offered, float, float, dict[str, Json]]:
    target = Target(parse_url(url))
    door = Door(target.url.host, target.url.port)
    path = target.url.bases()[0] + PATHS[CHAT]

    def script(index: int) -> Exchange:
        body = _REQUEST.ask(index).body
        request = request_bytes(target, path, body, accept="text/event-stream")
        return Exchange((request,), events=True, clocks=Clocks(), bounds=Bounds())

    rate = streams * EVENTS_A_SECOND / TOKENS
    load = Open(schedule(parse_process("poisson"), steady(rate, seconds), 7, None), seconds)
    played: list[Played] = []
    async with recording(door, clock, ()) as made:
        player = Player(made.recorder, script, played.append, None, made.sleep, made.watch)
        began = time.process_time()
        offered = await player.play(load)
        spent = time.process_time() - began
        return played, offered, spent, zero_of(time.monotonic, made.recorder.now), made.described()


# -- telling ---------------------------------------------------------------------------------------


def _document(tried: list[Tried]) -> dict[str, Json]:
    descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return {
        "machine": selftest_record.machine(),
        "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "python": platform.python_version(),
        "cpus": os.cpu_count(),
        "load_average": list(os.getloadavg()),
        "descriptors": descriptors,
        "loads": [_load_document(one) for one in tried],
    }


def _load_document(one: Tried) -> Json:
    return {
        "streams": one.streams,
        "events_a_second": EVENTS_A_SECOND,
        "seconds": one.seconds,
        **one.about,
        "requests": len(one.rows),
        "events": one.errors.events,
        "unmatched": one.errors.unmatched,
        "valid": not one.doubts,
        "reasons": [f"{doubt.reason}: {doubt.detail}" for doubt in one.doubts],
        "errors": {
            name: {"all": document(every), "values": document(values)}
            for name, (every, values) in shares(one.errors).items()
        },
        "values_outside": dict(zip(("n", "max"), outside(one.errors), strict=True)),
        "lateness": _tail([row.lateness for row in one.rows if row.lateness is not None]),
        "timer": _tail(list(one.lags)),
        "cpu_per_event": _cpu(one),
    }


def _cpu(one: Tried) -> float | None:
    return one.cpu / one.errors.events if one.errors.events else None


def _tail(values: list[float]) -> dict[str, Json]:
    ordered = sorted(values)
    return {f"p{100 * q:g}": quantile(ordered, q).value for q in (0.5, 0.99)}


def _render(one: Tried) -> str:
    rows = []
    for name, (every, values) in shares(one.errors).items():
        rows.append(_row(f"{name}, all", every))
        rows.append(_row(f"{name}, values", values))
    head = ["error, ms", "n", "bias", "p50", "p99", "max"]
    align = ("left", *("right",) * 5)
    late = _tail([row.lateness for row in one.rows if row.lateness is not None])
    lines = [
        f"{one.streams} streams × {EVENTS_A_SECOND} events/s for {one.seconds:g} s: "
        f"{len(one.rows)} requests, {one.errors.events} events, {one.errors.unmatched} unmatched",
        f"clock {one.about['clock']}, recorder {one.about['recorder']}, "
        f"pacing {one.about['pacing']}, load average {os.getloadavg()[0]:.1f} on {os.cpu_count()}",
        tabulate(rows, headers=head, colalign=align, disable_numparse=True),
        _told_outside(one),
        f"sends late: p50 {_ms(late['p50'])}, p99 {_ms(late['p99'])} ms; "
        f"CPU an event: {_ms(_cpu(one), 1e6)} µs, sending and connecting included",
        *(f"not valid: {doubt.reason}: {doubt.detail}" for doubt in one.doubts),
    ]
    return "\n".join(lines)


def _told_outside(one: Tried) -> str:
    values = sum(error.is_value for error in one.errors.instants)
    off, most = outside(one.errors)
    told = f"{values} of {len(one.errors.instants)} times are values, the others bounds; "
    return told + f"{off} values lie outside the server's write, by {_ms(most)} ms at most"


def _row(name: str, found: Figures) -> list[str]:
    shown = (found.bias, found.p50, found.p99, found.most)
    return [name, str(found.n), *map(_ms, shown)]


def _ms(value: Json, times: float = 1e3) -> str:
    return f"{value * times:.3f}" if isinstance(value, int | float) else "–"
