"""CPU of a load client for each event, on one paced server, in turns.

python -m tests.benchmarks.load_cost [--write] [--rounds N] [--seconds S] [--tools DIR]

--write: results/load_cost.md. A server of a few lines, in a process of its own, answers 64
kept connections with streams of 50 events a second, each stream in its own step. Each client is a
process: it plays for some seconds, and says how many events it had and what CPU time they took it,
start-up left out. The order turns with each round; what is told are the medians of rounds.

recorded: loadgen's recorders, every byte and read kept, framing followed to the end of each answer.
under TLS: handshakes included.
judged: besides, each answer read, measured and held against all wire and shape checks. bare: a
loop around a common HTTP library and json.loads, nothing kept; aiohttp where it is installed.
--tools: load generators of others besides, each in its turn; see other_tools.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from ssl import SSLContext

import trio

from conformance.connect import Door, tls_context
from conformance.dossier import CHAT
from conformance.script import Bounds, Clocks, Exchange
from conformance.specs import known_cases
from loadgen.lengths import Length
from loadgen.load import Closed
from loadgen.lookers import Job, looks
from loadgen.looking import checks_of
from loadgen.play import Player
from loadgen.played import Played
from loadgen.recording import KERNEL, USER, recording
from loadgen.workload import Workload
from tests.benchmarks import other_tools
from tests.loadgen.tls_server import contexts

OURSELVES = (sys.executable, "-m", "tests.benchmarks.load_cost")
RESULT = Path(__file__).parent / "results" / "load_cost.md"
STREAMS, EVENTS_A_SECOND, EVENTS = 64, 50, 100
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
WORKLOAD = Workload(CHAT, "m", 7, output_length=Length("fixed", 2 * EVENTS))
Measured = tuple[int, float]  # events, seconds of CPU


def event(delta: dict[str, str], finish: str | None = None, **members: object) -> bytes:
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
    value = {
        "id": "chatcmpl-1",
        "object": "chat.completion.chunk",
        "created": 1767225600,
        "model": "m",
        "choices": [choice],
        **members,
    }
    return framed(b"data: " + json.dumps(value, separators=(",", ":")).encode() + b"\n\n")


def framed(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


TOKEN = event({"content": " word"}, usage=None)
USAGE = {"prompt_tokens": 9, "completion_tokens": EVENTS, "total_tokens": EVENTS + 9}
LAST = (
    event({}, "stop", usage=None)
    + event({}, usage=USAGE, choices=[])
    + framed(b"data: [DONE]\n\n")
    + b"0\r\n\r\n"
)


# -- the server ------------------------------------------------------------------------------------


FIRST_TOKEN = 0.1  # seconds after the request
MODELS = {"object": "list", "data": [{"id": "m", "object": "model", "owned_by": "us"}]}


class Paced:
    """Answers, paced by absolute times, and what is known of them."""

    def __init__(self) -> None:
        self.events = self.active = 0
        self.ttft: list[float] = []  # from a request's last byte to the write of the first token

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer after answer on one connection."""
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                if head.startswith(b"GET "):
                    writer.write(self._told(head.split()[1].decode()))
                    continue
                length = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
                await reader.readexactly(length)
                self.active += 1
                try:
                    await self._stream(writer)
                finally:
                    self.active -= 1
        except (OSError, asyncio.IncompleteReadError):
            writer.close()

    async def _stream(self, writer: asyncio.StreamWriter) -> None:
        loop = asyncio.get_running_loop()
        start = loop.time()
        writer.write(HEAD)
        for number in range(EVENTS):
            await asyncio.sleep(start + FIRST_TOKEN + number / EVENTS_A_SECOND - loop.time())
            if writer.is_closing():  # nobody reads: no event was sent
                raise ConnectionResetError
            if number == 0:
                writer.write(event({"role": "assistant", "content": ""}, usage=None) + TOKEN)
                self.ttft.append(loop.time() - start)
                self.events += 1
            else:
                writer.write(TOKEN)
            self.events += 1
        writer.write(LAST)
        self.events += 3
        await writer.drain()

    def _told(self, path: str) -> bytes:
        if path == "/reset":
            self.events, self.ttft = 0, []
        counted = {"events": self.events, "active": self.active, "ttft": self.ttft}
        body = json.dumps(MODELS if path.startswith("/v1/") else counted).encode()
        head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
        return head % len(body) + body


async def server() -> None:
    """Two doors, without TLS and with it; their ports are told in that order."""
    serve = Paced().serve
    for tls in (None, contexts()[0]):
        made = await asyncio.start_server(serve, "127.0.0.1", 0, backlog=1024, ssl=tls)
        print(made.sockets[0].getsockname()[1], flush=True)
    await made.serve_forever()


# -- the clients -----------------------------------------------------------------------------------


def _script(port: int) -> Callable[[int], Exchange]:
    def script(index: int) -> Exchange:
        body = WORKLOAD.ask(index).body
        head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n" % port
        head += b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body)
        return Exchange((head + body,), events=True, clocks=Clocks(), bounds=Bounds())

    return script


async def _played(
    clock: str, port: int, seconds: float, tls: SSLContext | None = None
) -> tuple[list[Played], float]:
    """What was played, as `loadgen run --clock` does, and the CPU time of it."""
    played: list[Played] = []
    async with recording(Door("127.0.0.1", port, tls=tls), clock, ()) as made:
        player = Player(made.recorder, _script(port), played.append, None, made.sleep, made.watch)
        before = time.process_time()
        await player.play(Closed(STREAMS, seconds=seconds))
        return played, time.process_time() - before


def _events(played: list[Played]) -> int:
    return sum(one.capture.received.count(b"data: ") for one in played if one.capture)


def fast(port: int, seconds: float) -> Measured:
    played, cpu = trio.run(_played, KERNEL, port, seconds)
    return _events(played), cpu


def plain(port: int, seconds: float) -> Measured:
    played, cpu = trio.run(_played, USER, port, seconds)
    return _events(played), cpu


def fast_tls(port: int, seconds: float) -> Measured:
    played, cpu = trio.run(_played, KERNEL, port, seconds, tls_context(insecure=True))
    return _events(played), cpu


def plain_tls(port: int, seconds: float) -> Measured:
    played, cpu = trio.run(_played, USER, port, seconds, tls_context(insecure=True))
    return _events(played), cpu


def judged(port: int, seconds: float) -> Measured:
    job = Job(WORKLOAD, checks_of(known_cases(), ("wire", "shape"), CHAT))
    job.look(Played(0, 0.0))
    played, cpu = trio.run(_played, KERNEL, port, seconds)
    job.look(played[0])  # the modules of the checks are loaded
    before = time.process_time()
    found = list(looks(job, played, 1))
    cpu += time.process_time() - before
    assert not any(each.is_broken for each in found), found[0]
    return _events(played), cpu


def bare_httpx(port: int, seconds: float) -> Measured:
    import httpx

    count = 0

    async def client(http: httpx.AsyncClient, until: float) -> None:
        nonlocal count
        index = 0
        while time.monotonic() < until:
            body = WORKLOAD.ask(index).body
            index += 1
            url = f"http://127.0.0.1:{port}/v1/chat/completions"
            async with http.stream("POST", url, content=body) as answer:
                async for line in answer.aiter_lines():
                    if line.startswith("data: "):
                        count += 1
                        if line != "data: [DONE]":
                            json.loads(line[6:])

    async def main() -> float:
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=STREAMS)
        async with httpx.AsyncClient(timeout=60, limits=limits) as http:
            before = time.process_time()
            until = time.monotonic() + seconds
            await asyncio.gather(*(client(http, until) for _ in range(STREAMS)))
            return time.process_time() - before

    cpu = asyncio.run(main())
    return count, cpu


def bare_aiohttp(port: int, seconds: float) -> Measured:
    import aiohttp  # type: ignore[import-not-found, unused-ignore]

    count = 0

    async def client(http: aiohttp.ClientSession, until: float) -> None:
        nonlocal count
        index = 0
        while time.monotonic() < until:
            body = WORKLOAD.ask(index).body
            index += 1
            url = f"http://127.0.0.1:{port}/v1/chat/completions"
            async with http.post(url, data=body) as answer:
                async for line in answer.content:
                    if line.startswith(b"data: "):
                        count += 1
                        if line != b"data: [DONE]\n":
                            json.loads(line[6:])

    async def main() -> float:
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as http:
            before = time.process_time()
            until = time.monotonic() + seconds
            await asyncio.gather(*(client(http, until) for _ in range(STREAMS)))
            return time.process_time() - before

    cpu = asyncio.run(main())
    return count, cpu


UNDER_TLS: dict[str, Callable[[int, float], Measured]] = {
    "recorded and framed under TLS, fast recorder": fast_tls,
    "recorded and framed under TLS, plain recorder": plain_tls,
}
CLIENTS: dict[str, Callable[[int, float], Measured]] = {
    "recorded and framed, fast recorder": fast,
    "recorded, judged and counted, fast recorder": judged,
    "recorded and framed, plain recorder": plain,
    **UNDER_TLS,
    **({"bare aiohttp": bare_aiohttp} if find_spec("aiohttp") else {}),
    **({"bare httpx": bare_httpx} if find_spec("httpx") else {}),
}


# -- the measuring ---------------------------------------------------------------------------------


def measured(name: str, port: int, seconds: float) -> float:
    """Microseconds of CPU an event, in a process of its own."""
    command = [
        sys.executable,
        "-m",
        "tests.benchmarks.load_cost",
        "--client",
        name,
        "--port",
        str(port),
    ]
    out = subprocess.run(
        [*command, "--seconds", str(seconds)], check=True, capture_output=True, text=True
    ).stdout
    events, cpu = json.loads(out)
    expected = STREAMS * EVENTS / (FIRST_TOKEN + EVENTS / EVENTS_A_SECOND) * seconds
    if events < 0.8 * expected:
        print(f"{name}: only {events} events of about {expected:.0f}", file=sys.stderr)
    return float(cpu) / int(events) * 1e6


def table(rounds: int, seconds: float, tools: Path | None = None) -> list[str]:
    command = [*OURSELVES, "--server"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            port, tls_port = (int(process.stdout.readline()) for _ in range(2))
            found: dict[str, list[float]] = {name: [] for name in CLIENTS}
            names = list(CLIENTS)
            folder = (tools or Path()).resolve()
            there = other_tools.installed(folder) if tools else {}
            ran: dict[other_tools.Tool, list[other_tools.Ran]] = {tool: [] for tool in there}
            for _ in range(rounds):
                for name in names:
                    door = tls_port if name in UNDER_TLS else port
                    found[name].append(measured(name, door, seconds))
                names.append(names.pop(0))
                for tool in there:
                    ran[tool].append(
                        other_tools.run(tool, folder, port, STREAMS, 8 * STREAMS, EVENTS)
                    )
        finally:
            process.kill()
    load = os.getloadavg()[0]
    lines = ["| client | CPU an event, median of rounds | least | most |", "|---|---:|---:|---:|"]
    for name, values in found.items():
        figures = (statistics.median(values), min(values), max(values))
        lines.append(f"| {name} | " + " | ".join(f"{value:.1f} µs" for value in figures) + " |")
    lines += [
        "",
        f"{STREAMS} streams × {EVENTS_A_SECOND} events/s, connections kept, {rounds} rounds of "
        f"{seconds:g} s each in turns; Python {sys.version.split()[0]} on {os.cpu_count()} CPUs, "
        f"load average {load:.1f}.",
    ]
    return lines + (["", *other_tools.table(there, ran)] if there else [])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=16.0)  # about what other tools play
    parser.add_argument("--tools", type=Path, help="where other load generators are installed")
    parser.add_argument("--server", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--client", choices=CLIENTS, help=argparse.SUPPRESS)
    parser.add_argument("--port", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.server:
        asyncio.run(server())
    elif args.client:
        print(json.dumps(CLIENTS[args.client](args.port, args.seconds)))
    else:
        lines = table(args.rounds, args.seconds, args.tools)
        print("\n".join(lines))
        if args.write:
            RESULT.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
