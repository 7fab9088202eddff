"""Both recorders against the same servers: the Captures agree in everything, times included.

Loopback sockets under a virtual clock, so the times are exact. What only real time can show
(kernel stamps) is in test_stamps.py.
"""

from __future__ import annotations

import socket
import ssl
import struct
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import fields, replace
from typing import Any

import pytest
import trio
import trio.testing

from conformance.capture import Capture, End, How
from conformance.connect import Door
from conformance.masking import Secret
from conformance.recorder import Recorder
from conformance.script import Bounds, Clocks, Exchange, Leave, Slow
from loadgen.fast import FastRecorder
from tests.conformance.attacks import CHUNKED, TOKEN, framed_chunk
from tests.conformance.hostile_server import EVENTS, JSON, chunk, framed, head, stream_answer
from tests.loadgen.playing import virtually

REQUEST = b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}"
CLOCKS = Clocks(connect=5, first_byte=20, progress=30, closing=3, total=100)
ROLE, DONE = chunk({"role": "assistant", "content": ""}), b"data: [DONE]\n\n"
STREAM = head(EVENTS, CHUNKED)
LAST = b"0\r\n\r\n"
HOLD, RESET = "hold", "reset"
Step = bytes | float | str  # what is sent, seconds of silence, HOLD or RESET


def paced(*data: bytes, pause: float = 0.5) -> tuple[Step, ...]:
    return tuple(step for piece in data for step in (piece, pause))


def chunks(*data: bytes) -> tuple[bytes, ...]:
    return tuple(map(framed_chunk, data))


TOKENS = paced(STREAM + framed_chunk(ROLE), *chunks(*(TOKEN,) * 5))
WHOLE = (*TOKENS, framed_chunk(DONE) + LAST)
PARTS = framed_chunk(DONE) + LAST
EVENTFUL: dict[str, Any] = {"events": True}
BOUNDED: dict[str, Any] = {"bounds": Bounds(head=500, body=3000, event=1000, reads=40)}
# name → what the server does with each exchange of one connection, the script, and how it ends
CASES: dict[str, tuple[Sequence[Sequence[Step]], dict[str, Any], Sequence[str]]] = {
    "normal": ([WHOLE], EVENTFUL, ["framed"]),
    "keep-alive": ([WHOLE, WHOLE, (framed(b"{}", JSON),)], EVENTFUL, ["framed"] * 3),
    "closes after the first": (
        [(head(EVENTS, CHUNKED, b"Connection: close"), *WHOLE[2:]), ()],
        EVENTFUL,
        ["framed", "not-connected"],
    ),
    "at one go": ([(STREAM + b"".join(chunks(stream_answer())) + LAST,)], EVENTFUL, ["framed"]),
    "the end in single bytes": (
        [(*TOKENS, *paced(*(PARTS[i : i + 1] for i in range(len(PARTS))), pause=0.2))],
        EVENTFUL,
        ["framed"],
    ),
    "everything in single bytes": (
        [(*paced(*(bytes([b]) for b in STREAM + framed_chunk(TOKEN) + PARTS), pause=0.1),)],
        EVENTFUL,
        ["framed"],
    ),
    "trailers": ([(*TOKENS, b"0\r\n", 1.0, b"X: y\r\n", 1.0, b"\r\n")], EVENTFUL, ["framed"]),
    "a last chunk of many zeros": ([(*TOKENS, b"00", 1.0, b"0;x=y\r\n\r\n")], EVENTFUL, ["framed"]),
    "a last chunk after white space": (
        [(*TOKENS, framed_chunk(TOKEN) + b"  0\r\n\r\n")],
        EVENTFUL,
        ["framed"],
    ),
    "sizes that begin with 0": (
        [(*TOKENS, b"0" + framed_chunk(TOKEN), 1.0, b"00" + framed_chunk(TOKEN), 1.0, LAST)],
        EVENTFUL,
        ["framed"],
    ),
    "a text that looks like the end": (
        [(*TOKENS, framed_chunk(b"data: {}\r\n0\r\n\r\n"), 1.0, framed_chunk(TOKEN), 1.0, LAST)],
        EVENTFUL,
        ["framed"],
    ),
    "by length": ([(head(EVENTS, b"Content-Length: %d" % (3 * len(TOKEN))), *paced(*(TOKEN,) * 3))],
                  EVENTFUL, ["framed"]),
    "by close": ([(head(EVENTS), *paced(ROLE, TOKEN, DONE))], EVENTFUL, ["closed"]),
    "bytes after the end": ([(*TOKENS, LAST + b"HTTP/1.1 200 OK\r\n")], EVENTFUL, ["framed"]),
    "interim answers": ([(head(status=b"103 Early Hints"), 1.0, *WHOLE)], EVENTFUL, ["framed"]),
    "large": ([(head(EVENTS, b"Content-Length: 1000000"), b"x" * 1_000_000)], {}, ["framed"]),
    "reset": ([(*TOKENS, RESET)], EVENTFUL, ["reset"]),
    "reset at once": ([(RESET,)], EVENTFUL, ["reset"]),
    "cut": ([TOKENS], EVENTFUL, ["closed"]),
    "cut inside a chunk": ([(*TOKENS, b"ff\r\ndata")], EVENTFUL, ["closed"]),
    "closed at once": ([()], EVENTFUL, ["closed"]),
    "no HTTP": ([(b"SSH-2.0-OpenSSH_9.2\r\n", 1.0)], EVENTFUL, ["closed"]),
    "a broken chunk": ([(*TOKENS, b"zz\r\n", 1.0, framed_chunk(TOKEN))], EVENTFUL, ["closed"]),
    "silent": ([(HOLD,)], EVENTFUL, ["first-byte"]),
    "stall": ([(*TOKENS, HOLD)], EVENTFUL, ["progress"]),
    "stall in the head": ([(STREAM[:20], HOLD)], EVENTFUL, ["progress"]),
    "heartbeats": ([(*TOKENS, *paced(*chunks(*(b": ping\n\n",) * 60), pause=1.0))],
                   EVENTFUL, ["progress"]),
    "a slow byte is progress of what is no event stream": (
        [(head(JSON, b"Content-Length: 90"), *paced(*(b"x",) * 50, pause=1.0), HOLD)],
        EVENTFUL,
        ["progress"],
    ),
    "total": ([(*TOKENS, *paced(*chunks(*(TOKEN,) * 60), pause=3.0))], EVENTFUL, ["total"]),
    "the sentinel and no end": ([(*TOKENS, framed_chunk(DONE), HOLD)], EVENTFUL, ["progress"]),
    "the sentinel in two reads and no end": (
        [(*TOKENS, framed_chunk(b"data: [DO"), 0.5, framed_chunk(b"NE]\n\n"), HOLD)],
        EVENTFUL,
        ["progress"],
    ),
    "the sentinel, then heartbeats": (
        [(*TOKENS, framed_chunk(DONE), *paced(*chunks(*(b": ping\n\n",) * 60), pause=1.0))],
        EVENTFUL,
        ["progress"],
    ),
    "the sentinel as text": (
        [(*TOKENS, framed_chunk(chunk({"content": "[DONE]"})), HOLD)],
        EVENTFUL,
        ["progress"],
    ),
    **{
        f"leave after 3 events by {how}": (
            [(*TOKENS, HOLD)],
            {"events": True, "leave": Leave(how, events=3)},
            ["progress" if how == "half" else "leave"],
        )
        for how in ("fin", "rst", "half")
    },
    "leave before headers": (
        [(HOLD,)],
        {"events": True, "leave": Leave("fin", events=0)},
        ["leave"],
    ),
    "leave with bytes unread": (
        [(STREAM + b"".join(chunks(*(TOKEN,) * 3)), HOLD)],
        {"events": True, "leave": Leave("rst", events=1)},
        ["leave"],
    ),
    "a slow reader": ([WHOLE], {**EVENTFUL, "slow": Slow(pause=7.0, events=2)}, ["framed"]),
    "leave after a time": (
        [(*TOKENS, HOLD)],
        {"events": True, "leave": Leave("rst", seconds=1.2)},
        ["leave"],
    ),
    "patience": ([(STREAM, HOLD)], {"events": True, "patience": 2.0}, ["patience"]),
    "patience that is rewarded": ([WHOLE], {"events": True, "patience": 2.0}, ["framed"]),
    "a head too long": ([(b"HTTP/1.1 200 OK\r\nX: " + b"x" * 600, HOLD)],
                        {**EVENTFUL, **BOUNDED}, ["head"]),
    "a body too long": ([paced(STREAM, *chunks(*(TOKEN,) * 30))],
                        {**EVENTFUL, **BOUNDED}, ["body"]),
    "an event too long": ([paced(STREAM, *chunks(TOKEN, b"data: ", *(b"x" * 200,) * 10))],
                          {**EVENTFUL, **BOUNDED}, ["event"]),
    "too many reads": ([paced(STREAM, *chunks(*(b": ping\n\n",) * 60), pause=0.1)],
                       {**EVENTFUL, **BOUNDED}, ["body"]),
    "a request in parts": ([WHOLE], {**EVENTFUL, "request": (REQUEST[:20], REQUEST[20:]),
                                     "between": 1.0}, ["framed"]),
    "a request nobody reads": ([(HOLD,)],
                               {**EVENTFUL, "request": (b"x" * 20_000_000,)}, ["first-byte"]),
    "an answer before the request is whole": (
        [(framed(b"{}", JSON), HOLD), ()],
        {**EVENTFUL, "request": (b"x" * 20_000_000,)},
        ["framed", "not-connected"],
    ),
}  # fmt: skip


def serving(exchanges: Sequence[Sequence[Step]]) -> Callable[[trio.SocketStream], Awaitable[None]]:
    async def serve(stream: trio.SocketStream) -> None:
        for steps in exchanges:
            missing = len(REQUEST)
            while missing and (data := await stream.receive_some(missing)):
                missing -= len(data)
            for step in steps:
                await play(stream, step)

    return serve


async def play(stream: trio.SocketStream, step: Step) -> None:
    if isinstance(step, float):
        await trio.sleep(step)
    elif isinstance(step, bytes):
        await stream.send_all(step)
    elif step == RESET:
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        await trio.aclose_forcefully(stream)
    else:
        await trio.sleep_forever()


Taking = Callable[[Door, Exchange, int], Awaitable[list[Capture]]]


async def recorded(
    serve: Callable[[trio.SocketStream], Awaitable[None]],
    script: Exchange,
    take: Taking,
    times: int,
    tls: ssl.SSLContext | None = None,
) -> list[Capture]:
    """So many exchanges on one connection to such a server."""

    async def guarded(stream: trio.SocketStream) -> None:
        # The client hung up, as it should.
        with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            await serve(stream)

    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(trio.serve_tcp, guarded, 0)
        door = Door("127.0.0.1", listeners[0].socket.getsockname()[1], tls=tls)
        captures = await take(door, script, times)
        nursery.cancel_scope.cancel()
    return captures


async def by_plain(door: Door, script: Exchange, times: int) -> list[Capture]:
    async with Recorder(door, wall=0.0, secrets=SECRETS).connection() as connection:
        return [await connection.exchange(script) for _ in range(times)]


async def by_fast(door: Door, script: Exchange, times: int) -> list[Capture]:
    fast = FastRecorder(door, kernel=False, clock=trio.current_time, wall=0.0, secrets=SECRETS)
    async with fast.open() as recorder, recorder.connection() as connection:
        return [await connection.exchange(script) for _ in range(times)]


async def by_prompt(door: Door, script: Exchange, times: int) -> list[Capture]:
    """Each is begun at once, and recorded after all others had a turn."""
    fast = FastRecorder(door, kernel=False, clock=trio.current_time, wall=0.0, secrets=SECRETS)
    found = []
    async with fast.open() as recorder, recorder.connection() as connection:
        for _ in range(times):
            connection.begin(script)
            await trio.testing.wait_all_tasks_blocked()
            found.append(await connection.exchange(script))
    return found


SECRETS = (Secret("env:KEY", b"assistant"),)


def told(capture: Capture) -> Capture:
    """Times to the millisecond; how reads fell is the sockets' affair where bytes came at once."""

    def at(moment: float | None) -> float | None:
        return None if moment is None else round(moment, 3)

    merged = {at(read.at): read.end for read in capture.reads}
    return replace(
        capture,
        reads=tuple(sorted(merged.items())),  # type: ignore[arg-type]
        request=tuple(replace(segment, at=at(segment.at)) for segment in capture.request),
        connected_at=at(capture.connected_at),
        sent_at=at(capture.sent_at),
        end=replace(capture.end, at=at(capture.end.at)),
    )


def ending(end: End) -> str:
    return (
        end.detail if end.how in (How.CLOCK, How.BOUND, How.LEFT) and end.detail else end.how.value
    )


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("take", [by_fast, by_prompt])
def test_both_recorders_give_the_same_capture(take: Taking, name: str) -> None:
    exchanges, changes, ends = CASES[name]
    script = replace(Exchange((REQUEST,), clocks=CLOCKS), **changes)
    found: list[list[Capture]] = []

    async def main() -> None:
        for each in (by_plain, take):
            found.append(await recorded(serving(exchanges), script, each, len(exchanges)))

    virtually(main)
    assert [ending(capture.end) for capture in found[1]] == ends
    compare(*found)


def compare(plain: Sequence[Capture], fast: Sequence[Capture]) -> None:
    for ours, theirs in zip(map(told, fast), map(told, plain), strict=True):
        for field in fields(Capture):
            assert getattr(ours, field.name) == getattr(theirs, field.name), field.name
