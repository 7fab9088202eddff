"""Over real loopback sockets: what memory streams cannot show."""

from __future__ import annotations

import socket
import struct
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack

import pytest
import trio
import trio.testing

from tests.reference_server.client import CHAT, STEP, Client, Running, chat, run, serving, until

LONG = chat("Count from 1 to 300", stream=True, max_tokens=400)


Connect = Callable[[], Awaitable[tuple[Client, trio.SocketStream]]]


def over_sockets(body: Callable[[Running, Connect], Awaitable[None]]) -> None:
    async def main() -> None:
        async with serving() as running, AsyncExitStack() as closing:
            listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
            port = listeners[0].socket.getsockname()[1]
            running.nursery.start_soon(
                trio.serve_listeners, running.server.serve_connection, listeners
            )

            async def connect() -> tuple[Client, trio.SocketStream]:
                stream = await trio.open_tcp_stream("127.0.0.1", port)
                closing.push_async_callback(stream.aclose)
                return Client(stream), stream

            await body(running, connect)

    run(main)


def reset(stream: trio.SocketStream) -> None:
    stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    stream.socket.close()


def finish(stream: trio.SocketStream) -> None:
    stream.socket.shutdown(socket.SHUT_WR)


@pytest.mark.parametrize("leave", [reset, finish])
@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("moment", range(1, 11))  # tokens that were generated when we leave
def test_fin_and_rst_stop_the_work_within_one_step(
    leave: Callable[[trio.SocketStream], None], stream: bool, moment: int
) -> None:
    async def body(running: Running, connect: Connect) -> None:
        client, socket_stream = await connect()
        await client.send(CHAT, {**LONG, "stream": stream})
        await until(lambda: running.engine.gauges.tokens >= moment)
        before = running.engine.gauges.steps
        leave(socket_stream)
        await trio.sleep(50 * STEP)
        assert running.engine.gauges.steps - before <= 2  # the running one, and one beyond it
        assert not running.server.bridge.busy

    over_sockets(body)


def test_a_storm_of_resets_leaves_the_server_as_it_was() -> None:
    async def body(running: Running, connect: Connect) -> None:
        client, _ = await connect()
        expected = (await client.post(CHAT, LONG)).text()
        for number in range(50):
            storm, stream = await connect()
            await storm.send(CHAT, LONG)
            await trio.sleep(number % 7 * STEP)
            (reset if number % 2 else finish)(stream)
        await until(lambda: not running.server.bridge.busy)
        gauges = running.engine.gauges
        assert gauges.running == gauges.waiting == 0
        assert (await client.post(CHAT, LONG)).text() == expected
        assert len(running.server._connections) == 1

    over_sockets(body)


def test_a_stream_reaches_a_reader_as_it_is_made() -> None:
    async def body(running: Running, connect: Connect) -> None:
        client, stream = await connect()
        await client.send(CHAT, {**LONG, "max_tokens": 20})
        moments = set()
        raw = b""
        while b"[DONE]" not in raw:
            raw += bytes(await stream.receive_some(65536))
            moments.add(round(trio.current_time() / STEP))
        assert len(moments) >= 20

    over_sockets(body)


def test_a_refusal_in_the_middle_of_a_large_body_can_be_read() -> None:
    async def body(running: Running, connect: Connect) -> None:
        client, _ = await connect()
        reply = await client.post(CHAT, b"x" * 32 * 2**20)
        assert reply.status == 413
        assert reply.whole

    over_sockets(body)
