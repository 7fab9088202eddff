"""Real sockets, real time, the engine in a thread: what hang-ups give back, and how soon."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

import pytest
import trio

from reference_server.engine.batching import BatchingEngine
from reference_server.wire.limits import Limits
from reference_server.wire.server import Settings
from tests.reference_server.client import (
    COMPLETIONS,
    Client,
    Running,
    completion,
    run_in_real_time,
    until,
)
from tests.reference_server.loopback import (
    Connect,
    Hang,
    Noting,
    batching,
    finish,
    listening,
    reset,
    scripted,
)

ENGINES = {"scripted": scripted, "batching": batching}
NARROW = Settings(limits=Limits(send_buffer=4096))
USAGE = {"stream_options": {"include_usage": True}}


def asking(name: str, tokens: int, **more: object) -> dict[str, object]:
    """Numbers as long as they are wanted; `name` makes the prompt one's own."""
    prompt = f"{name} Count from 1 to 900."
    return completion(prompt, stream=True, max_tokens=tokens, ignore_eos=True, **more)


def called(engine: Noting, name: str) -> str:
    """The prompt of that name, as the engine knows it."""
    return next(p for p in engine.notes.names.values() if p.startswith(f"{name} "))


async def events(client: Client, count: int) -> None:
    """Read at least so many, or all there are: late text comes in fewer."""
    raw = b""
    while raw.count(b"data: ") < count and b"[DONE]" not in raw:
        got = bytes(await client.stream.receive_some(1024))
        assert got, raw
        raw += got


async def quiet(running: Running) -> None:
    """Nobody waits, and the engine knows."""
    await until(lambda: not running.server.bridge.busy and not running.server._connections)


def nothing_is_left(running: Running, engine: Noting) -> None:
    gauges, bridge = running.engine.gauges, running.server.bridge
    assert gauges.running == gauges.waiting == gauges.paused == gauges.owed == 0
    assert gauges.free_blocks == gauges.total_blocks
    assert gauges.submitted == gauges.finished + gauges.aborted + gauges.failed
    assert gauges.extra["seats_taken"] == 0
    assert not bridge._tickets
    assert not bridge._unstarted
    assert bridge.books.events == bridge.books.bytes == 0
    if isinstance(engine.engine, BatchingEngine):
        engine.engine.check_integrity()


# -- release -------------------------------------------------------------------------------------


@dataclass
class Left:
    """How many clients hung up, and how many read to the end."""

    gone: int = 0
    whole: int = 0


async def one(connect: Connect, name: str, rng: random.Random, left: Left) -> None:
    """35 % read to the end, 50 % leave after 0 to 40 tokens, 15 % are slow and then gone."""
    fate, hang = rng.random(), rng.choice((finish, reset))
    slow = fate >= 0.85
    client, stream = await connect(2048 if slow else None)
    await client.send(COMPLETIONS, asking(name, 60, logprobs=5 if slow else None))
    if fate < 0.35:
        reply = await client.read()
        left.whole += reply.whole and reply.blocks[-1] == "[DONE]"
        await stream.aclose()
        return
    if slow:
        await stream.receive_some(500)
        await trio.sleep(rng.uniform(0.05, 0.3))
    else:
        await events(client, rng.randint(0, 40))
    left.gone += 1
    hang(stream)


async def storm(engine: Noting, streams: int, clients: int, seed: int) -> Left:
    """A large one takes its time: free and owned blocks are counted after each step."""
    rng, left = random.Random(seed), Left()
    if streams > 60 and isinstance(engine.engine, BatchingEngine):
        engine.after = engine.engine.check_integrity
    places = trio.CapacityLimiter(clients)

    async def placed(name: str) -> None:
        async with places:
            await one(connect, name, random.Random(f"{seed} {name}"), left)

    async with listening(engine, settings=NARROW) as (running, connect):
        async with trio.open_nursery() as nursery:
            for number in range(streams):
                nursery.start_soon(placed, f"#{number}")
                await trio.sleep(rng.uniform(0, 0.004))
        await quiet(running)
        nothing_is_left(running, engine)
        stats = (await Client((await connect())[1]).get("/stats")).json
        assert stats["engine"]["late_events"] == running.server.bridge.late_events
    return left


def at_most_one_token_after_each_cancel(engine: Noting) -> None:
    """One may be in the making."""
    known = {prompt.split()[0]: times for prompt, times in engine.notes.tokens.items()}
    after = {
        name: sum(at > gone for at in known.get(name, ()))
        for name, gone in engine.notes.cancelled.items()
    }
    assert after
    assert max(after.values()) <= 1, after


@pytest.mark.parametrize("kind", ENGINES)
@pytest.mark.parametrize(
    "streams", [60, pytest.param(300, marks=pytest.mark.slow)], ids=lambda n: f"{n}-streams"
)
def test_every_stream_gives_back_what_it_held(kind: str, streams: int) -> None:
    engine = ENGINES[kind](8, 0.004)

    async def main() -> None:
        left = await storm(engine, streams, 48, seed=streams)
        assert left.whole > streams / 5
        assert left.gone > streams / 2
        at_most_one_token_after_each_cancel(engine)

    run_in_real_time(main, seconds=100)


@pytest.mark.torch
@pytest.mark.slow
def test_a_real_model_gives_back_what_it_held_too() -> None:
    from reference_server.engine import models

    engine = Noting(models.load("tiny", max_batch=8))

    async def main() -> None:
        left = await storm(engine, 80, 24, seed=3)
        assert left.whole > 15
        at_most_one_token_after_each_cancel(engine)

    run_in_real_time(main, seconds=100)


# By tickets instead of time: no step is done but those that the test lets through.


def generated(engine: Noting, name: str) -> int:
    return len(engine.notes.tokens[called(engine, name)])


async def let_through(running: Running, steps: int) -> None:
    before = running.engine.gauges.steps
    running.server.bridge.allow(steps)
    await until(lambda: running.engine.gauges.steps == before + steps)


@pytest.mark.parametrize("hang", [finish, reset])
@pytest.mark.parametrize("kind", ENGINES)
def test_between_steps_not_one_token_is_generated_after_a_hang_up(kind: str, hang: Hang) -> None:
    engine = ENGINES[kind](4, 0)

    async def main() -> None:
        async with listening(engine, settings=NARROW) as (running, connect):
            running.server.bridge.allow(0)
            await (await connect())[0].send(COMPLETIONS, asking("neighbour", 300))
            for turn in range(10):
                name, (client, stream) = f"#{turn}", await connect()
                await client.send(COMPLETIONS, asking(name, 60))
                await until(lambda: running.server.bridge.waiting == 1 + (turn == 0))  # noqa: B023
                await let_through(running, turn + 1)
                assert generated(engine, name) == turn + 1
                hang(stream)
                await until(lambda: name in engine.notes.cancelled)  # noqa: B023
                await let_through(running, 3)
                assert generated(engine, name) == turn + 1
            assert generated(engine, "neighbour") == running.engine.gauges.steps
            assert running.engine.gauges.aborted == 10

    run_in_real_time(main)


@pytest.mark.parametrize("hang", [finish, reset])
@pytest.mark.parametrize("kind", ENGINES)
def test_the_step_that_runs_at_a_hang_up_generates_the_last_token(kind: str, hang: Hang) -> None:
    engine = ENGINES[kind](4, 0)
    entered, leave = threading.Event(), threading.Event()

    def wait() -> None:
        entered.set()
        leave.wait(20)

    async def main() -> None:
        async with listening(engine, settings=NARROW) as (running, connect):
            running.server.bridge.allow(0)
            await (await connect())[0].send(COMPLETIONS, asking("neighbour", 300))
            client, stream = await connect()
            await until(lambda: running.server.bridge.waiting == 1)
            await client.send(COMPLETIONS, asking("it", 60))
            await until(lambda: running.server.bridge.waiting == 2)
            await let_through(running, 4)
            engine.within = wait
            running.server.bridge.allow(1)
            await until(entered.is_set)  # the neighbour has its fifth token
            assert generated(engine, "it") == 4
            hang(stream)
            await until(lambda: "it" in engine.notes.cancelled)
            leave.set()
            await until(lambda: running.engine.gauges.steps == 5)
            assert generated(engine, "it") == 5
            await let_through(running, 3)
            assert generated(engine, "it") == 5

    run_in_real_time(main)


# -- abort ---------------------------------------------------------------------------------------

STEP = 0.01  # seconds of one forward pass
Moment = Callable[[Noting, Client, Running], object]


async def in_prefill(engine: Noting, client: Client, running: Running) -> None:
    await client.send(COMPLETIONS, asking("x" * 1500, 30))
    await until(lambda: running.engine.gauges.running == 2)


async def at_the_first_token(engine: Noting, client: Client, running: Running) -> None:
    await client.send(COMPLETIONS, asking("it", 200))
    await events(client, 1)


async def in_the_middle(engine: Noting, client: Client, running: Running) -> None:
    await client.send(COMPLETIONS, asking("it", 200))
    await events(client, 12)


async def while_it_waits(engine: Noting, client: Client, running: Running) -> None:
    await client.send(COMPLETIONS, asking("it", 200))
    await until(lambda: running.engine.gauges.waiting == 1)


async def without_reading(engine: Noting, client: Client, running: Running) -> None:
    await client.send(COMPLETIONS, asking("it", 200, logprobs=5))
    await until(lambda: running.server.bridge.books.events > 8)


MOMENTS = {
    "waiting": while_it_waits,
    "prefill": in_prefill,
    "first-token": at_the_first_token,
    "mid-decode": in_the_middle,
    "slow-reader": without_reading,
}


# The scripted engine computes no prompt.
PAIRS = [
    (kind, each) for kind in ENGINES for each in MOMENTS if (kind, each) != ("scripted", "prefill")
]


@asynccontextmanager
async def at_the_moment(
    kind: str, moment: str
) -> AsyncIterator[tuple[Noting, Running, trio.SocketStream]]:
    """The stream of a client at that moment, beside a neighbour who keeps the engine stepping."""
    engine = ENGINES[kind](1 if moment == "waiting" else 2, STEP)
    async with listening(engine, settings=NARROW) as (running, connect):
        other, _ = await connect()
        await other.send(COMPLETIONS, asking("neighbour", 300))
        await events(other, 2)
        client, stream = await connect(2048 if moment == "slow-reader" else None)
        await MOMENTS[moment](engine, client, running)
        yield engine, running, stream


@pytest.mark.parametrize("hang", [finish, reset])
@pytest.mark.parametrize(("kind", "moment"), PAIRS)
def test_a_hang_up_frees_all_with_the_next_step(kind: str, moment: str, hang: Hang) -> None:
    async def main() -> None:
        async with at_the_moment(kind, moment) as (engine, running, stream):
            bridge, notes = running.server.bridge, engine.notes
            bridge.allow(0)  # none is begun from here on; one that runs is let end
            await until(lambda: running.engine.gauges.steps == len(notes.steps))
            hang(stream)
            await until(lambda: len(notes.cancelled) == 1)
            ((name, known),) = notes.cancelled.items()
            bridge.allow(2)
            await until(lambda: running.engine.gauges.aborted == 1)
            (prompt,) = notes.released
            assert prompt.startswith(name)
            assert notes.steps_between(known, notes.released[prompt]) <= 1
            assert sum(at > known for at in notes.tokens[prompt]) <= 1
            if moment == "waiting":
                assert prompt not in notes.started

    run_in_real_time(main)


@dataclass(frozen=True, slots=True)
class Took:
    """From a hang-up until seat and blocks are free, and the longest step around it: seconds."""

    seconds: float
    step: float


async def abort(moment: str, hang: Hang, turn: int) -> Took:
    async with at_the_moment("batching", moment) as (engine, running, stream):
        await trio.sleep(random.Random(turn).uniform(0, STEP))
        gone = time.perf_counter()
        hang(stream)
        await until(lambda: running.engine.gauges.aborted == 1)
        notes = engine.notes
        around = [b - a for a, b in pairwise(notes.steps) if b > gone]
        return Took(next(iter(notes.released.values())) - gone, max([STEP, *around[:3]]))


@pytest.mark.slow
@pytest.mark.alone
@pytest.mark.parametrize("moment", MOMENTS)
def test_most_hang_ups_at_each_moment_are_noticed_within_a_step(moment: str) -> None:
    """Nobody asks now and then whether a client is still there."""
    took: list[Took] = []

    async def main() -> None:
        for turn in range(40):
            took.append(await abort(moment, (finish, reset)[turn % 2], turn))

    run_in_real_time(main, seconds=100)
    assert median(each.seconds / each.step for each in took) <= 1, took


# -- saturation ----------------------------------------------------------------------------------


def test_many_requests_on_blocks_for_four_all_finish_in_their_order() -> None:
    need = -(-(len("#00 Count from 1 to 900.") + 1 + 20) // 4)
    engine = batching(16, 0.0005, blocks=4 * need, sharing=False)

    async def main() -> None:
        async with listening(engine) as (running, connect):
            most: list[int] = []

            async def ask(client: Client) -> None:
                reply = await client.read()
                await client.hang_up()
                assert reply.chunks[-1]["usage"]["completion_tokens"] == 20
                most.append(running.engine.gauges.running)

            async with trio.open_nursery() as nursery:
                for number in range(32):
                    client, _ = await connect()
                    await client.send(COMPLETIONS, asking(f"#{number:02}", 20, **USAGE))
                    await until(lambda n=number: running.server.bridge.waiting + most_seen() > n)  # type: ignore[misc]
                    nursery.start_soon(ask, client)
            await quiet(running)
            nothing_is_left(running, engine)
            assert max(most) <= 4

    def most_seen() -> int:
        return len(engine.notes.started)

    run_in_real_time(main)
    arrived = list(engine.notes.names.values())
    assert list(engine.notes.started) == arrived
    assert engine.notes.ended == arrived
    assert len(arrived) == 32
