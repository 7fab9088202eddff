"""The engine in a thread beside the event loop: neither waits for the other, nothing is lost."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field

import pytest
import trio
import trio.testing

from reference_server.engine.batching import BatchingEngine
from reference_server.engine.interface import Engine, Event, Work
from reference_server.engine.scripted import ScriptedEngine
from tests.reference_server.client import (
    CHAT,
    Client,
    Running,
    chat,
    run,
    run_in_real_time,
    serving,
    stepped,
    until,
)
from tests.reference_server.fake_model import FakeRunner, FakeVocabulary

LONG = chat("Count from 1 to 300", stream=True, max_tokens=400)


def engine_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "engine"]


def test_many_streams_get_the_texts_that_the_loop_would_give_them() -> None:
    texts: list[list[str]] = [[], []]

    async def main(threaded: bool) -> None:
        async with serving(threaded=threaded, step=0, max_batch=3) as running:

            async def one(number: int) -> None:
                reply = await running.post(CHAT, chat(f"Tell {number}", stream=True, n=2))
                texts[threaded].append(reply.text(0) + reply.text(1))

            async with trio.open_nursery() as nursery:
                for number in range(12):
                    nursery.start_soon(one, number)
            await until(lambda: not running.server.bridge.busy)

    for threaded in (False, True):
        run_in_real_time(lambda threaded=threaded: main(threaded))  # type: ignore[misc]
    assert sorted(texts[0]) == sorted(texts[1])
    assert all(texts[0])


def test_the_thread_ends_with_the_server() -> None:
    async def main() -> None:
        async with serving(threaded=True, step=0) as running:
            client = running.connect()
            await client.send(CHAT, LONG)
            await until(lambda: running.engine.gauges.tokens > 3)
            assert len(engine_threads()) == 1

    run_in_real_time(main)
    assert engine_threads() == []


@dataclass
class Door:
    """Where the engine's thread stops, until it is let on."""

    entered: threading.Event = field(default_factory=threading.Event)
    leave: threading.Event = field(default_factory=threading.Event)

    def stop(self) -> None:
        self.entered.set()
        self.leave.wait(20)

    async def let_on_after(self, work: Callable[[], Awaitable[None]]) -> None:
        await until(self.entered.is_set)
        await work()
        assert not self.leave.is_set()
        self.leave.set()


def test_the_loop_goes_on_while_the_engine_computes() -> None:
    door = Door()

    class Slowly(ScriptedEngine):
        def step(self) -> Iterator[Event]:
            door.stop()
            yield from super().step()

    async def main() -> None:
        async with serving(engine=Slowly(4), threaded=True, step=0) as running:
            client = running.connect()
            await client.send(CHAT, LONG)

            async def others() -> None:
                assert (await running.connect().get("/health")).status == 200
                assert running.engine.gauges.steps == 0

            await door.let_on_after(others)
            assert (await client.read()).status == 200

    run_in_real_time(main)


def test_an_idle_engine_is_not_stepped() -> None:
    class Counting(ScriptedEngine):
        calls = 0

        def step(self) -> Iterator[Event]:
            self.calls += 1
            yield from super().step()

    async def main() -> None:
        engine = Counting(4)
        async with serving(engine=engine, threaded=True, step=0) as running:
            await running.post(CHAT, chat("Say only: hi"))
            await until(lambda: not running.server.bridge.busy)
            calls = engine.calls
            await trio.sleep(0.1)
            assert engine.calls == calls
            assert (await running.post(CHAT, chat("Say only: hi"))).status == 200

    run_in_real_time(main)


class Broken(ScriptedEngine):
    def step(self) -> Iterator[Event]:
        if self.gauges.steps >= 3:
            raise ZeroDivisionError("a bug")
        yield from super().step()


def test_an_engine_that_raises_fails_its_streams_visibly() -> None:
    last: list[str] = []

    async def main() -> None:
        async with serving(engine=Broken(4), threaded=True) as running:
            reply = await running.post(CHAT, LONG)
            assert len(reply.blocks) == 5  # the role, three tokens, the error
            last.append(reply.blocks[-1])
            await trio.sleep(5)

    with pytest.raises(ExceptionGroup) as raised:
        run_in_real_time(main)
    assert raised.group_contains(ZeroDivisionError)
    assert json.loads(last[0])["error"]["message"] == "the engine failed"
    assert engine_threads() == []


# -- one step for each ticket --------------------------------------------------------------------


async def heard(client: Client) -> str:
    """What has come of what was sent so far: until nobody has anything to do any more."""
    raw = bytearray()

    async def read() -> None:
        while True:
            raw.extend(await client.stream.receive_some(65536))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(read)
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    return raw.decode()


async def one_step_at_a_time(running: Running) -> None:
    bridge = running.server.bridge
    bridge.allow(0)
    first, second = running.connect(), running.connect()
    for client in (first, second):
        await client.send(CHAT, LONG)
    await until(lambda: bridge.waiting == 2)
    assert await heard(first) == ""
    await stepped(running)
    gauges = running.engine.gauges
    assert (gauges.steps, gauges.tokens) == (1, 2)
    for client in (first, second):
        assert (await heard(client)).count('"content":"1"') == 1
    await stepped(running, 3)
    for client in (first, second):
        assert (await heard(client)).count("data: ") == 3
    await first.hang_up()
    await until(lambda: len(bridge._tickets) == 1)
    await stepped(running)
    gauges = running.engine.gauges
    assert gauges.tokens == 2 + 6 + 1  # a cancel is applied before anybody goes on
    assert gauges.aborted == 1


def scripted() -> Engine:
    return ScriptedEngine(4, seed=7)


def batching() -> Engine:
    return BatchingEngine(FakeRunner(), FakeVocabulary(), max_batch=4)


@pytest.mark.parametrize("make", [scripted, batching])
def test_the_gate_gives_one_step_at_a_time_in_the_loop(make: Callable[[], Engine]) -> None:
    async def main() -> None:
        async with serving(engine=make()) as running:
            await one_step_at_a_time(running)

    run(main)


@pytest.mark.parametrize("make", [scripted, batching])
def test_the_gate_gives_one_step_at_a_time_in_a_thread(make: Callable[[], Engine]) -> None:
    async def main() -> None:
        async with serving(engine=make(), threaded=True, step=0) as running:
            await one_step_at_a_time(running)

    run_in_real_time(main)


def test_verbs_given_while_a_step_runs_are_applied_by_the_next() -> None:
    """What arrives in the middle of a step is neither lost nor told twice."""
    door = Door()

    class Stopping(ScriptedEngine):
        def step(self) -> Iterator[Event]:
            yield from super().step()
            if self.gauges.steps == 2:
                door.stop()

    async def main() -> None:
        engine = Stopping(4)
        async with serving(engine=engine, threaded=True, step=0) as running:
            bridge = running.server.bridge
            ticket = bridge.open([Work("a", "Count from 1 to 300")])
            await until(door.entered.is_set)
            ticket.close()
            other = bridge.open([Work("b", "Say only: hi")])
            door.leave.set()
            while await other.receive():
                pass
            await until(lambda: not bridge.busy)  # the gauges are those of a step's end
            assert engine.gauges.tokens == 2 + 1
            assert engine.gauges.aborted == engine.gauges.finished == 1

    run_in_real_time(main)


def test_it_is_busy_until_the_engine_has_heard_that_nobody_waits() -> None:
    async def main() -> None:
        async with serving(threaded=True, step=0) as running:
            bridge = running.server.bridge
            bridge.allow(0)
            ticket = bridge.open([Work("a", "Count from 1 to 300")])
            ticket.close()
            await trio.sleep(0.05)
            assert bridge.busy
            await stepped_when_nobody_runs(running)
            assert not bridge.busy

    async def stepped_when_nobody_runs(running: Running) -> None:
        running.server.bridge.allow(1)
        await until(lambda: running.engine.gauges.aborted == 1)
        await until(lambda: not running.server.bridge.busy)

    run_in_real_time(main)


def test_the_events_of_a_step_come_with_one_message() -> None:
    calls: list[int] = []

    async def main() -> None:
        async with serving(threaded=True, step=0, max_batch=32) as running:
            bridge = running.server.bridge
            bridge.allow(0)
            works = [Work(str(number), "Count from 1 to 300") for number in range(32)]
            tickets = [bridge.open([work]) for work in works]
            await trio.testing.wait_all_tasks_blocked()  # they all run
            deliver = bridge._driver._deliver  # type: ignore[attr-defined]

            def counted(events: list[Event]) -> None:
                calls.append(len(events))
                deliver(events)

            bridge._driver._deliver = counted  # type: ignore[attr-defined]
            bridge.allow(1)
            while not running.engine.gauges.steps:  # the loop is busy, the thread goes on
                time.sleep(0.001)  # noqa: ASYNC251
            for ticket in tickets:
                assert await ticket.receive()

    run_in_real_time(main)
    assert calls == [64]  # a Started and a Delta for each


def test_the_loop_goes_on_while_the_tokens_of_a_long_prompt_are_counted() -> None:
    door = Door()

    class Counting(ScriptedEngine):
        def count_tokens(self, text: str) -> int:
            if len(text) > 10_000:
                door.stop()
            return len(text) // 1000

    async def main() -> None:
        async with serving(engine=Counting(4), threaded=True, step=0) as running:
            client = running.connect()
            await client.send(CHAT, chat("x" * 20_000, max_tokens=1))

            async def others() -> None:
                assert (await running.connect().get("/health")).status == 200
                assert running.engine.gauges.submitted == 0

            await door.let_on_after(others)
            assert (await client.read()).status == 200

    run_in_real_time(main)
