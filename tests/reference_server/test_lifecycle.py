"""Time, batches, hang-ups, failures, shutdown: what happens around an answer."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
import trio
import trio.testing

from reference_server.engine.interface import Event, Failure, Work
from reference_server.engine.scripted import ScriptedEngine
from reference_server.wire.limits import Limits
from reference_server.wire.server import Settings
from tests.reference_server.client import (
    CHAT,
    COMPLETIONS,
    STEP,
    Client,
    Running,
    chat,
    completion,
    counted,
    run,
    serving,
    until,
)

LONG = chat("Count from 1 to 300", stream=True, max_tokens=400)


def test_one_token_a_step_and_one_step_each_interval() -> None:
    async def main() -> None:
        async with serving() as running:
            start = trio.current_time()
            await running.post(CHAT, {**LONG, "max_tokens": 50})
            assert trio.current_time() - start == pytest.approx(50 * STEP)
            assert running.engine.gauges.steps == 50

    run(main)


def test_a_full_batch_makes_the_next_request_wait() -> None:
    async def main() -> None:
        async with serving(max_batch=1) as running:
            ends: list[tuple[str, float]] = []

            async def one(name: str) -> None:
                await running.post(CHAT, {**LONG, "max_tokens": 10})
                ends.append((name, trio.current_time()))

            start = trio.current_time()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(one, "a")
                nursery.start_soon(one, "b")
            took = [moment - start for _, moment in ends]
            assert took == pytest.approx([10 * STEP, 20 * STEP])

    run(main)


def test_a_batch_is_decoded_together() -> None:
    async def main() -> None:
        async with serving(max_batch=4) as running:
            start = trio.current_time()
            async with trio.open_nursery() as nursery:
                for _ in range(4):
                    nursery.start_soon(running.post, CHAT, {**LONG, "max_tokens": 10})
            assert trio.current_time() - start == pytest.approx(10 * STEP, abs=2 * STEP)

    run(main)


def tokens(running: Running) -> int:
    return running.engine.gauges.tokens


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("n", [1, 3])
def test_a_hang_up_stops_the_work_within_one_step(stream: bool, n: int) -> None:
    async def main() -> None:
        async with serving() as running:
            client = running.connect()
            await client.send(CHAT, {**LONG, "stream": stream, "n": n})
            await until(lambda: tokens(running) >= 5 * n)
            before = running.engine.gauges.steps
            await client.hang_up()
            await trio.sleep(50 * STEP)
            gauges = running.engine.gauges
            assert gauges.steps - before <= 1
            assert (gauges.running, gauges.waiting, gauges.aborted) == (0, 0, 1)
            assert not running.server.bridge.busy

    run(main)


def test_a_hang_up_while_queued_never_runs() -> None:
    async def main() -> None:
        async with serving(max_batch=1) as running:
            first, second = running.connect(), running.connect()
            await first.send(CHAT, LONG)
            await until(lambda: tokens(running) > 0)
            await second.send(CHAT, LONG)
            await until(lambda: running.engine.gauges.waiting == 1)
            await second.hang_up()
            await until(lambda: running.engine.gauges.waiting == 0)
            assert running.engine.gauges.running == 1
            assert len((await first.read()).chunks) > 300

    run(main)


def test_a_hang_up_between_finish_and_sentinel_is_harmless() -> None:
    async def main() -> None:
        async with serving() as running:
            for number in (1, 2, 3):
                client = running.connect()
                await client.send(CHAT, chat("Say only: hi", stream=True))
                await counted(running, "finished", number)
                await client.hang_up()
            await trio.sleep(1)
            assert running.engine.gauges.finished == 3
            assert (await running.post(CHAT, chat())).status == 200

    run(main)


def test_neighbours_of_a_hang_up_are_not_disturbed() -> None:
    async def main() -> None:
        async with serving(max_batch=8) as running:
            expected = (await running.post(CHAT, LONG)).text()
            stay = [running.connect() for _ in range(4)]
            leave = [running.connect() for _ in range(4)]
            for client in (*stay, *leave):
                await client.send(CHAT, LONG)
            before = tokens(running)
            await until(lambda: tokens(running) > before + 40)
            for client in leave:
                await client.hang_up()
            assert {(await client.read()).text() for client in stay} == {expected}

    run(main)


def test_a_client_that_never_reads_is_dropped_and_its_seat_freed() -> None:
    async def main() -> None:
        settings = Settings(limits=Limits(write=5.0))
        async with serving(settings) as running:
            ours, theirs = trio.testing.lockstep_stream_pair()
            running.nursery.start_soon(running.server.serve_connection, theirs)
            client = Client(ours)
            await client.send(CHAT, LONG)
            await trio.sleep(4)
            assert running.engine.gauges.running == 1
            await trio.sleep(2)  # the answer itself would take eight seconds
            assert not running.server.bridge.busy
            assert running.engine.gauges.aborted == 1

    run(main)


def test_a_connection_carries_one_exchange_after_the_other() -> None:
    async def main() -> None:
        async with serving() as running:
            client = running.connect()
            ids = set()
            for stream in (True, False, True):
                reply = await client.post(CHAT, chat("Say only: hi", stream=stream))
                ids.add(reply.chunks[0]["id"] if stream else reply.json["id"])
                assert reply.headers.get("connection") is None
            assert len(ids) == 3

    run(main)


def test_a_pipelined_request_waits_for_its_turn() -> None:
    async def main() -> None:
        async with serving() as running:
            client = running.connect()
            body = json.dumps(chat("Say only: hi", stream=True)).encode()
            head = b"POST %b HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n"
            one = head % (CHAT.encode(), len(body)) + body
            await client.stream.send_all(one * 3)
            raw = b""
            while raw.count(b"0\r\n\r\n") < 3:
                raw += bytes(await client.stream.receive_some(65536))
            assert raw.count(b"HTTP/1.1 200 OK") == 3
            assert raw.count(b"[DONE]") == 3

    run(main)


def test_a_request_in_single_bytes_is_read_whole() -> None:
    async def main() -> None:
        async with serving() as running:
            client = running.connect()
            body = json.dumps(chat("Repeat exactly: 漢🫠"), ensure_ascii=False).encode()
            head = f"POST {CHAT} HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n"
            raw = head.encode() + b"".join(b"1\r\n%c\r\n" % byte for byte in body) + b"0\r\n\r\n"
            for position in range(len(raw)):
                await client.stream.send_all(raw[position : position + 1])
            answer = b""
            while not answer.endswith(b"}"):
                answer += bytes(await client.stream.receive_some(65536))
            assert "漢🫠".encode() in answer

    run(main)


def test_expect_100_continue_is_answered() -> None:
    async def main() -> None:
        async with serving() as running:
            client = running.connect()
            body = json.dumps(completion(max_tokens=1)).encode()
            head = f"POST {COMPLETIONS} HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\n"
            await client.stream.send_all(head.encode() + b"content-length: %d\r\n\r\n" % len(body))
            assert (await client.stream.receive_some(100)).startswith(b"HTTP/1.1 100 ")
            await client.stream.send_all(body)
            assert (await client.stream.receive_some(100)).startswith(b"HTTP/1.1 200 OK")

    run(main)


def test_an_http_1_0_client_gets_a_stream_that_ends_with_the_connection() -> None:
    async def main() -> None:
        async with serving() as running:
            client = running.connect()
            body = json.dumps(chat("Say only: hi", stream=True)).encode()
            head = f"POST {CHAT} HTTP/1.0\r\ncontent-length: {len(body)}\r\n\r\n".encode()
            await client.stream.send_all(head + body)
            raw = b""
            while data := bytes(await client.stream.receive_some(65536)):
                raw += data
            assert b"chunked" not in raw
            assert raw.endswith(b"[DONE]\n\n")

    run(main)


def test_heartbeats_are_comments_and_come_only_in_silence() -> None:
    async def main() -> None:
        async with serving(Settings(heartbeat=1.0), max_batch=1, step=0.1) as running:
            first, second = running.connect(), running.connect()
            await first.send(CHAT, {**LONG, "max_tokens": 35})
            await until(lambda: tokens(running) > 0)
            reply = await second.post(CHAT, {**LONG, "max_tokens": 5})
            comments = [b for b in reply.body.split(b"\n\n") if b.startswith(b":")]
            assert comments == [b": keep-alive"] * 3
            assert len(reply.chunks) == 7
            assert b": " not in (await first.read()).body.replace(b"data: ", b"")

    run(main)


class Failing(ScriptedEngine):
    """Gives every request up after some steps."""

    def __init__(self, after: int) -> None:
        super().__init__(4)
        self._after = after
        self._left: dict[str, int] = {}

    def submit(self, work: Work) -> None:
        super().submit(work)
        self._left[work.id] = self._after

    def step(self) -> Iterator[Event]:
        events = list(super().step())
        for work in list(self._left):
            self._left[work] -= 1
            if self._left[work] < 0:
                del self._left[work]
                self.cancel(work)
                events = [event for event in events if event.work != work]
                events.append(Failure(work, "out of memory"))
        yield from events


@pytest.mark.parametrize("stream", [True, False])
def test_a_failure_before_the_first_token_is_a_status(stream: bool) -> None:
    async def main() -> None:
        async with serving(engine=Failing(0)) as running:
            reply = await running.post(CHAT, {**LONG, "stream": stream})
            assert reply.status == 500
            assert reply.json["error"]["type"] == "server_error"

    run(main)


def test_a_failure_after_the_first_token_is_one_error_event_and_the_end() -> None:
    async def main() -> None:
        async with serving(engine=Failing(5)) as running:
            client = running.connect()
            reply = await client.post(CHAT, LONG)
            *_, last = reply.blocks
            error = {"message": "out of memory", "type": "server_error"}
            assert json.loads(last) == {"error": {**error, "param": None, "code": None}}
            assert b"[DONE]" not in reply.body
            assert b'finish_reason":"' not in reply.body
            assert reply.whole
            assert (await client.get("/health")).status == 200

    run(main)


class Broken(ScriptedEngine):
    def step(self) -> Iterator[Event]:
        if self.gauges.steps >= 3:
            raise ZeroDivisionError("a bug")
        yield from super().step()


def test_an_engine_that_raises_fails_its_streams_visibly() -> None:
    last: list[str] = []

    async def main() -> None:
        async with serving(engine=Broken(4)) as running:
            reply = await running.post(CHAT, LONG)
            last.append(reply.blocks[-1])
            await trio.sleep(5)

    with pytest.raises(ExceptionGroup) as raised:
        run(main)
    assert raised.group_contains(ZeroDivisionError)
    assert json.loads(last[0])["error"]["message"] == "the engine failed"


def test_a_drain_lets_streams_finish_and_takes_nothing_new() -> None:
    async def main() -> None:
        async with serving() as running:
            idle, busy = running.connect(), running.connect()
            await busy.send(CHAT, {**LONG, "max_tokens": 50})
            await until(lambda: tokens(running) > 5)
            running.nursery.start_soon(running.server.drain, 60.0)
            assert await idle.stream.receive_some(10) == b""
            reply = await busy.read()
            assert len(reply.chunks) == 52
            refused = await running.connect().post(CHAT, LONG)
            assert refused.status == 503
            assert "retry-after" in refused.headers

    run(main)


def test_a_drain_that_takes_too_long_fails_streams_in_band() -> None:
    async def main() -> None:
        async with serving() as running:
            client = running.connect()
            await client.send(CHAT, LONG)
            await until(lambda: tokens(running) > 5)
            running.nursery.start_soon(running.server.drain, 20 * STEP)
            reply = await client.read()
            assert reply.whole
            assert "shutting down" in json.loads(reply.blocks[-1])["error"]["message"]
            assert b"[DONE]" not in reply.body

    run(main)


def test_a_drain_that_takes_too_long_refuses_plain_requests_with_503() -> None:
    async def main() -> None:
        async with serving() as running:
            client = running.connect()
            await client.send(CHAT, {**LONG, "stream": False})
            await until(lambda: tokens(running) > 5)
            running.nursery.start_soon(running.server.drain, 20 * STEP)
            reply = await client.read()
            assert reply.status == 503
            assert "retry-after" in reply.headers
            assert (await running.connect().get("/health")).json == {"status": "draining"}

    run(main)


def test_stats_and_metrics_count_what_happened() -> None:
    async def main() -> None:
        async with serving() as running:
            client = running.connect()
            await client.post(CHAT, chat(max_tokens=5))
            await client.post(CHAT, chat(max_tokens=-5))
            stats = (await client.get("/stats")).json
            assert stats["engine"]["tokens"] == 5
            assert stats["engine"]["running"] == stats["engine"]["waiting"] == 0
            assert stats["wire"]["refused"] == 1
            metrics = (await client.get("/metrics")).body.decode()
            assert 'streamproof:generation_tokens_total{model_name="scripted"} 5\n' in metrics
            models = (await client.get("/v1/models")).json
            assert [card["id"] for card in models["data"]] == ["scripted"]
            assert (await client.get("/v1/models/scripted")).json == models["data"][0]

    run(main)
