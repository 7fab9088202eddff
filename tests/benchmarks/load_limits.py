"""What one core of a load client bears: events a second, and memory for each open stream.

python -m tests.benchmarks.load_limits rate|memory [--write] [--seconds S]

--write: results/load_rate.md or load_memory.md. The server is a loop over sockets that writes
prepared bytes, in a process on the first core; the client is the fast recorder on the last core,
and plays an open load of answers of 2 s each, 1,000 at a time.
Rates are raised step by step, each in a client and a server of their own, until the client's timer
wakes more than 5 ms late at p99, or bytes lay for more than 5 ms on average before they were read,
or fewer events came than were due. How late the server was stands beside it. Memory: the resident
size with 100 and with 2,000 streams open, each with its head and first events.
"""

from __future__ import annotations

import argparse
import json
import os
import select
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import trio

from conformance.connect import Door
from conformance.script import Bounds, Clocks, Exchange
from loadgen.fast import FastRecorder, Pacer
from loadgen.load import Closed, Open
from loadgen.play import Player, tick
from loadgen.played import Played
from tests.benchmarks.load_cost import HEAD, LAST, TOKEN, event

RESULTS = Path(__file__).parent / "results"
STREAMS, GROUPS = 1000, 200
ANSWER = 2.0  # seconds that an answer takes
LATE = 0.005  # seconds
FEW, MANY = 100, 2000
RATES = (10, 20, 30, 40, 50, 60, 70, 80, 100, 120)  # thousands of events a second
FIRST = HEAD + event({"role": "assistant", "content": ""}, usage=None)
REQUEST = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}"


# -- the server ------------------------------------------------------------------------------------


@dataclass(slots=True)
class Answer:
    send: Callable[[bytes], int]
    left: int


class Server:
    """Its streams stand in GROUPS groups; each tick one of them gets an event a stream."""

    def __init__(self, events_a_second: float) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=4096)
        self._listener.setblocking(False)
        self.port = self._listener.getsockname()[1]
        self._tick = 1 / events_a_second / GROUPS
        self._events = max(5, round(ANSWER * events_a_second))
        self._epoll = select.epoll()
        self._epoll.register(self._listener.fileno(), select.EPOLLIN)
        self._socks: dict[int, socket.socket] = {}
        self._groups: list[list[Answer]] = [[] for _ in range(GROUPS)]
        self.lateness: list[float] = []

    def serve(self) -> None:
        """Until stdin ends."""
        self._epoll.register(sys.stdin.fileno(), select.EPOLLIN)
        due, number = time.monotonic(), 0
        while self._listen(max(0.0, due - time.monotonic())):
            now = time.monotonic()
            while due <= now:
                self.lateness.append(now - due)
                self._write(number % GROUPS)
                due, number = due + self._tick, number + 1

    def _listen(self, seconds: float) -> bool:
        for number, _ in self._epoll.poll(max(0.001, seconds), 256):
            if number == sys.stdin.fileno():
                return False
            if number == self._listener.fileno():
                sock = self._listener.accept()[0]
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._socks[sock.fileno()] = sock
                self._epoll.register(sock.fileno(), select.EPOLLIN)
            elif self._is_asked(number):
                self._socks[number].send(FIRST)
                min(self._groups, key=len).append(Answer(self._socks[number].send, self._events))
            else:
                self._epoll.unregister(number)
                self._socks.pop(number).close()
        return True

    def _is_asked(self, number: int) -> bool:
        try:
            return bool(self._socks[number].recv(65536))
        except OSError:
            return False

    def _write(self, number: int) -> None:
        over = False
        for answer in self._groups[number]:
            answer.left -= 1
            try:
                answer.send(TOKEN if answer.left else LAST)
            except OSError:  # the client has gone
                answer.left = 0
            over = over or not answer.left
        if over:
            self._groups[number] = [each for each in self._groups[number] if each.left]


def server(events_a_second: float) -> None:
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    made = Server(events_a_second)
    print(made.port, flush=True)
    made.serve()
    print(json.dumps(quantile(made.lateness, 0.99)), flush=True)


@contextmanager
def serving(events_a_second: float, told: list[float]) -> Iterator[int]:
    """The port; at the end `told` has the server's own lateness, p99."""
    command = [sys.executable, "-m", "tests.benchmarks.load_limits"]
    with subprocess.Popen(
        [*command, "--server", str(events_a_second)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield int(process.stdout.readline())
            process.stdin.close()
            told.append(float(process.stdout.readline()))
        finally:
            process.kill()


# -- the client ------------------------------------------------------------------------------------


def script(index: int) -> Exchange:
    return Exchange((REQUEST,), events=True, clocks=Clocks(), bounds=Bounds())


@dataclass(frozen=True, slots=True)
class Step:
    """One rate. `came`: events a second, once all streams were under way. Shares of 1; seconds."""

    came: float
    a_read: float
    cpu: float
    lag: float
    delay: float


async def _step(port: int, seconds: float) -> Step:
    played: list[Played] = []
    offsets = [n * ANSWER / STREAMS for n in range(int((1 + seconds / ANSWER) * STREAMS))]
    spent: list[float] = []
    fast = FastRecorder(Door("127.0.0.1", port))
    async with fast.open() as recorder, trio.open_nursery() as nursery:
        with Pacer() as pacer, Pacer() as watch:
            player = Player(recorder, script, played.append, None, pacer.sleep, watch.sleep)
            nursery.start_soon(busy, seconds, spent)
            offered = await player.play(Open(offsets, ANSWER + seconds))
        engine = recorder.engine
    captures = [one.capture for one in played if one.capture is not None]
    events = sum(each.received.count(b"data: ") for each in captures)
    times = [read.at - offered.start for each in captures for read in each.reads if read.at]
    a_read = events / len(times)
    return Step(
        came=a_read * sum(0.0 <= at - ANSWER < seconds for at in times) / seconds,
        a_read=a_read,
        cpu=spent[0] / seconds,
        lag=quantile(offered.lags[int(ANSWER / tick(ANSWER + seconds)) :], 0.99),
        delay=engine.waited / max(1, engine.reads),
    )


async def busy(seconds: float, spent: list[float]) -> None:
    """The CPU time of the seconds in which all streams are under way."""
    await trio.sleep(ANSWER)
    before = time.process_time()
    await trio.sleep(seconds)
    spent.append(time.process_time() - before)


async def _memory(port: int) -> tuple[int, int]:
    """Resident bytes with FEW and with MANY streams."""
    found: list[int] = []
    async with FastRecorder(Door("127.0.0.1", port)).open() as recorder, trio.open_nursery() as two:
        for more in (FEW, MANY - FEW):
            player = Player(recorder, script, lambda played: None)
            two.start_soon(player.play, Closed(more, requests=more))
            while player.in_flight < more:  # noqa: ASYNC110, nobody tells
                await trio.sleep(0.05)
            await trio.sleep(3.0)
            found.append(resident())
        two.cancel_scope.cancel()
    return found[0], found[1]


def resident() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def quantile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(share * len(values)))] if values else 0.0


# -- the measuring ---------------------------------------------------------------------------------


def asked(*words: str) -> list[float]:
    command = [sys.executable, "-m", "tests.benchmarks.load_limits", *words]
    out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return list(json.loads(out))


def steps(seconds: float) -> Iterator[tuple[int, Step, float]]:
    """(thousands of events a second, what came of it, how late the server was)."""
    for rate in RATES:
        told: list[float] = []
        with serving(rate * 1000 / STREAMS, told) as port:
            step = Step(*asked("--step", str(port), "--seconds", str(seconds)))
        yield rate, step, told[0]
        if step.lag > LATE or step.delay > LATE:
            return


def rate_table(seconds: float) -> list[str]:
    lines = [
        "| events/s due | came | CPU | timer late, p99 | bytes lay, mean | events a read "
        "| server late, p99 |",
        "|---:|---:|---:|---:|---:|---:|---:|",
    ]
    best = 0
    for rate, step, late in steps(seconds):
        figures = [
            f"{rate},000",
            f"{step.came:,.0f}",
            f"{step.cpu:.0%}",
            f"{step.lag * 1e3:.2f} ms",
        ]
        figures += [f"{step.delay * 1e3:.2f} ms", f"{step.a_read:.2f}"]
        lines.append("| " + " | ".join([*figures, f"{late * 1e3:.2f} ms"]) + " |")
        print(lines[-1], flush=True)
        if step.lag <= LATE and step.delay <= LATE and step.came >= rate * 1000:
            best = rate
    said = f"With {STREAMS:,} streams one core sustains {best},000 events/s: {seconds:g} s a step, "
    return [*lines, "", said + machine()]


def memory_table(seconds: float) -> list[str]:
    with serving(0.2, []) as port:
        few, many = asked("--memory", str(port))
    return [
        "| streams open | resident memory |",
        "|---:|---:|",
        f"| {FEW:,} | {few / 2**20:.1f} MiB |",
        f"| {MANY:,} | {many / 2**20:.1f} MiB |",
        "",
        f"{(many - few) / (MANY - FEW) / 1024:.1f} KiB for each further stream; {machine()}",
    ]


def machine() -> str:
    version, cores = sys.version.split()[0], os.cpu_count()
    priority = ", real-time priority" if os.sched_getscheduler(0) == os.SCHED_FIFO else ""
    return f"Python {version} on {cores} CPUs, load average {os.getloadavg()[0]:.1f}{priority}."


TABLES = {"rate": rate_table, "memory": memory_table}


def pinned() -> None:
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=TABLES, nargs="?", default="rate")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--realtime", action="store_true", help="both, on a busy machine; root")
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--server", type=float, help=argparse.SUPPRESS)
    parser.add_argument("--step", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--memory", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.server:
        server(args.server)
    elif args.step:
        pinned()
        found = trio.run(_step, args.step, args.seconds)
        print(json.dumps([found.came, found.a_read, found.cpu, found.lag, found.delay]))
    elif args.memory:
        pinned()
        print(json.dumps(trio.run(_memory, args.memory)))
    else:
        if args.realtime:
            os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(10))
        lines = TABLES[args.what](args.seconds)
        print("\n".join(lines))
        if args.write:
            (RESULTS / f"load_{args.what}.md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
