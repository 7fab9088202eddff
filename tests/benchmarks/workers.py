"""Events a second that one worker and two workers take in, on one server, in turns.

python tests/benchmarks/workers.py [--write] [--seconds S] [--streams N …]

--write: results/workers.md. A server of a few lines, in a process of its own, answers kept
connections with streams of 50 events a second, spread evenly over time; it needs a core of its own
the more the more streams there are. Told are events a second in the window, the worst worker's p99
of how late its timer woke (a sustained rate has at most 5 ms), and CPU an event: the workers' and,
for merging their rows, the parent's.
"""

from __future__ import annotations

import argparse
import os
import resource
import select
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import trio

from conformance.options import OneLineParser
from loadgen import sharded
from loadgen.quantiles import quantile
from loadgen.run_options import configure
from loadgen.setup import setup_from_args
from tests.benchmarks.load_cost import EVENTS, HEAD, LAST, TOKEN, event

RESULT = Path(__file__).parent / "results" / "workers.md"
EVENTS_A_SECOND, SLOTS = 50, 20
FIRST = HEAD + event({"role": "assistant", "content": ""}, usage=None)


# -- the server ------------------------------------------------------------------------------------


@dataclass(slots=True)
class Stream:
    """One connection: its events left, None between answers."""

    socket: socket.socket
    left: int | None = None


def serve() -> None:
    """Each stream has one of SLOTS places in every fiftieth of a second."""
    listening = socket.create_server(("127.0.0.1", 0), backlog=4096)
    print(listening.getsockname()[1], flush=True)
    listening.setblocking(False)
    poll = select.epoll()
    poll.register(listening, select.EPOLLIN)
    streams: dict[int, Stream] = {}
    slots: list[set[int]] = [set() for _ in range(SLOTS)]
    step, tick = 1 / EVENTS_A_SECOND / SLOTS, 0
    due = time.monotonic()
    while True:
        for number, _ in poll.poll(max(0.0, due - time.monotonic())):
            if number == listening.fileno():
                taken, _ = listening.accept()
                taken.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                streams[taken.fileno()] = Stream(taken)
                poll.register(taken, select.EPOLLIN)
            elif not streams[number].socket.recv(1 << 16):
                poll.unregister(number)
                slots[number % SLOTS].discard(number)
                streams.pop(number).socket.close()
            else:
                begin(streams[number], slots[number % SLOTS])
        if time.monotonic() >= due:
            go_on(streams, slots[tick % SLOTS])
            tick, due = tick + 1, due + step


def begin(stream: Stream, slot: set[int]) -> None:
    if stream.left is None:  # the request came in one read, or this is the rest of it
        stream.left = EVENTS
        stream.socket.sendall(FIRST)
        slot.add(stream.socket.fileno())


def go_on(streams: dict[int, Stream], slot: set[int]) -> None:
    for number in list(slot):
        stream = streams[number]
        assert stream.left is not None
        stream.left -= 1
        stream.socket.sendall(TOKEN if stream.left else LAST)
        if not stream.left:
            stream.left = None
            slot.discard(number)


# -- the measuring ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Figures:
    """`rate`: events a second. `lag`, and the CPU of workers and parent: seconds."""

    rate: float
    lag: float
    events: int
    workers: float
    parent: float

    def beyond(self, start: Figures) -> tuple[float, float]:
        """CPU an event of workers and parent, without what starting them takes."""
        more = self.events - start.events
        return (self.workers - start.workers) / more, (self.parent - start.parent) / more


def measured(port: int, workers: int, streams: int, seconds: float) -> Figures:
    parser = OneLineParser()
    configure(parser)
    words = ["--concurrency", str(streams), "--duration", str(seconds), "--workers", str(workers)]
    words += ["--model", "m", "--tokenizer", "words", "--metrics", "none", "--checks", "none"]
    descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    args = parser.parse_args([f"http://127.0.0.1:{port}/v1", *words, "--warmup", "1"])
    setup = setup_from_args(args, {}, descriptors)
    before = spent()
    ran = trio.run(sharded.execute, setup)
    after = spent()
    assert ran.crew is not None
    assert not ran.crew.lost, ran.crew
    times = [at for row in ran.rows for at in row.token_times]
    events = len(times)
    inside = sum(ran.window.holds(at) for at in times)
    own, theirs = (b - a for a, b in zip(before, after, strict=True))
    return Figures(inside / ran.window.seconds, tail(ran.lags), events, theirs, own)


def tail(lags: Sequence[float]) -> float:
    """p99, of few the greatest."""
    known = quantile(sorted(lags), 0.99).value
    return max(lags) if known is None else known


def spent() -> tuple[float, float]:
    """CPU of this process and of those that have ended."""
    kinds = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    return tuple(u.ru_utime + u.ru_stime for u in map(resource.getrusage, kinds))  # type: ignore[return-value]


def table(levels: list[int], seconds: float) -> list[str]:
    names = ["streams", "offered, events/s", "workers", "events/s", "timer late, p99"]
    names += ["CPU an event: workers", "parent"]
    lines = [f"| {' | '.join(names)} |", "|---:" * len(names) + "|"]
    with subprocess.Popen(
        [sys.executable, "-m", "tests.benchmarks.workers", "--server"],
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            port = int(process.stdout.readline())
            starts = {workers: measured(port, workers, workers, 2.0) for workers in (1, 2)}
            for number, streams in enumerate(levels):
                for workers in (1, 2) if number % 2 else (2, 1):
                    found = measured(port, workers, streams, seconds)
                    theirs, own = found.beyond(starts[workers])
                    lines.append(
                        f"| {streams} | {streams * EVENTS_A_SECOND:,} | {workers} "
                        f"| {found.rate:,.0f} | {found.lag * 1e3:.1f} ms "
                        f"| {theirs * 1e6:.1f} µs | {own * 1e6:.1f} µs |"
                    )
                    print(lines[-1], flush=True)
        finally:
            process.kill()
    lines += [
        "",
        f"{seconds:g} s each, {os.cpu_count()} cores for server, workers and parent together, load "
        f"average {os.getloadavg()[0]:.1f}; Python {sys.version.split()[0]}. CPU is that of "
        "recording and measuring; not of starting, nor of the checks.",
    ]
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--seconds", type=float, default=6.0)
    parser.add_argument("--streams", type=int, nargs="+", default=[200, 400, 800, 1200])
    parser.add_argument("--server", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.server:
        serve()
        return
    lines = table(args.streams, args.seconds)
    print("\n".join(lines))
    if args.write:
        RESULT.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
