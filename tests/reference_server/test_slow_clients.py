"""Clients that do not keep up: what each policy does to them, to their neighbours and to memory.

The streams here pass nothing on before the other side reads, so every write is back-pressure.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable
from itertools import pairwise

import pytest
import trio
import trio.testing

from reference_server.bridge.policy import BEHIND, DEFAULT, POLICIES, SlowPolicy, merged, weight
from reference_server.bridge.queue import Books, Queue
from reference_server.engine.interface import Delta, Done, FinishReason, TokenLogprob, Work
from reference_server.wire.limits import Limits
from reference_server.wire.server import Settings
from tests.reference_server.client import (
    CHAT,
    COMPLETIONS,
    STEP,
    Client,
    Reply,
    Running,
    chat,
    completion,
    run,
    serving,
    until,
)

COUNT = 400
USAGE = {"stream_options": {"include_usage": True}}
LONG = chat("Count from 1 to 300", stream=True, max_tokens=COUNT, **USAGE)
AWAY = 12.0  # seconds; the answer itself takes eight
PATIENT = Settings(limits=Limits(write=60.0))


# -- the queue -----------------------------------------------------------------------------------


def entry(text: str) -> TokenLogprob:
    return TokenLogprob(text, text.encode(), -1.0)


def delta(text: str, choice: int = 0, finish: FinishReason | None = None) -> Delta:
    return Delta("w", choice, text, 2, (entry(text),), finish, (7, 8))


def test_two_deltas_as_one_lose_nothing() -> None:
    both = merged(delta("ab"), delta("cd", finish=FinishReason.LENGTH))
    assert both == Delta(
        "w", 0, "abcd", 4, (entry("ab"), entry("cd")), FinishReason.LENGTH, (7, 8, 7, 8)
    )


def taken(queue: Queue) -> list[object]:
    return [queue.take() for _ in range(len(queue))]


def test_text_is_put_together_only_while_the_reader_is_behind_and_choices_stay_apart() -> None:
    books = Books()
    queue = Queue(POLICIES["coalesce"], 2, books)
    said = [delta(f"{turn}.{choice} ", choice) for turn in range(200) for choice in (0, 1)]
    for each in said:
        queue.put(each)
    queue.put(delta("end", 1, FinishReason.STOP))
    queue.put(Done("w", 1, 2))
    assert books.most_events == len(queue) == 2 * BEHIND + 1
    assert books.merged == 401 - 2 * BEHIND
    *deltas, done = taken(queue)
    assert deltas[: 2 * BEHIND - 2] == said[: 2 * BEHIND - 2]
    assert isinstance(done, Done)
    for choice in (0, 1):
        mine = [each for each in deltas if isinstance(each, Delta) and each.choice == choice]
        text = "".join(f"{turn}.{choice} " for turn in range(200)) + "end" * choice
        assert "".join(each.text for each in mine) == text
        assert sum(each.tokens for each in mine) == 400 + 2 * choice
        assert [each.finish for each in mine[:-1]] == [None] * (len(mine) - 1)
    assert deltas[-1].finish is FinishReason.STOP  # type: ignore[attr-defined]
    assert (books.events, books.bytes) == (0, 0)


def test_what_is_held_is_weighed_and_given_back_on_taking_and_clearing() -> None:
    books = Books()
    queue = Queue(POLICIES["pause"], 1, books)
    for number in range(5):
        queue.put(delta("漢" * number))
    assert books.bytes == sum(weight(delta("漢" * number)) for number in range(5))
    queue.take()
    queue.clear()
    assert (books.events, books.bytes, len(queue)) == (0, 0, 0)


def test_the_low_mark_is_well_below_the_high_one() -> None:
    queue = Queue(SlowPolicy("x", steps=8), 1, Books())
    full, low = [], []
    for _ in range(8):
        queue.put(delta("a"))
        full.append(queue.full)
        low.append(queue.low)
    assert full == [False] * 7 + [True]
    assert low == [True] + [False] * 7


def test_a_few_steps_may_always_be_held_however_long_their_events_are() -> None:
    queue = Queue(SlowPolicy("x", size=10), 3, Books())
    for _ in range(11):
        queue.put(delta("long" * 100))
        assert not queue.full
    queue.put(delta("long" * 100))
    assert queue.full


# -- one slow reader and a healthy one -----------------------------------------------------------


def slowly(running: Running) -> Client:
    """A connection on which nothing passes before it is read."""
    ours, theirs = trio.testing.lockstep_stream_pair()
    running.nursery.start_soon(running.server.serve_connection, theirs)
    return Client(ours)


class Seen:
    """What happened while the slow one was away, and what it read at last."""

    def __init__(self) -> None:
        self.slow, self.other = Reply(0, {}), Reply(0, {})
        self.other_took = 0.0
        self.running: list[int] = []  # the engine's gauge, each second
        self.held: list[int] = []  # events


def watch(policy: str, away: float = AWAY, **more: object) -> Seen:
    """The slow one reads nothing for `away` seconds. The other one starts with it."""
    seen = Seen()

    async def look(running: Running) -> None:
        while True:
            await trio.sleep(1)
            seen.running.append(running.engine.gauges.running)
            seen.held.append(running.server.bridge.books.events)

    async def other(running: Running) -> None:
        start = trio.current_time()
        seen.other = await running.post(CHAT, LONG)
        seen.other_took = trio.current_time() - start

    async def main() -> None:
        async with serving(PATIENT, slow=policy, max_batch=2) as running:
            client = slowly(running)
            await client.send(CHAT, {**LONG, **more})
            running.nursery.start_soon(look, running)
            running.nursery.start_soon(other, running)
            await trio.sleep(away)
            seen.slow = await client.read()
            await until(lambda: not running.server.bridge.busy)
            assert running.engine.gauges.running == running.engine.gauges.paused == 0
            books = running.server.bridge.books
            assert (books.events, books.bytes) == (0, 0)

    run(main)
    return seen


HEALTHY = COUNT * STEP
GENTLE = [name for name in POLICIES if name != "naive"]


@pytest.mark.parametrize("policy", GENTLE)
def test_neighbours_take_as_long_as_alone(policy: str) -> None:
    assert watch(policy).other_took == pytest.approx(HEALTHY, abs=2 * STEP)


def test_under_naive_everybody_waits_for_the_reader() -> None:
    seen = watch("naive")
    assert seen.other_took >= AWAY + HEALTHY - 1
    assert seen.slow.text() == seen.other.text()


@pytest.mark.parametrize("policy", ["unbounded", "pause", "coalesce"])
def test_a_reader_who_comes_back_gets_the_whole_text_and_the_whole_usage(policy: str) -> None:
    seen = watch(policy)
    assert seen.slow.text() == seen.other.text()
    assert seen.slow.chunks[-1]["usage"] == seen.other.chunks[-1]["usage"]
    assert seen.slow.chunks[-1]["usage"]["completion_tokens"] == COUNT
    assert seen.slow.whole


def test_unbounded_holds_all_and_shows_it() -> None:
    seen = watch("unbounded")
    assert seen.held[10] > COUNT - 5
    assert seen.running[9] == 0
    assert seen.slow.chunks[1:-1] == [
        {**chunk, "id": seen.slow.chunks[0]["id"]} for chunk in seen.other.chunks[1:-1]
    ]


def test_coalesce_holds_little_and_frees_the_seat_when_all_is_generated() -> None:
    seen = watch("coalesce")
    assert seen.running[9] == 0
    assert max(seen.held) <= BEHIND + 2
    pieces = [c["choices"][0]["delta"].get("content", "") for c in seen.slow.chunks[1:-1]]
    assert len(pieces) < BEHIND + 5
    assert max(map(len, pieces)) > 500


def test_pause_holds_a_bounded_number_of_events_and_its_seat() -> None:
    seen = watch("pause")
    assert max(seen.held) <= POLICIES["pause"].steps + 1
    assert seen.running[10] == 1
    assert len(seen.slow.chunks) == len(seen.other.chunks)


def dropped(reply: Reply, whole: str) -> None:
    """A beginning of the text, then one error event and a rightly framed end."""
    *chunks, last = map(json.loads, reply.blocks)
    error = last["error"]
    assert (error["type"], error["param"], error["code"]) == ("slow_client", None, None)
    text = "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in chunks)
    assert text
    assert whole.startswith(text)
    assert reply.whole


def test_drop_frees_the_seat_at_once_and_tells_the_reader_in_band() -> None:
    seen = watch("drop")
    assert seen.running[2] == 1
    assert max(seen.held) <= POLICIES["drop"].steps + 1
    dropped(seen.slow, seen.other.text())


def test_several_prompts_are_dropped_as_one() -> None:
    async def main() -> None:
        async with serving(PATIENT, slow="drop", max_batch=4) as running:
            prompts = [f"Count from {number} to 300" for number in (1, 2, 3)]
            body = completion(prompts, stream=True, max_tokens=COUNT)
            client = slowly(running)
            await client.send(COMPLETIONS, body)
            await trio.sleep(AWAY)
            gauges = running.engine.gauges
            assert (gauges.running, gauges.aborted, gauges.late) == (0, 3, 0)
            assert running.server.bridge.books.dropped == 1
            reply = await client.read()
            assert reply.body.count(b'"error"') == 1
            assert reply.whole

    run(main)


def test_pause_then_drop_waits_for_a_while() -> None:
    seen = watch("pause-then-drop")
    assert seen.running[4] == 2
    assert seen.running[8] == 0
    dropped(seen.slow, seen.other.text())


def test_pause_then_drop_keeps_who_comes_back_in_time() -> None:
    seen = watch("pause-then-drop", away=4.0)
    assert seen.slow.text() == seen.other.text()


@pytest.mark.parametrize("policy", ["coalesce", "drop", "pause"])
def test_several_choices_with_log_probabilities_are_bounded_too(policy: str) -> None:
    """Twenty alternatives make large events: their bytes count, not their number alone."""
    books: list[Books] = []

    async def main() -> None:
        settings = Settings(limits=Limits(write=20.0))
        async with serving(settings, slow=policy, max_batch=4) as running:
            body = {**LONG, "n": 3, "logprobs": True, "top_logprobs": 20}
            await slowly(running).send(CHAT, body)
            await trio.sleep(19)
            assert running.engine.gauges.tokens < 3 * COUNT
            books.append(running.server.bridge.books)

    run(main)
    assert books[0].most_bytes < POLICIES[policy].size + 64 * 1024
    assert books[0].pauses + books[0].dropped >= 1


def test_who_has_much_to_be_written_lets_the_others_have_their_turn() -> None:
    turns: list[int] = []

    async def main() -> None:
        async with serving(slow="unbounded", step=0) as running:
            ticket = running.server.bridge.open([Work("w", "Count from 1 to 300")], streamed=True)
            await until(lambda: not running.engine.gauges.running)
            await trio.sleep(1)

            async def others() -> None:
                while True:
                    turns.append(len(ticket._queue))
                    await trio.lowlevel.checkpoint()

            async with trio.open_nursery() as nursery:
                nursery.start_soon(others)
                while await ticket.receive():
                    pass
                nursery.cancel_scope.cancel()

    run(main)
    assert len(turns) > 20
    assert max(a - b for a, b in pairwise(turns)) <= 32


def test_stats_show_what_single_streams_hold_the_largest_first() -> None:
    """Also when the engine has long finished; nothing when the client has gone."""

    async def main() -> None:
        async with serving(PATIENT, slow="unbounded", max_batch=32) as running:

            async def shown() -> list[dict[str, object]]:
                stats = (await running.connect().get("/stats")).json["slow_clients"]
                shares: list[dict[str, object]] = stats["streams"]
                if len(shares) < 16:
                    assert sum(int(str(each["bytes"])) for each in shares) == stats["bytes"]
                return shares

            clients = [slowly(running) for _ in range(20)]
            for number, client in enumerate(clients):
                await client.send(CHAT, {**LONG, "max_tokens": 4 + number})
            await trio.sleep(30 * STEP)
            assert running.engine.gauges.finished == 20
            streams = await shown()
            assert len(streams) == 16
            assert [each["events"] for each in streams] == list(range(23, 7, -1))
            sizes = [int(str(each["bytes"])) for each in streams]
            assert sizes == sorted(sizes, reverse=True)
            assert not any(each["paused"] for each in streams)
            ids = {str(chunk["id"]) for chunk in (await clients[-1].read()).chunks}
            assert ids == {f"chatcmpl-{streams[0]['id']}"}
            assert streams[0] not in await shown()
            for client in clients:
                await client.hang_up()
            await trio.sleep(61)  # the write deadline
            assert await shown() == []
            assert not running.server.bridge._held

    run(main)


def test_a_paused_stream_is_shown_as_such() -> None:
    async def main() -> None:
        async with serving(PATIENT, slow="pause") as running:
            await slowly(running).send(CHAT, LONG)
            await until(lambda: running.engine.gauges.paused == 1)
            (share,) = (await running.connect().get("/stats")).json["slow_clients"]["streams"]
            assert share["paused"]
            assert share["events"] == POLICIES["pause"].steps

    run(main)


# -- readers that never come back ----------------------------------------------------------------


@pytest.mark.parametrize("policy", POLICIES)
def test_a_stream_that_cannot_be_written_is_aborted_under_every_policy(policy: str) -> None:
    async def main() -> None:
        settings = Settings(limits=Limits(write=5.0))
        async with serving(settings, slow=policy) as running:
            client = slowly(running)
            await client.send(CHAT, LONG)
            await trio.sleep(5.5)
            await until(lambda: not running.server.bridge.busy)
            gauges, books = running.engine.gauges, running.server.bridge.books
            assert gauges.running == gauges.paused == gauges.waiting == 0
            assert (books.events, books.bytes) == (0, 0)
            assert running.server.bridge.gate.free
            assert not running.server._connections
            assert (await running.post(CHAT, chat("Say only: hi"))).status == 200

    run(main)


def waited(policy: str, connect: Callable[[Running], Client]) -> float:
    """How long an honest request waits behind fifty streams, on eight seats."""
    out: list[float] = []

    async def main() -> None:
        async with serving(slow=policy, max_batch=8) as running:
            for _ in range(50):
                client = connect(running)
                await client.send(CHAT, {**LONG, "max_tokens": 150})
            start = trio.current_time()
            reply = await running.post(CHAT, chat("Say only: hi", stream=True))
            assert reply.text() == "hi"
            out.append(trio.current_time() - start)

    run(main)
    return out[0]


def test_fifty_that_never_read_keep_nobody_longer_than_fifty_that_do() -> None:
    healthy = waited(DEFAULT, Running.connect)
    assert waited(DEFAULT, slowly) == pytest.approx(healthy, abs=1.0)
    assert waited("drop", slowly) < healthy
    assert waited("pause-then-drop", slowly) < healthy + 50 / 8 * 6
    assert waited("pause", slowly) > Limits().write  # why it is not the default


def test_an_answer_that_is_not_streamed_is_gathered_without_any_limit() -> None:
    async def main() -> None:
        async with serving(slow="drop", max_batch=4) as running:
            reply = await running.post(CHAT, chat("Count from 1 to 300", n=4, max_tokens=COUNT))
            assert reply.status == 200
            assert running.server.bridge.books.dropped == 0

    run(main)


@pytest.mark.parametrize("policy", GENTLE)
def test_a_reader_who_keeps_up_sees_no_difference(policy: str) -> None:
    replies: list[Reply] = []

    async def main(name: str) -> None:
        async with serving(slow=name, ids=lambda: "0" * 24) as running:
            replies.append(await running.post(CHAT, {**LONG, "n": 2, "logprobs": True}))

    run(lambda: main("unbounded"))
    run(lambda: main(policy))
    first, second = ([{**c, "created": 0} for c in reply.chunks] for reply in replies)
    assert first == second
    texts = [chunk["choices"][0]["index"] for chunk in first[2:-1]]
    assert all({a, b} == {0, 1} for a, b in pairwise(texts[:20]))


# -- any readers at all --------------------------------------------------------------------------


async def anyhow(client: Client, rng: random.Random) -> bytes:
    """Reads in pieces of any size, with pauses now and then; may leave in the middle."""
    raw = b""
    leaves = rng.random() < 0.4
    while b"\r\n0\r\n\r\n" not in raw:
        if rng.random() < 0.02:
            await trio.sleep(rng.choice((0.1, 1.0, 7.0)))
        got = bytes(await client.stream.receive_some(rng.randint(1, 4000)))
        if not got or (leaves and rng.random() < 0.01):
            break
        raw += got
    await client.hang_up()
    return raw


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("policy", POLICIES)
def test_whatever_readers_do_each_reads_a_beginning_and_nothing_is_left(
    policy: str, seed: int
) -> None:
    rng = random.Random(f"{policy} {seed}")
    ends: list[bytes] = []

    async def main() -> None:
        async with serving(PATIENT, slow=policy, max_batch=4) as running:
            whole = (await running.post(CHAT, LONG)).text()
            bridge = running.server.bridge

            async def one(number: int) -> None:
                client = slowly(running)
                await client.send(CHAT, {**LONG, "n": rng.randint(1, 2), "max_tokens": 200})
                ends.append(await anyhow(client, random.Random(f"{policy} {seed} {number}")))

            async with trio.open_nursery() as nursery:
                for number in range(6):
                    nursery.start_soon(one, number)
                    await trio.sleep(rng.uniform(0, 2))
            await until(lambda: not bridge.busy and not running.server._connections)
            for raw in ends:
                texts = re.findall(rb'"index":0,"delta":{"content":"([^"]*)"}', raw)
                assert whole.encode().startswith(b"".join(texts)), f"seed {seed}"
                assert b"[DONE]" not in raw or b"slow_client" not in raw
            gauges, books = running.engine.gauges, bridge.books
            assert gauges.running == gauges.waiting == gauges.paused == gauges.owed == 0
            assert gauges.submitted == gauges.finished + gauges.aborted
            assert (books.events, books.bytes) == (0, 0)
            assert bridge.gate.free
            assert not bridge._unstarted
            if POLICIES[policy].steps < 1000:
                assert books.most_events <= 2 * POLICIES[policy].steps + 3

    run(main)
