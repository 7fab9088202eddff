"""Before a load: what is said of an endpoint that takes connections and does not answer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress

import pytest
import trio
import trio.testing

from conformance.connect import Door
from conformance.errors import TargetError
from conformance.recorder import Recorder
from conformance.target import Target, parse_url
from loadgen.preflight import preflight


async def once(stream: trio.SocketStream, answer: bytes) -> None:
    if answer:
        await stream.send_all(answer)
    await stream.aclose()


async def dripping(stream: trio.SocketStream, answer: bytes) -> None:
    head, _, body = answer.partition(b"\r\n\r\n")
    await stream.send_all(head + b"\r\n\r\n")
    for number in range(len(body)):
        await trio.sleep(1)
        await stream.send_all(body[number : number + 1])


async def told(answer: bytes, way: Callable[[trio.SocketStream, bytes], Awaitable[None]]) -> str:
    async def serve(stream: trio.SocketStream) -> None:
        await stream.receive_some(4096)
        with suppress(trio.BrokenResourceError):
            await way(stream, answer)

    async with trio.open_nursery() as nursery:
        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
        port = listeners[0].socket.getsockname()[1]
        nursery.start_soon(trio.serve_listeners, serve, listeners)
        target = Target(parse_url(f"http://127.0.0.1:{port}"))
        with pytest.raises(TargetError) as caught:
            await preflight(Recorder(Door("127.0.0.1", port)), target, "chat", (), 5.0)
        nursery.cancel_scope.cancel()
    return str(caught.value)


def test_who_hangs_up_without_a_word_does_not_answer() -> None:
    line = trio.run(told, b"", once)
    assert "does not answer (closed after " in line
    assert "--model" in line


def test_who_answers_without_a_list_lists_no_model() -> None:
    line = trio.run(told, b"HTTP/1.1 404 No\r\nContent-Length: 0\r\n\r\n", once)
    assert line.endswith("lists no model; name one with --model")


def test_a_list_that_drips_is_waited_for_once_and_not_for_long() -> None:
    """At the two places where it may stand it would take forty seconds."""
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: 900\r\n\r\n" + b" " * 900
    clock = trio.testing.MockClock(autojump_threshold=0)
    line = trio.run(told, answer, dripping, clock=clock)
    assert "does not answer (clock after 10 s)" in line
