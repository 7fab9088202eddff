"""Our event stream reader beside three others, in one process, in turns.

python tests/benchmarks/sse.py [--write]    (--write: results/sse.md, for the README)

Ours notes offsets and anomalies; the others do neither. httpx-sse runs twice: as its user runs it
(`EventSource(response).iter_sse()`), and with its two decoders alone, behind an incremental UTF-8
decoder, without httpx around them; the ratios are to the latter, the faster. Times are CPU times:
no reader waits for anything, and other work on the machine counts for less.
"""

from __future__ import annotations

import codecs
import gc
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import httpx
import httpx_sse
import sseclient
from httpx_sse._decoders import SSEDecoder, SSELineDecoder
from openai._streaming import SSEDecoder as OpenAIDecoder

from conformance.sse import Reader

RESULT = Path(__file__).parent / "results" / "sse.md"
EVENTS = 4000
ROUNDS = 15
MIB = 1 << 20


def ours(reads: Iterable[bytes], *, shortcut: bool = True) -> int:
    reader, count = Reader(shortcut=shortcut), 0
    for data in reads:
        count += len(reader.feed(data))
    reader.close()
    assert not reader.anomalies
    return count


def ours_obvious(reads: Iterable[bytes]) -> int:
    return ours(reads, shortcut=False)


class _Stream(httpx.SyncByteStream):
    def __init__(self, reads: Iterable[bytes]) -> None:
        self.reads = reads

    def __iter__(self) -> Iterator[bytes]:
        return iter(self.reads)


def httpx_sse_as_used(reads: Iterable[bytes]) -> int:
    head = {"Content-Type": "text/event-stream"}
    response = httpx.Response(200, headers=head, stream=_Stream(reads))
    return sum(1 for _ in httpx_sse.EventSource(response).iter_sse())


def httpx_sse_alone(reads: Iterable[bytes]) -> int:
    text, lines, decoder = codecs.getincrementaldecoder("utf-8")(), SSELineDecoder(), SSEDecoder()
    count = 0
    for data in reads:
        for line in lines.decode(text.decode(data)):
            if decoder.decode(line) is not None:
                count += 1
    return count


def openai_python(reads: Iterable[bytes]) -> int:
    return sum(1 for _ in OpenAIDecoder().iter_bytes(iter(reads)))


def sseclient_py(reads: Iterable[bytes]) -> int:
    return sum(1 for _ in sseclient.SSEClient(iter(reads)).events())


READERS: dict[str, Callable[[Iterable[bytes]], int]] = {
    "conformance.sse": ours,
    "the same, shortcut off": ours_obvious,
    "httpx-sse, decoders alone": httpx_sse_alone,
    "httpx-sse, `iter_sse`": httpx_sse_as_used,
    "openai-python": openai_python,
    "sseclient-py": sseclient_py,
}
BASE = "httpx-sse, decoders alone"
WORDS = (" the", " quick", " brown", " fox", ",", " naïve", " 中文", " 😀", ".", "\n", ' "', " 42")


def chunk(number: int) -> bytes:
    """A chat chunk as servers send them: one word in 250 bytes."""
    body = {
        "id": "chatcmpl-9f1b2c3d4e5f60718293a4b5c6d7e8f9",
        "object": "chat.completion.chunk",
        "created": 1767225600,
        "model": "meta-llama/Llama-3.1-8B-Instruct",
        "choices": [
            {
                "index": 0,
                "delta": {"content": WORDS[number % len(WORDS)]},
                "logprobs": None,
                "finish_reason": None,
            }
        ],
    }
    return b"data: " + json.dumps(body, ensure_ascii=False).encode() + b"\n\n"


def cut(body: bytes, size: int) -> list[bytes]:
    return [body[i : i + size] for i in range(0, len(body), size)]


def in_turns(reads: Sequence[bytes]) -> dict[str, list[float]]:
    """CPU seconds for each reader and round; a round runs each reader once, the order turns."""
    names, times = list(READERS), {name: list[float]() for name in READERS}
    for turn in range(-1, ROUNDS):  # the first warms up
        for name in names:
            gc.collect()
            start = time.process_time()
            count = READERS[name](reads)
            took = time.process_time() - start
            assert count == EVENTS, (name, count)
            if turn >= 0:
                times[name].append(took)
        names.append(names.pop(0))
    return times


def speed_table(modes: dict[str, Sequence[bytes]]) -> Iterator[str]:
    results = {mode: in_turns(reads) for mode, reads in modes.items()}
    yield "| reader | " + " | ".join(f"{mode}: events/s | ×" for mode in modes) + " |"
    yield "|---|" + "---:|---:|" * len(modes)
    for name in READERS:
        cells = []
        for times in results.values():
            pairs = zip(times[BASE], times[name], strict=True)
            ratio = statistics.median(base / own for base, own in pairs)
            cells.append(f"{EVENTS / statistics.median(times[name]):,.0f} | {ratio:.2f}")
        yield f"| {name} | " + " | ".join(cells) + " |"


def best(reader: Callable[[Iterable[bytes]], int], reads: Sequence[bytes], rounds: int) -> float:
    times = []
    for _ in range(rounds):
        gc.collect()
        start = time.process_time()
        assert reader(reads) == 1
        times.append(time.process_time() - start)
    return min(times)


def cost_table() -> Iterator[str]:
    """One large event: time for each byte must not grow with the event."""
    yield "| one event of | 64-byte reads | for each byte | 64 KiB reads | for each byte |"
    yield "|---:|---:|---:|---:|---:|"
    for size in (MIB // 4, MIB, 4 * MIB, 16 * MIB):
        body = b"data: " + b"x" * (size - 8) + b"\n\n"
        cells = []
        for piece in (64, 65536):
            took = best(ours, cut(body, piece), 3)
            cells.append(f"{took:.4f} s | {took / size * 1e9:.2f} ns")
        yield f"| {size / MIB:g} MiB | " + " | ".join(cells) + " |"


def main() -> None:
    chunks = [chunk(number) for number in range(EVENTS)]
    body = b"".join(chunks)
    modes: dict[str, Sequence[bytes]] = {
        "an event a read": chunks,
        "64 KiB reads": cut(body, 65536),
    }
    table = "\n".join([*speed_table(modes), "", *cost_table()]) + "\n"
    print(table, end="")
    if "--write" in sys.argv[1:]:
        RESULT.parent.mkdir(exist_ok=True)
        RESULT.write_text(table)


if __name__ == "__main__":
    main()
