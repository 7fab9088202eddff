"""Before a load: what is said of an endpoint that takes connections and does not answer."""

from __future__ import annotations

import pytest
import trio

from conformance.connect import Door
from conformance.errors import TargetError
from conformance.recorder import Recorder
from conformance.target import Target, parse_url
from loadgen.preflight import preflight


async def told(answer: bytes) -> str:
    async def serve(stream: trio.SocketStream) -> None:
        await stream.receive_some(4096)
        if answer:
            await stream.send_all(answer)
        await stream.aclose()

    async with trio.open_nursery() as nursery:
        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
        port = listeners[0].socket.getsockname()[1]
        nursery.start_soon(trio.serve_listeners, serve, listeners)
        target = Target(parse_url(f"http://127.0.0.1:{port}/v1"))
        with pytest.raises(TargetError) as caught:
            await preflight(Recorder(Door("127.0.0.1", port)), target, "chat", (), 5.0)
        nursery.cancel_scope.cancel()
    return str(caught.value)


def test_who_hangs_up_without_a_word_does_not_answer() -> None:
    line = trio.run(told, b"")
    assert "does not answer (closed after " in line
    assert "--model" in line


def test_who_answers_without_a_list_lists_no_model() -> None:
    line = trio.run(told, b"HTTP/1.1 404 No\r\nContent-Length: 0\r\n\r\n")
    assert line.endswith("lists no model; name one with --model")
