"""What the tap adds: the same stream straight and through `conformance tap`, in turns.

python tests/benchmarks/tap.py [--write] [--realtime]

--write: results/tap.md, for the README. --realtime: client, server and tap, but not the judge, have
a real-time priority, so that whatever else the machine does hardly shows; needs root.

A server of a few lines in a process of its own writes an event with the time of its writing; the
client, in this process, notes when it has read it. All three share one machine and its monotonic
clock. Each round takes one stream each way, the order turns; what is compared are medians of
rounds. With company: as many other streams flow through the same tap meanwhile. Then short
connections in pairs, one each way, for the first byte alone.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

RESULT = Path(__file__).parent / "results" / "tap.md"
EVENTS = 200
GAP_S = 0.005  # between two events: 200 tokens a second
ROUNDS = 15
COMPANY = 8
PAIRS = 300  # of connections
PAUSE_S = 0.02  # between two: the judge has done with the one before
Ways = dict[str, tuple[list[float], list[float], list[float]]]
REQUEST = (
    b"POST /v1/chat/completions HTTP/1.1\r\nHost: bench\r\nContent-Type: application/json\r\n"
    b'Content-Length: 16\r\n\r\n{"stream": true}'
)
CHUNK = (
    'data: {{"id":"c","object":"chat.completion.chunk","created":1767225600,"model":"m",'
    '"choices":[{{"index":0,"delta":{{"content":" {now:>20}"}},"finish_reason":null}}]}}\n\n'
)


def hurry(process: int) -> None:
    """The main thread of the process, and what it starts from now on, go first where asked for."""
    if "--realtime" in sys.argv[1:]:
        os.sched_setscheduler(process, os.SCHED_FIFO, os.sched_param(5))


def serve(port: int) -> None:
    """An event every `GAP_S`, with the nanosecond at which it was written."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with socket.create_server(("127.0.0.1", port)) as listener:
        while True:
            client, _ = listener.accept()
            threading.Thread(target=answer, args=(client,), daemon=True).start()


def answer(client: socket.socket) -> None:
    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    with client, contextlib.suppress(OSError):
        client.recv(65536)
        head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
        client.sendall(head)
        for _ in range(EVENTS):
            time.sleep(GAP_S)
            client.sendall(CHUNK.format(now=time.monotonic_ns()).encode())
        client.sendall(b"data: [DONE]\n\n")


def delays(port: int) -> tuple[float, list[float]]:
    """Milliseconds to the head, connecting included, and of each event from its writing to us."""
    start = time.monotonic_ns()
    with socket.create_connection(("127.0.0.1", port)) as client:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        client.sendall(REQUEST)
        first, found, pending = None, [], b""
        while data := client.recv(65536):
            now = time.monotonic_ns()
            if first is None:
                first = (now - start) / 1e6
            *blocks, pending = (pending + data).split(b"\n\n")
            for block in blocks:
                if b'"content":" ' in block:
                    written = int(block.split(b'"content":" ')[1].split(b'"')[0])
                    found.append((now - written) / 1e6)
    assert first is not None
    assert len(found) == EVENTS
    return first, found


def first_byte(port: int) -> float:
    """Milliseconds from connecting to the head; the rest is not awaited."""
    start = time.monotonic_ns()
    with socket.create_connection(("127.0.0.1", port)) as client:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        client.sendall(REQUEST)
        assert client.recv(65536).startswith(b"HTTP/1.1 200")
        return (time.monotonic_ns() - start) / 1e6


def connections(straight: int, via: int) -> Iterator[str]:
    """Median and 95th percentile of the first byte each way, and of what the tap adds to a pair."""
    ways: dict[str, list[float]] = {"straight": [], "through the tap": []}
    ports = dict(zip(ways, (straight, via), strict=True))
    names = list(ways)
    for turn in range(-10, PAIRS):  # the first warm up
        for name in names:
            took = first_byte(ports[name])
            if turn >= 0:
                ways[name].append(took)
            time.sleep(PAUSE_S)
        names.append(names.pop(0))
    pairs = zip(ways["straight"], ways["through the tap"], strict=True)
    ways["**added**, in pairs"] = [via - straight for straight, via in pairs]
    for name, found in ways.items():
        found.sort()
        middle, high = statistics.median(found), found[int(0.95 * len(found))]
        yield f"| {name} | {middle:.3f} ms | {high:.3f} ms |"


def idle(port: int, stop: threading.Event) -> None:
    """A stream after the other, read and thrown away."""
    while not stop.is_set():
        with socket.create_connection(("127.0.0.1", port)) as client:
            client.sendall(REQUEST)
            while client.recv(65536):
                pass


@contextlib.contextmanager
def company(port: int, count: int) -> Iterator[None]:
    stop = threading.Event()
    threads = [threading.Thread(target=idle, args=(port, stop)) for _ in range(count)]
    for thread in threads:
        thread.start()
        time.sleep(GAP_S * EVENTS / count)  # not all in step
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join()


@contextlib.contextmanager
def tap(upstream: int) -> Iterator[int]:
    command = [sys.executable, "-m", "conformance", "tap", "0", f"http://127.0.0.1:{upstream}"]
    with tempfile.TemporaryFile() as out:
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.PIPE, text=True)
        try:
            assert process.stderr is not None
            line = process.stderr.readline()  # its judge has begun
            hurry(process.pid)
            yield int(line.split(" → ")[0].rsplit(":", 1)[1].split("/")[0])
        finally:
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=60)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def measured(straight: int, via: int) -> Ways:
    """Way → of each round the first byte, the median delay and its 99th percentile."""
    ways = {"straight": straight, "through the tap": via}
    found: Ways = {name: ([], [], []) for name in ways}
    names = list(ways)
    for turn in range(-1, ROUNDS):  # the first warms up
        for name in names:
            first, events = delays(ways[name])
            if turn >= 0:
                ordered = sorted(events)
                found[name][0].append(first)
                found[name][1].append(statistics.median(ordered))
                found[name][2].append(ordered[int(0.99 * len(ordered))])
        names.append(names.pop(0))
    return found


def rows(found: Ways, head: str) -> Iterator[str]:
    medians = {name: [statistics.median(each) for each in kept] for name, kept in found.items()}
    added = [
        statistics.median(b - a for a, b in zip(*pair, strict=True))
        for pair in zip(found["straight"], found["through the tap"], strict=True)
    ]
    for name, values in [*medians.items(), ("**added** (median of rounds)", added)]:
        cells = " | ".join(f"{value:.3f} ms" for value in values)
        yield f"| {head} | {name} | {cells} |"


def main() -> None:
    upstream = free_port()
    server = multiprocessing.get_context("spawn").Process(
        target=serve, args=(upstream,), daemon=True
    )
    server.start()
    time.sleep(1)
    assert server.pid is not None
    hurry(server.pid)
    lines = [
        "| other streams | way | first byte, connecting | an event, median | an event, p99 |",
        "|---|---|---:|---:|---:|",
    ]
    short = [f"| {PAIRS} connections | first byte, median | p95 |", "|---|---:|---:|"]
    with tap(upstream) as port:
        hurry(0)
        short += connections(upstream, port)
        lines += rows(measured(upstream, port), "none")
        with company(port, COMPANY):
            lines += rows(measured(upstream, port), f"{COMPANY}")
    server.kill()
    server.join()
    lines += [
        "",
        *short,
        "",
        f"{ROUNDS} rounds of {EVENTS} events, one each {GAP_S * 1000:g} ms, each way; "
        f"{os.cpu_count()} cores for client, server, tap and judge together, "
        f"load average {os.getloadavg()[0]:.1f}"
        f"{', real-time priority' if '--realtime' in sys.argv[1:] else ''}.",
    ]
    table = "\n".join(lines) + "\n"
    print(table, end="")
    if "--write" in sys.argv[1:]:
        RESULT.parent.mkdir(exist_ok=True)
        RESULT.write_text(table)


if __name__ == "__main__":
    main()
