"""How late are the sends of an open loop? Against a server that costs next to nothing.

python tests/benchmarks/send_accuracy.py [--write] [--rate R] [--seconds S] [--runs N] [--drift S]

--write: results/send_accuracy.md. --realtime: client and server have precedence over what else runs
(needs the right to it), as on a machine that is otherwise idle. The server, a process of its own on
one core, answers each request at once with a stream of one token in one write. The load is what
`loadgen run` plays, with one answer kept open at a time or a few; lateness is from the intended
start until the last byte was handed to the kernel, connecting left out. `--drift`: besides, that
long at a tenth of the rate, with the lateness of its first and last tenth beside each other. Needs
two cores.

Goals: p99 ≤ 0.5 ms at 1,000 requests/s, sent = scheduled within 0.1 %, for constant arrivals also
the rate; no drift over ten minutes.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import trio

from conformance.options import OneLineParser
from loadgen.measure import Row
from loadgen.quantiles import quantile
from loadgen.run_command import execute, judged
from loadgen.run_options import configure
from loadgen.setup import setup_from_args
from tests.benchmarks.load_cost import EVENTS, LAST, TOKEN, event
from tests.benchmarks.truth import precedence

RESULT = Path(__file__).parent / "results" / "send_accuracy.md"
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
ANSWER = HEAD + event({"role": "assistant", "content": ""}, usage=None) + TOKEN + LAST
GOAL = 0.5e-3  # seconds
OFF = 0.001  # of what was scheduled


class Serving(asyncio.Protocol):
    """Answers whatever is whole; reads no more of a request than its length."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport, self.waiting = transport, b""

    def data_received(self, data: bytes) -> None:
        self.waiting += data
        while (end := self.waiting.find(b"\r\n\r\n")) >= 0:
            head = self.waiting[:end].lower()
            _, found, rest = head.partition(b"content-length:")
            whole = end + 4 + (int(rest.split(b"\r\n")[0]) if found else 0)
            if len(self.waiting) < whole:
                return
            self.waiting = self.waiting[whole:]
            self.transport.write(ANSWER)


async def serve() -> None:
    loop = asyncio.get_running_loop()
    listening = await loop.create_server(Serving, "127.0.0.1", 0, backlog=1024)
    print(listening.sockets[0].getsockname()[1], flush=True)
    await listening.serve_forever()


@dataclass(frozen=True, slots=True)
class Sent:
    """One run. Seconds."""

    arrivals: str
    rate: float
    seconds: float
    scheduled: int
    sent: int
    lateness: tuple[float, ...]  # in order of the schedule
    rate_of_sends: float
    valid: str
    cpu: float  # of the client, for each request

    def tail(self, q: float) -> float:
        found = quantile(sorted(self.lateness), q).value
        return float("nan") if found is None else found

    @property
    def drift(self) -> tuple[float, float]:
        """Median lateness of the first and the last tenth."""
        tenth = max(1, len(self.lateness) // 10)
        return statistics.median(self.lateness[:tenth]), statistics.median(self.lateness[-tenth:])


def played(port: int, arrivals: str, rate: float, seconds: float) -> Sent:
    parser = OneLineParser()
    configure(parser)
    words = ["--rate", str(rate), "--duration", str(seconds), "--arrivals", arrivals]
    words += ["--model", "m", "--input-tokens", "32", "--output-tokens", str(EVENTS)]
    words += ["--checks", "none", "--metrics", "none"]
    args = parser.parse_args([f"http://127.0.0.1:{port}/v1", *words])
    setup = setup_from_args(args, {}, 1 << 20)
    spent = time.process_time()
    result = judged(setup, trio.run(execute, setup))
    spent = time.process_time() - spent
    rows = [row for row in result.rows if row.sent is not None and row.lateness is not None]
    return Sent(
        arrivals,
        rate,
        seconds,
        len(result.rows),
        len(rows),
        tuple(row.lateness for row in rows if row.lateness is not None),
        _rate(rows),
        ", ".join(doubt.reason for doubt in result.doubts) or "valid",
        spent / max(1, len(rows)),
    )


def _rate(rows: Sequence[Row]) -> float:
    """Sends a second, from the first to the last."""
    first, last = rows[0], rows[-1]
    assert first.lateness is not None
    assert last.lateness is not None
    took = last.intended + last.lateness - first.intended - first.lateness
    return (len(rows) - 1) / took


def table(runs: Sequence[Sent], how: str) -> str:
    head = (
        "| arrivals | requests/s | seconds | sent of scheduled | rate of the sends | late, p50 | "
        "p99 | max | first tenth | last tenth | CPU a request | |"
    )
    align = "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---|"
    about = f"{os.cpu_count()} cores for client and server, load average {os.getloadavg()[0]:.1f}"
    return "\n".join([head, align, *map(_line, runs), "", f"{about}{how}.", ""])


def _line(one: Sent) -> str:
    ms = [f"{value * 1e3:.3f} ms" for value in (one.tail(0.5), one.tail(0.99), max(one.lateness))]
    tenths = [f"{value * 1e3:.3f} ms" for value in one.drift]
    cells = [
        one.arrivals,
        f"{one.rate:,.0f}",
        f"{one.seconds:g}",
        f"{one.sent} of {one.scheduled}",
        f"{one.rate_of_sends:.2f}",
        *ms,
        *tenths,
        f"{one.cpu * 1e6:.0f} µs",
        one.valid,
    ]
    return f"| {' | '.join(cells)} |"


def missed(one: Sent) -> list[str]:
    out = []
    if not one.tail(0.99) <= GOAL:
        out.append(f"p99 of lateness {one.tail(0.99) * 1e3:.3f} ms, goal {GOAL * 1e3:g} ms")
    if abs(one.sent - one.scheduled) > OFF * one.scheduled:
        out.append(f"sent {one.sent} of {one.scheduled}")
    if one.arrivals == "constant" and abs(one.rate_of_sends / one.rate - 1) > OFF:
        out.append(f"rate {one.rate_of_sends:.2f}, meant {one.rate:g}")
    first, last = one.drift
    if abs(last - first) > GOAL / 2:
        out.append(f"lateness went from {first * 1e3:.3f} to {last * 1e3:.3f} ms")
    return [f"{one.arrivals}, {one.rate:g}/s: {each}" for each in out]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--rate", type=float, default=1000.0)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--drift", type=float, default=600.0, help="seconds; 0: not")
    parser.add_argument("--realtime", action="store_true")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.serve:
        asyncio.run(serve())
    with precedence(args.realtime):
        runs = _all(args)
    text = table(runs, ", real-time priority" if args.realtime else "")
    print(text)
    if args.write:
        RESULT.write_text(text, encoding="utf-8")
    for each in (line for run in runs for line in missed(run)):
        print(f"missed: {each}")
    return 0


def _all(args: argparse.Namespace) -> list[Sent]:
    server = subprocess.Popen(
        [sys.executable, __file__, "--serve"], stdout=subprocess.PIPE, text=True
    )
    try:
        assert server.stdout is not None
        port = int(server.stdout.readline())
        kinds = ("constant", "poisson")
        runs = [
            played(port, kind, args.rate, args.seconds) for kind in kinds for _ in range(args.runs)
        ]
        if args.drift:
            runs.append(played(port, "constant", args.rate / 10, args.drift))
    finally:
        server.kill()
        server.wait()
    return runs


if __name__ == "__main__":
    sys.exit(main())
