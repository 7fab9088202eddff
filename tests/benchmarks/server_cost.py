"""What a token costs outside the model: spelled, framed, written, and read by nobody in a hurry.

    python -m tests.benchmarks.server_cost [--streams N] [--tokens N] [--write]

One process serves over loopback sockets; its engine plays tokens that were made before, so a step
costs next to nothing. Another process reads. The cost is the server's processor time (all its
threads) divided by the tokens. The goal is 60 µs. `--write` renders
results/server_cost.md.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import resource
import socket
import threading
import time
from collections.abc import Callable, Sequence
from itertools import product
from multiprocessing.connection import Connection as Pipe
from pathlib import Path
from statistics import median

import trio

from reference_server.bridge import Bridge
from reference_server.bridge.policy import POLICIES
from reference_server.engine.batching import BatchingEngine
from reference_server.engine.interface import Engine
from reference_server.engine.runner import Chunk, Draw, Prefilled, Row, Token
from reference_server.engine.scripted import ScriptedEngine
from reference_server.wire.server import Server
from tests.reference_server.fake_model import VOCABULARY

PACE = 0.0002  # seconds of a step for each stream: so slow that none falls behind
RESULTS = Path(__file__).parent / "results" / "server_cost.md"
HEAD = "POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n"


class Playing:
    """A runner that computes nothing: every token is the next of one text."""

    block_size, block_count, context = 16, 4096, 4096

    def __init__(self) -> None:
        self._words = VOCABULARY.encode_answer("the river 漢字 token 🫠 answer " * 200)

    def open(self, slot: int, draw: Draw) -> None: ...

    def close(self, slot: int) -> None: ...

    def prefill(self, chunk: Chunk) -> Prefilled:
        return Prefilled(Token(self._words[0]) if chunk.last else None)

    def decode(self, rows: Sequence[Row]) -> Sequence[Token]:
        return [Token(self._words[row.position]) for row in rows]


ENGINES: dict[str, Callable[[int], tuple[Engine, bool]]] = {
    "scripted, in the loop": lambda streams: (ScriptedEngine(streams), False),
    "batching, in a thread": lambda streams: (
        BatchingEngine(Playing(), VOCABULARY, max_batch=streams),
        True,
    ),
}


def cpu() -> tuple[float, float]:
    """Seconds of this process in all, and those of them in the kernel."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime, used.ru_stime


def serve(kind: str, streams: int, pace: float, pipe: Pipe) -> None:
    """A process: tells its port, then, when asked, its processor time and its tokens."""

    async def main() -> None:
        engine, threaded = ENGINES[kind](streams)
        # Each token is written by itself: a policy that puts late ones together would save work.
        bridge = Bridge(engine, pace, threaded=threaded, slow=POLICIES["unbounded"])
        server = Server(bridge)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(bridge.run)
            listeners = await nursery.start(trio.serve_tcp, server.serve_connection, 0)
            pipe.send(listeners[0].socket.getsockname()[1])
            while await trio.to_thread.run_sync(pipe.recv):
                pipe.send((*cpu(), bridge.gauges.tokens))
            nursery.cancel_scope.cancel()

    trio.run(main)


def read(port: int, tokens: int) -> None:
    prompt = "Count from 1 to 2000."
    body = json.dumps(
        {"model": "scripted", "prompt": prompt, "max_tokens": tokens, "stream": True}
    ).encode()
    with socket.create_connection(("127.0.0.1", port)) as sock:
        sock.sendall((HEAD % len(body)).encode() + body)
        last = b""
        while b"[DONE]" not in last:
            got = sock.recv(65536)
            assert got, last
            last = last[-16:] + got


def load(port: int, streams: int, tokens: int) -> float:
    """Seconds until all have read everything."""
    begun = time.perf_counter()
    threads = [threading.Thread(target=read, args=(port, tokens)) for _ in range(streams)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return time.perf_counter() - begun


def measure(kind: str, streams: int, pace: float, tokens: int, rounds: int) -> tuple[float, ...]:
    """Medians: microseconds a token, those of them in the kernel, tokens a second."""
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.Process(target=serve, args=(kind, streams, pace, theirs))
    process.start()
    port = ours.recv()
    load(port, streams, 50)  # warms up
    rows = []
    for _ in range(rounds):
        before = told(ours)
        took = load(port, streams, tokens)
        used, kernel, made = (b - a for a, b in zip(before, told(ours), strict=True))
        rows.append((used / made * 1e6, kernel / made * 1e6, made / took))
    ours.send(False)
    process.join()
    return tuple(median(column) for column in zip(*rows, strict=True))


def told(pipe: Pipe) -> tuple[float, float, int]:
    pipe.send(True)
    told: tuple[float, float, int] = pipe.recv()
    return told


def table(streams: Sequence[int], tokens: int, rounds: int) -> str:
    lines = [
        "| engine | streams | a step each | processor a token | of it in the kernel | tokens/s |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for kind in ENGINES:
        for count, pace in product(streams, (0.0, PACE)):
            row = measure(kind, count, count * pace, tokens, rounds)
            often = f"{count * pace * 1e3:.1f} ms" if pace else "at once"
            cells = f"{often} | {row[0]:.0f} µs | {row[1]:.0f} µs | {row[2]:,.0f}"
            lines.append(f"| {kind} | {count} | {cells} |")
    lines += [
        "",
        f"Medians of {rounds} rounds of {tokens} tokens a stream, the engine's own part "
        "(4 to 14 µs) included. At once: the processor is never idle; else it wakes for each step, "
        f"to cold caches. {os.cpu_count()} cores for server and readers, "
        f"load average {os.getloadavg()[0]:.1f}.",
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--streams", type=int, nargs="*", default=[1, 8, 32])
    parser.add_argument("--tokens", type=int, default=600)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    text = table(options.streams, options.tokens, options.rounds)
    print(text)
    if options.write:
        RESULTS.write_text(text)


if __name__ == "__main__":
    main()
