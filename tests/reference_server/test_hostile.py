"""Hostile clients: whatever they send, no 5xx, no crash, no seat lost; the next one is served."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
import trio

from tests.reference_server.client import (
    CHAT,
    COMPLETIONS,
    Client,
    chat,
    completion,
    run,
    serving,
    until,
)
from tests.reference_server.test_answers import tool

ODD: tuple[Any, ...] = (
    None, True, False, 0, -1, 1.5, 1e308, 10**40, "", "x", "\u0000", "漢" * 100, [], [[]], [None],
    {}, {"a": {}}, {"type": "function"}, {"enum": []}, {"$ref": "#"}, {"$ref": "#/a/b"},
    {"type": []}, {"type": "object", "properties": []}, {"anyOf": [{"anyOf": [{"type": 1}]}]},
)  # fmt: skip
FORMAT = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"enum": ["a"]}}}
FULL: tuple[tuple[str, dict[str, object]], ...] = (
    (CHAT, chat("hi", stream=True, stop=["a"], n=2, seed=1, max_tokens=3, logprobs=True)),
    (CHAT, chat("hi", tools=[tool()], tool_choice="required", max_tokens=3)),
    (CHAT, chat("hi", response_format=FORMAT, stream_options={}, logit_bias={"1": 1})),
    (COMPLETIONS, completion(["a", "b"], echo=True, logprobs=1, max_tokens=3, stream=True)),
)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in a JSON value, the whole included."""
    inner: list[tuple[Any, Any]] = []
    if isinstance(value, dict | list):
        inner = list(value.items() if isinstance(value, dict) else enumerate(value))
    return [path, *(place for key, each in inner for place in places(each, (*path, key)))]


def put(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    if not path:
        return new
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[path[0]] = put(value[path[0]], path[1:], new)
    return copy


@pytest.mark.parametrize("seed", range(40))
def test_an_odd_value_anywhere_is_an_answer_or_a_4xx(seed: int) -> None:
    rng = random.Random(seed)

    async def main() -> None:
        async with serving() as running:
            for _ in range(12):
                path, body = rng.choice(FULL)
                broken = put(body, rng.choice(places(body)), rng.choice(ODD))
                reply = await running.post(path, broken)
                note = f"seed {seed}: {json.dumps(broken, ensure_ascii=False)[:300]}"
                assert reply.status in (200, 400, 404), note
                assert reply.whole, note
            assert not running.server.bridge.busy
            assert (await running.post(CHAT, chat("Say only: hi"))).status == 200

    run(main)


@pytest.mark.parametrize("seed", range(40))
def test_noise_and_cut_requests_leave_nothing_behind(seed: int) -> None:
    rng = random.Random(seed)
    body = json.dumps(chat("Count from 1 to 9", stream=True)).encode()
    head = f"POST {CHAT} HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n\r\n".encode()

    async def main() -> None:
        async with serving() as running:
            for _ in range(10):
                raw = bytearray(head + body)
                if rng.random() < 0.5:
                    raw[rng.randrange(len(raw))] = rng.randrange(256)
                if rng.random() < 0.5:
                    del raw[rng.randrange(len(raw)) :]
                if rng.random() < 0.2:
                    raw = bytearray(rng.randbytes(rng.randrange(1, 400)))
                client = running.connect()
                await client.stream.send_all(bytes(raw))
                await trio.sleep(rng.random() / 5)
                await client.hang_up()
            await until(lambda: not running.server.bridge.busy)
            await trio.sleep(5)
            gauges = running.engine.gauges
            assert gauges.running == gauges.waiting == 0
            assert len(running.server._connections) == 0, f"seed {seed}"

    run(main)


def test_after_two_framings_in_one_request_the_connection_is_closed() -> None:
    smuggled = b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n"
    head = f"POST {CHAT} HTTP/1.1\r\nhost: x\r\ncontent-length: {len(smuggled) + 5}\r\n".encode()
    raw = head + b"transfer-encoding: chunked\r\n\r\n0\r\n\r\n" + smuggled

    async def main() -> None:
        async with serving() as running:
            client = running.connect()
            await client.stream.send_all(raw)
            said = await everything(client)
            assert said.count(b"HTTP/1.1 ") == 1
            assert b"connection: close\r\n" in said

    run(main)


def test_five_hundred_requests_at_once_are_answered_in_turn() -> None:
    async def main() -> None:
        async with serving() as running:
            client = running.connect()
            one = b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n"
            last = one.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n")
            async with trio.open_nursery() as nursery:
                nursery.start_soon(client.stream.send_all, one * 499 + last)
                said = await everything(client)
            assert said.count(b"HTTP/1.1 200 ") == 500

    run(main)


@pytest.mark.parametrize("part", [b"POST ", b"POST / HTTP/1.1\r\nX-", b"\r\n"])
def test_hundreds_of_slow_heads_keep_nobody_out_and_end_by_the_clock(part: bytes) -> None:
    async def main() -> None:
        async with serving() as running:
            slow = [running.connect() for _ in range(300)]
            for client in slow:
                await client.stream.send_all(part)
            reply = await running.post(CHAT, chat("Say only: hi"))
            assert reply.status == 200
            await trio.sleep(200)
            assert not running.server._connections

    run(main)


def test_half_closing_before_the_answer_counts_as_leaving_and_frees_the_seat() -> None:
    async def main() -> None:
        async with serving() as running:
            client = running.connect()
            await client.send(CHAT, chat("Count from 1 to 99", stream=True))
            await client.stream.send_eof()
            await everything(client)
            await until(lambda: not running.server.bridge.busy)
            assert running.engine.gauges.running == running.engine.gauges.waiting == 0

    run(main)


async def everything(client: Client) -> bytes:
    """All that comes until the server closes."""
    said = b""
    while data := bytes(await client.stream.receive_some(65536)):
        said += data
    return said
