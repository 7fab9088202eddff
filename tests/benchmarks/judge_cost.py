"""CPU of reading and judging one recorded stream, for each event, layer by layer.

python tests/benchmarks/judge_cost.py [--rounds N]

Answers as servers send them, made here byte for byte, each event in a chunk and a read of its own;
no server, no sockets. Told is the least of the rounds: everything else is somebody else's load.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator

from conformance import http1, sse
from conformance.capture import Capture, End, How, Read, Segment
from conformance.dialects import DIALECTS
from conformance.dossier import CHAT
from conformance.lifecycle import Machine
from conformance.patterns import chunks_from
from conformance.reading import read
from conformance.specs import known_cases
from loadgen import looking
from loadgen.crosstalk import hash_of, marks_in, text_of
from loadgen.exactness import exact
from loadgen.lengths import Length
from loadgen.measure import chunk_times, row_from
from loadgen.played import Played
from loadgen.workload import Workload

EVENTS = 100
WORKLOAD = Workload(CHAT, "m", 7, output_length=Length("fixed", 2 * EVENTS))
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
# Words with what makes a text less plain: quotes, ends of lines, other scripts.
WORDS = (" word", " the", ",", ' "so"', "\n\n", " Grüße", " 世界", " of", " a", ".")


def chunk(delta: object, finish: object = None, **members: object) -> dict[str, object]:
    return {
        "id": "chatcmpl-b9d7",
        "object": "chat.completion.chunk",
        "created": 1767225600,
        "model": "m",
        "choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}],
        **members,
    }


def stream(events: int, escaped: bool, **members: object) -> Iterator[bytes]:
    """The data of each event."""
    said = [chunk({"role": "assistant", "content": ""}, **members)]
    said += [chunk({"content": WORDS[n % len(WORDS)]}, **members) for n in range(events)]
    usage = {"prompt_tokens": 9, "completion_tokens": events, "total_tokens": events + 9}
    said += [chunk({}, "stop", **members), chunk({}, **members) | {"choices": [], "usage": usage}]
    for value in said:
        yield json.dumps(value, separators=(",", ":"), ensure_ascii=escaped).encode()
    yield b"[DONE]"


def captured(data: list[bytes]) -> Capture:
    """As the recorder keeps it: a read for each event."""
    body = WORKLOAD.ask(0).body
    head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\n"
    head += b"Content-Length: %d\r\n\r\n" % len(body)
    received, reads = HEAD, []
    for at, each in enumerate(data):
        framed = b"data: " + each + b"\n\n"
        received += b"%x\r\n%b\r\n" % (len(framed), framed)
        received += b"0\r\n\r\n" * (at == len(data) - 1)
        reads.append(Read(len(received), 1.0 + at / 50, True))
    return Capture(
        received,
        reads=tuple(reads),
        request=(Segment(head + body, 0.9),),
        connection=0,
        ordinal=0,
        connected_at=0.8,
        sent_at=0.9,
        end=End(How.FRAMED, 1.0 + len(data) / 50),
        clock="kernel",
    )


STREAMS = {
    "vLLM": captured(list(stream(EVENTS, escaped=False))),
    "OpenAI": captured(
        list(stream(EVENTS, True, service_tier="default", system_fingerprint=None, usage=None))
    ),
    "1,000 tokens": captured(list(stream(10 * EVENTS, escaped=False))),
}


def layers(capture: Capture) -> dict[str, Callable[[], object]]:
    """Each layer by itself, on what the ones below it made."""
    reading = read(capture, api=CHAT)
    checks = looking.checks_of(known_cases(), ("wire", "shape"), CHAT)
    ask, played = WORKLOAD.ask(0), Played(0, 0.8, 0.8, capture)

    def life() -> None:
        machine = Machine(1)
        for each in reading.chunks:
            machine.feed(each)

    def judged() -> None:
        reading.memo.clear()
        looking._breaches(reading, CHAT, checks)

    return {
        "http1": lambda: http1.Reader().feed(capture.received),
        "sse": lambda: sse.Reader().feed(reading.body),
        "chunks": lambda: list(chunks_from(reading.events, DIALECTS[CHAT])),
        "lifecycle": life,
        "read, all of these": lambda: read(capture, api=CHAT),
        "chunk times": lambda: list(chunk_times(reading)),
        "exact": lambda: exact(reading),
        "row, with times": lambda: row_from(played, ask, CHAT, reading),
        "text, hash, marks": lambda: (hash_of(text_of(reading)), marks_in(text_of(reading), None)),
        "checks": judged,
        "look, everything": lambda: looking.look(played, ask, CHAT, checks),
    }


def cost(work: Callable[[], object], rounds: int) -> float:
    """Seconds of CPU of one call, the least of some."""
    found = []
    for _ in range(rounds):
        before = time.process_time()
        work()
        found.append(time.process_time() - before)
    return min(found)


def table(rounds: int) -> list[str]:
    found: dict[str, list[float]] = {}
    for capture in STREAMS.values():
        events = len(capture.reads)
        for name, work in layers(capture).items():
            found.setdefault(name, []).append(cost(work, rounds) / events * 1e6)
    lines = [f"| µs an event | {' | '.join(STREAMS)} |", "|---|" + "---:|" * len(STREAMS)]
    for name, values in found.items():
        lines.append(f"| {name} | " + " | ".join(f"{value:.2f}" for value in values) + " |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=30)
    print("\n".join(table(parser.parse_args().rounds)))


if __name__ == "__main__":
    main()
