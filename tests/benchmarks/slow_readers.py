"""One client that reads slowly beside seven that do not, under each policy.

    python -m tests.benchmarks.slow_readers [--rounds N] [--write]

Eight streams of 64 tokens over loopback sockets whose queues in the kernel are short; the events
are padded, so that back-pressure is real; one reader takes a chunk per quarter of a second. The
policies take turns. `--write` renders results/slow_readers.md.
"""

from __future__ import annotations

import argparse
import os
import socket
import time
import tracemalloc
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from math import inf
from pathlib import Path
from statistics import median

import trio

from reference_server.bridge import Bridge
from reference_server.bridge.policy import DEFAULT, POLICIES
from reference_server.bridge.queue import Books, Queue
from reference_server.engine.interface import Delta
from reference_server.engine.scripted import ScriptedEngine
from reference_server.seams import Document, Part, Seams
from reference_server.wire import sse_writer
from reference_server.wire.completion_shape import CompletionShape
from reference_server.wire.limits import Limits
from reference_server.wire.server import Server, Settings
from reference_server.wire.shape import Label
from tests.reference_server.client import COMPLETIONS, Client, completion

RESULTS = Path(__file__).parent / "results" / "slow_readers.md"
STREAMS, TOKENS = 8, 64
STEP = 0.01  # seconds
PAD = "x" * 16 * 1024  # in every event
QUEUE = 16 * 1024  # bytes in the kernel, on either side
NOBODY = "(nobody is slow)"
EVERY = 0.25  # seconds
MARK = 16  # steps: a lower high-water mark than usual, which so short a stream would never reach
CHUNK = len(PAD)  # bytes that the slow one takes each time


class Padded(Seams):
    def chunk(self, part: Part, chunk: Document) -> Iterable[Document]:
        return ({**chunk, "pad": PAD},)


@dataclass
class Result:
    """Seconds, but for `held` (events and bytes that one stream held at most)."""

    took: float = 0.0  # until the last healthy one was done
    gaps: list[float] = field(default_factory=list)  # between two reads of a healthy one
    freed: float = 0.0  # until the engine held nothing for the slow one
    books: Books = field(default_factory=Books)
    end: str = ""  # how the slow one's stream ended

    @property
    def p99(self) -> float:
        return sorted(self.gaps)[int(len(self.gaps) * 0.99)]


def asking(number: int, tokens: int = TOKENS) -> dict[str, object]:
    return completion(f"#{number} Count from 1 to 900.", stream=True, max_tokens=tokens)


async def connected(port: int) -> Client:
    sock = trio.socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, QUEUE)
    await sock.connect(("127.0.0.1", port))
    return Client(trio.SocketStream(sock))


async def healthy(client: Client, result: Result, begun: float) -> None:
    moments, last = [time.perf_counter()], b""
    while b"[DONE]" not in last:
        last = last[-8:] + bytes(await client.stream.receive_some(65536))
        moments.append(time.perf_counter())
    result.gaps += [b - a for a, b in pairwise(moments)]
    result.took = max(result.took, time.perf_counter() - begun)


async def slow(client: Client, result: Result) -> None:
    last = b""
    while True:
        await trio.sleep(EVERY)
        got = bytes(await client.stream.receive_some(CHUNK))
        last = last[-4000:] + got
        if b"[DONE]" in last or not got:
            result.end = "whole"
            return
        if b"slow_client" in last:
            result.end = "error event"
            return


async def one_round(policy: str, to_the_end: bool) -> Result:
    """Under NOBODY all read as fast as they can."""
    engine, result = ScriptedEngine(STREAMS + 1), Result()
    everybody, policy = policy == NOBODY, DEFAULT if policy == NOBODY else policy
    steps = POLICIES[policy].steps
    slow_ones = replace(POLICIES[policy], steps=steps if steps == inf else MARK)
    bridge = Bridge(engine, STEP, slow=slow_ones)
    result.books = bridge.books
    settings = Settings(limits=Limits(send_buffer=QUEUE))
    server = Server(bridge, settings, seams=lambda request, memory: Padded())
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bridge.run)
        listeners = await nursery.start(trio.serve_tcp, server.serve_connection, 0)
        port = listeners[0].socket.getsockname()[1]
        begun = time.perf_counter()
        reader = await connected(port)
        await reader.send(COMPLETIONS, asking(0))
        async with trio.open_nursery() as readers:
            if everybody:
                readers.start_soon(healthy, reader, Result(), begun)
            else:
                (readers if to_the_end else nursery).start_soon(slow, reader, result)
            readers.start_soon(freed, engine, result, begun)
            for number in range(1, STREAMS):
                client = await connected(port)
                await client.send(COMPLETIONS, asking(number))
                readers.start_soon(healthy, client, result, begun)
        nursery.cancel_scope.cancel()
    return result


async def freed(engine: ScriptedEngine, result: Result, begun: float) -> None:
    """The slow one was the first to come."""
    while engine.gauges.submitted < STREAMS or _has_a_seat(engine):  # noqa: ASYNC110
        await trio.sleep(STEP / 2)
    result.freed = time.perf_counter() - begun


def _has_a_seat(engine: ScriptedEngine) -> bool:
    return any(each.work.prompt.startswith("#0 ") for each in engine._requests.values())


# -- what a held event costs ---------------------------------------------------------------------


def deltas() -> Iterator[Delta]:
    for number in range(400):
        yield Delta("w/0", 0, f"{number}, ", 1)


def held_lazily(policy: str) -> Queue:
    queue = Queue(POLICIES[policy], 1, Books())
    for delta in deltas():
        queue.put(delta)
    return queue


def held_eagerly() -> list[bytes]:
    """Every event formatted when it is made."""
    from reference_server.wire.request import completions

    body = {"model": "scripted", "prompt": "x"}
    shape = CompletionShape(completions(body), Label("cmpl-" + "0" * 24, 0, "scripted"))
    return [
        sse_writer.event(chunk)
        for delta in deltas()
        for _, chunk in shape.delta(shape.piece(0, delta))
    ]


def memory() -> dict[str, int]:
    """Bytes that four slow readers of 400 tokens each make the server hold."""
    ways: dict[str, Callable[[], object]] = {
        "eager (bytes ready to be sent)": held_eagerly,
        "lazy (events), unbounded": lambda: held_lazily("unbounded"),
        "lazy, coalesce": lambda: held_lazily("coalesce"),
    }
    out = {}
    for name, make in ways.items():
        make()
        tracemalloc.start()
        kept = [make() for _ in range(4)]
        out[name] = tracemalloc.get_traced_memory()[0]
        tracemalloc.stop()
        del kept
    return out


# -- a full batch whose readers are all paused ---------------------------------------------------


async def full_batch(policy: str) -> tuple[int, float]:
    """Seats held after two seconds, and how long an honest request waits for its first text."""
    engine = ScriptedEngine(STREAMS)
    bridge = Bridge(engine, STEP, slow=POLICIES[policy])
    settings = Settings(limits=Limits(send_buffer=QUEUE))
    server = Server(bridge, settings, seams=lambda request, memory: Padded())
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bridge.run)
        listeners = await nursery.start(trio.serve_tcp, server.serve_connection, 0)
        port = listeners[0].socket.getsockname()[1]
        sleepers = [await connected(port) for _ in range(STREAMS)]
        for number, client in enumerate(sleepers):
            await client.send(COMPLETIONS, asking(number, 150))
        await trio.sleep(2)
        seats = int(engine.gauges.extra["seats_taken"])
        honest = await connected(port)
        begun = time.perf_counter()
        await honest.send(COMPLETIONS, asking(99, 3))
        with trio.move_on_after(40):
            while b"data: " not in bytes(await honest.stream.receive_some(65536)):
                pass
        waited = time.perf_counter() - begun
        nursery.cancel_scope.cancel()
    return seats, waited


# -- tables --------------------------------------------------------------------------------------


def table(rounds: int) -> str:
    found: dict[str, list[Result]] = {name: [] for name in (NOBODY, *POLICIES)}
    for turn in range(rounds):
        for name in found:  # interleaved: what else the machine does hits all alike
            found[name].append(trio.run(one_round, name, turn == 0))
    alone = _took(found[NOBODY])
    lines = [
        "| policy | seven healthy ones | × | p99 gap | slow one's seat free after "
        "| held by one stream | merged | slow one's end |",
        "|---|---:|---:|---:|---:|---:|---:|---|",
    ]
    for name, results in found.items():
        took, last = _took(results), results[0]
        lines.append(
            f"| {name} | {took:.2f} s | {took / alone:.2f} "
            f"| {median(each.p99 for each in results) * 1e3:.0f} ms "
            f"| {median(each.freed for each in results):.2f} s "
            f"| {last.books.most_events} events, {last.books.most_bytes / 1024:.1f} KiB "
            f"| {last.books.merged} | {last.end} |"
        )
    return "\n".join(lines)


def _took(results: Sequence[Result]) -> float:
    return median(each.took for each in results)


def memory_table() -> str:
    lines = ["| what waits for four slow readers of 400 tokens | memory |", "|---|---:|"]
    lines += [f"| {name} | {size / 1024:.0f} KiB |" for name, size in memory().items()]
    return "\n".join(lines)


def batch_table(policies: Sequence[str]) -> str:
    lines = [
        "| a full batch that nobody reads | seats held after 2 s | another's first text after |",
        "|---|---:|---:|",
    ]
    for name in policies:
        seats, waited = trio.run(full_batch, name)
        lines.append(f"| {name} | {seats} of {STREAMS} | {waited:.2f} s |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    said = (
        f"{STREAMS} streams of {TOKENS} tokens, {STEP * 1e3:g} ms a step, pause at {MARK} events; "
        f"medians of {options.rounds} interleaved rounds; {os.cpu_count()} cores, "
        f"load average {os.getloadavg()[0]:.1f}."
    )
    gentle = [name for name in POLICIES if name != "naive"]
    parts = [table(options.rounds), memory_table(), batch_table(gentle), said]
    text = "\n\n".join(parts) + "\n"
    print(text)
    if options.write:
        RESULTS.write_text(text)


if __name__ == "__main__":
    main()
