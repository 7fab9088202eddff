"""Both recorders against the same servers under TLS: the Captures agree in everything.

The plays are those of test_fast.py; besides, what TLS alone can do. Loopback sockets under a
virtual clock.
"""

from __future__ import annotations

import gc
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
import trio

from conformance.capture import Capture
from conformance.connect import Door, Encrypted
from conformance.script import Exchange, Leave
from loadgen.fast import FastRecorder
from loadgen.fast.watched import Watched
from tests.conformance.attacks import TOKEN, framed_chunk
from tests.loadgen.playing import virtually
from tests.loadgen.test_fast import (
    CASES,
    CLOCKS,
    EVENTFUL,
    HOLD,
    LAST,
    REQUEST,
    STREAM,
    TOKENS,
    WHOLE,
    Step,
    Taking,
    by_fast,
    by_plain,
    by_prompt,
    chunks,
    compare,
    ending,
    play,
    recorded,
)
from tests.loadgen.tls_server import Sealing, contexts

Serve = Callable[[trio.SocketStream], Awaitable[None]]


class Raw(bytes):
    """Sent as it is."""


Made = Callable[[Sealing], bytes | list[Step]]  # records, or parts of them in time
TlsStep = Step | Raw | Made


def goodbye(tls: Sealing) -> bytes:
    return tls.goodbye()


def alert(tls: Sealing) -> bytes:
    return tls.alert()


def together(*plaintexts: bytes) -> Made:
    """Records that leave in one segment."""
    return lambda tls: tls.sealed(*plaintexts)


def apart(plaintext: bytes, *at: int) -> Made:
    """Records that are cut at these places."""

    def made(tls: Sealing) -> list[Step]:
        data = tls.sealed(plaintext)
        ends = (*at, len(data))
        pieces = [data[start:end] for start, end in zip((0, *at), ends, strict=True)]
        return [each for piece in pieces for each in (Raw(piece), 0.5)]

    return made


def one_and_a_half(first: bytes, second: bytes) -> Made:
    def made(tls: Sealing) -> list[Step]:
        whole, half = tls.sealed(first), tls.sealed(second)
        return [Raw(whole + half[:9]), 1.0, Raw(half[9:])]

    return made


def single(plaintext: bytes) -> Made:
    return lambda tls: [each for byte in tls.sealed(plaintext) for each in (Raw([byte]), 0.01)]


def then(*makes: Made) -> Made:
    """All of it in one segment."""

    def made(tls: Sealing) -> bytes:
        parts = [make(tls) for make in makes]
        assert all(isinstance(part, bytes) for part in parts)
        return b"".join(parts)  # type: ignore[arg-type]

    return made


TLS_CASES: dict[str, tuple[Sequence[Sequence[TlsStep]], dict[str, Any], Sequence[str]]] = {
    "closed as it should be": ([(*TOKENS, goodbye)], EVENTFUL, ["closed"]),
    "a goodbye and no FIN": ([(*TOKENS, goodbye, HOLD)], EVENTFUL, ["closed"]),
    "a goodbye beside the last bytes": (
        [(*TOKENS, then(together(framed_chunk(TOKEN)), goodbye), HOLD)], EVENTFUL, ["closed"],
    ),
    "a goodbye beside the end": (
        [(*TOKENS, then(together(LAST), goodbye), HOLD)], EVENTFUL, ["framed"],
    ),
    "a goodbye at once": ([(goodbye, HOLD)], EVENTFUL, ["closed"]),
    "an alert": ([(*TOKENS, alert, HOLD)], EVENTFUL, ["reset"]),
    "an alert beside the last bytes": (
        [(*TOKENS, then(together(framed_chunk(TOKEN)), alert), HOLD)], EVENTFUL, ["reset"],
    ),
    "an alert, then a FIN": ([(*TOKENS, alert)], EVENTFUL, ["reset"]),
    "no TLS any more": ([(*TOKENS, Raw(b"HTTP/1.1 400 Bad\r\n"), HOLD)], EVENTFUL, ["reset"]),
    "a record that was changed": (
        [(*TOKENS, Raw(b"\x17\x03\x03\x00\x20" + b"x" * 32), HOLD)], EVENTFUL, ["reset"],
    ),
    "cut inside a record": (
        [(*TOKENS, lambda tls: tls.sealed(framed_chunk(TOKEN))[:-3])], EVENTFUL, ["tls-cut"],
    ),
    "half a record and no more": (
        [(*TOKENS, lambda tls: tls.sealed(framed_chunk(TOKEN))[:-3], HOLD)],
        EVENTFUL,
        ["progress"],
    ),
    "records in parts": (
        [(apart(STREAM, 3, 40), *(apart(each, 2, 7) for each in chunks(*(TOKEN,) * 5)), LAST)],
        EVENTFUL,
        ["framed"],
    ),
    "records in single bytes": (
        [(single(STREAM), single(framed_chunk(TOKEN)), single(LAST))], EVENTFUL, ["framed"],
    ),
    "many records in a segment": (
        [(STREAM, together(*chunks(*(TOKEN,) * 20)), 1.0, together(framed_chunk(TOKEN), LAST))],
        EVENTFUL,
        ["framed"],
    ),
    "a record and half the next": ([(STREAM, one_and_a_half(framed_chunk(TOKEN), LAST))],
                                   EVENTFUL, ["framed"]),
    "records of a byte": (
        [(STREAM, together(*(bytes([each]) for each in framed_chunk(b"x" * 5000))), LAST)],
        {},
        ["framed"],
    ),
    "an answer of megabytes": ([(STREAM, framed_chunk(b"x" * 3_000_000), LAST)], {}, ["framed"]),
    "bytes after the end in records of their own": (
        [(*TOKENS, together(LAST, b"HTTP/1.1 ", b"200 OK\r\n"))], EVENTFUL, ["framed"],
    ),
    "answers in one segment": (
        [(*TOKENS, together(LAST, STREAM, *chunks(TOKEN), LAST)), ()],
        EVENTFUL,
        ["framed", "tls-cut"],
    ),
    "leave by half, and then a goodbye": (
        [(*TOKENS, 1.0, framed_chunk(TOKEN), goodbye, HOLD)],
        {**EVENTFUL, "leave": Leave("half", events=3)},
        ["closed"],
    ),
    "leave by half because of what a goodbye follows": (
        [(STREAM, then(together(framed_chunk(TOKEN)), goodbye), HOLD)],
        {**EVENTFUL, "leave": Leave("half", events=1)},
        ["closed"],
    ),
    "leave because of what a goodbye follows": (
        [(STREAM, then(together(framed_chunk(TOKEN)), goodbye), HOLD)],
        {**EVENTFUL, "leave": Leave("fin", events=1)},
        ["leave"],
    ),
}  # fmt: skip


def serving(exchanges: Sequence[Sequence[TlsStep]], *, tickets: bool) -> Serve:
    async def serve(stream: trio.SocketStream) -> None:
        tls = Sealing(stream, contexts()[0])
        await tls.handshake(tickets=tickets)
        for steps in exchanges:
            await tls.receive(len(REQUEST))
            for step in steps:
                await _play(tls, step)

    return serve


async def _play(tls: Sealing, step: TlsStep) -> None:
    said: Step | list[Step]
    if callable(step):
        said = step(tls)
    elif isinstance(step, bytes) and not isinstance(step, Raw):
        said = tls.sealed(step)
    else:
        said = step
    for each in said if isinstance(said, list) else [said]:
        await play(tls.raw, each)


def by_both(serve: Serve, script: Exchange, take: Taking, times: int) -> list[list[Capture]]:
    """By the plain recorder, and by the other."""
    found: list[list[Capture]] = []

    async def main() -> None:
        for each in (by_plain, take):
            found.append(await recorded(serve, script, each, times, contexts()[1]))

    virtually(main)
    return found


def script(changes: dict[str, Any]) -> Exchange:
    return replace(Exchange((REQUEST,), clocks=CLOCKS), **changes)


@pytest.mark.parametrize("name", CASES)
def test_both_recorders_give_the_same_capture_under_tls(name: str) -> None:
    exchanges, changes, ends = CASES[name]
    serve = serving(exchanges, tickets=True)
    plain, fast = by_both(serve, script(changes), by_fast, len(exchanges))
    # Whoever says no goodbye has cut.
    cut = ["tls-cut" if end == "closed" else end for end in ends]
    assert [ending(capture.end) for capture in fast] == cut
    compare(plain, fast)


@pytest.mark.parametrize("name", TLS_CASES)
@pytest.mark.parametrize("take", [by_fast, by_prompt])
def test_what_tls_alone_can_do_is_told_alike(take: Taking, name: str) -> None:
    exchanges, changes, ends = TLS_CASES[name]
    serve = serving(exchanges, tickets=False)
    plain, fast = by_both(serve, script(changes), take, len(exchanges))
    assert [ending(capture.end) for capture in fast] == ends
    compare(plain, fast)


async def silent(stream: trio.SocketStream) -> None:
    await trio.sleep_forever()


async def endless(stream: trio.SocketStream) -> None:
    """A ServerHello that goes on and on."""
    await stream.receive_some(65536)
    await stream.send_all(b"\x16\x03\x03\x20\x00\x02\x00\x1f\xfc\x03\x03")
    while True:
        await stream.send_all(b"x")
        await trio.sleep(0.1)


async def without_tls(stream: trio.SocketStream) -> None:
    await stream.receive_some(65536)
    await stream.send_all(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    await trio.sleep_forever()


async def gone(stream: trio.SocketStream) -> None:
    await stream.receive_some(65536)


@pytest.mark.parametrize(
    ("serve", "end"),
    [
        (silent, "connect"),
        (endless, "connect"),
        (without_tls, "tls-failed"),
        (gone, "tls-failed"),
    ],
)
def test_no_handshake_is_told_alike(serve: Serve, end: str) -> None:
    plain, fast = by_both(serve, script({}), by_fast, 2)
    assert [ending(capture.end) for capture in fast] == [end, "not-connected"]
    compare(plain, fast)


@pytest.mark.parametrize("steps", [WHOLE, TOKENS, (*TOKENS, alert, HOLD)])
def test_a_connection_that_is_closed_keeps_nothing_of_its_stream_and_its_tls(
    steps: Sequence[TlsStep],
) -> None:
    """A load has as many as it has requests, where an endpoint keeps none; and circles are not
    looked for while it is played."""
    kept: list[object] = []

    async def take(door: Door, script: Exchange, times: int) -> list[Capture]:
        fast = FastRecorder(door, kernel=False, clock=trio.current_time)
        async with fast.open() as recorder, recorder.connection() as connection:
            captures = [await connection.exchange(script) for _ in range(times)]
            connection.close()
            kept.extend(each for each in there() if each not in before)
        return captures

    async def main() -> None:
        await recorded(serving([steps], tickets=True), script(EVENTFUL), take, 1, contexts()[1])

    def there() -> list[object]:
        return [each for each in gc.get_objects() if type(each) in (Encrypted, Watched)]

    gc.collect()
    before = there()
    gc.disable()
    try:
        virtually(main)
    finally:
        gc.enable()
    assert not kept
