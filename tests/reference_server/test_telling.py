"""What the server tells: its numbers, its times, token ids where the model has them."""

from __future__ import annotations

import re
from typing import Any

import pytest
import trio

from conformance.metrics import MAPS, parse, values_from
from reference_server.bridge.meter import Histogram, Meter
from reference_server.engine.batching import BatchingEngine
from reference_server.engine.interface import Engine
from reference_server.wire.limits import Limits
from reference_server.wire.server import Settings
from tests.reference_server.client import (
    CHAT,
    COMPLETIONS,
    STEP,
    Reply,
    ask,
    chat,
    completion,
    run,
    serving,
    until,
)
from tests.reference_server.fake_model import FakeRunner, FakeVocabulary
from tests.reference_server.test_answers import tool

TOKENIZE, DETOKENIZE = "/tokenize", "/detokenize"


def with_ids(max_batch: int = 4) -> Engine:
    return BatchingEngine(FakeRunner(), FakeVocabulary(), max_batch=max_batch)


# -- times and numbers ---------------------------------------------------------------------------


def test_a_histogram_is_cumulative_and_a_bound_belongs_to_its_bucket() -> None:
    values = Histogram((0.1, 1))
    for value in (0.05, 0.1, 0.5, 7):
        values.observe(value)
    assert list(values.rows()) == [("0.1", 2), ("1", 3), ("+Inf", 4)]
    assert values.count == 4
    assert values.sum == pytest.approx(7.65)


def test_the_pace_is_measured_while_there_is_work_and_silence_counts_for_nothing() -> None:
    meter = Meter()
    for tick in range(20):
        meter.pace(tick * 0.1, tick * 5)
    assert meter.tokens_per_second == pytest.approx(50)
    meter.pace(100.0, 95)
    assert meter.tokens_per_second == pytest.approx(50)
    for tick in range(1, 12):
        meter.pace(100 + tick * 0.1, 95 + tick * 2)
    assert meter.tokens_per_second == pytest.approx(20)


async def metrics(running: Any) -> dict[str, float]:
    page = (await running.connect().get("/metrics")).body.decode()
    return {
        row.name.removeprefix("streamproof:") + row.labels.get("le", ""): row.value
        for row in parse(page)
    }


def test_times_are_those_of_the_requests() -> None:
    async def main() -> None:
        async with serving(max_batch=1) as running:
            async with trio.open_nursery() as nursery:
                for _ in range(2):
                    body = chat("Count from 1 to 300", stream=True, max_tokens=10)
                    nursery.start_soon(running.post, CHAT, body)
            shown = await metrics(running)
            # Both wait for a step to begin; the second also for the ten tokens of the first.
            assert shown["request_queue_time_seconds_sum"] == pytest.approx(12 * STEP)
            assert shown["time_to_first_token_seconds_sum"] == pytest.approx(12 * STEP)
            assert shown["time_to_first_token_seconds_count"] == 2
            assert shown["inter_token_latency_seconds_count"] == 18
            assert shown["inter_token_latency_seconds_sum"] == pytest.approx(18 * STEP)
            assert shown["inter_token_latency_seconds_bucket0.01"] == 0
            assert shown["inter_token_latency_seconds_bucket0.025"] == 18
            assert shown["e2e_request_latency_seconds_sum"] == pytest.approx(30 * STEP)
            per_token = shown["request_time_per_output_token_seconds_sum"]
            assert per_token == pytest.approx(2 * STEP)

    run(main)


def test_the_numbers_are_the_engines_and_the_books() -> None:
    async def main() -> None:
        async with serving(engine=with_ids()) as running:
            client = running.connect()
            await client.send(CHAT, chat("Count from 1 to 300", stream=True, max_tokens=200))
            await until(lambda: running.engine.gauges.tokens > 3)
            shown, gauges = await metrics(running), running.engine.gauges
            assert gauges.free_blocks is not None
            assert gauges.total_blocks
            used = 1 - gauges.free_blocks / gauges.total_blocks
            assert shown["kv_cache_usage_perc"] == pytest.approx(used, abs=1e-6)
            assert 0 < used < 1
            assert shown["prompt_tokens_total"] == gauges.prompt_tokens > 0
            assert shown["tokens_owed"] == gauges.owed > 0
            await client.hang_up()
            await until(lambda: not running.server.bridge.busy)
            stats = (await running.connect().get("/stats")).json
            engine = stats["engine"]
            assert engine["aborted"] == 1
            assert engine["free_blocks"] == engine["total_blocks"]
            assert stats["slow_clients"]["policy"] == "coalesce"
            assert stats["slow_clients"]["events"] == stats["slow_clients"]["bytes"] == 0
            assert stats["seconds"]["first_token"]["count"] == 1

    run(main)


def test_our_map_reads_our_page() -> None:
    async def main() -> None:
        async with serving() as running:
            await running.post(CHAT, chat(max_tokens=5))
            page = (await running.connect().get("/metrics")).body.decode()
            values = values_from(parse(page), MAPS["streamproof"])
            assert values == {"running": 0, "waiting": 0, "generated_tokens": 5, "aborted": 0}
            for name, kind in re.findall(r"^# TYPE (\S+) (\S+)$", page, re.MULTILINE):
                rows = [row.name for row in parse(page) if row.name.startswith(name)]
                assert len(rows) >= (3 if kind == "histogram" else 1)

    run(main)


# -- token ids -----------------------------------------------------------------------------------


def ids_of(text: str) -> list[int]:
    return list(FakeVocabulary().encode(text))


def spoken(ids: list[int]) -> bytes:
    return b"".join(map(FakeVocabulary().raw, ids))


def test_tokenize_gives_the_ids_that_the_model_sees() -> None:
    async def main() -> None:
        async with serving(engine=with_ids()) as running:
            said = (await running.post(TOKENIZE, {"prompt": "Tell 漢字"})).json
            assert said["tokens"] == ids_of("Tell 漢字")
            assert said["count"] == len(said["tokens"])
            assert said["max_model_len"] == running.engine.context
            back = await running.post(DETOKENIZE, {"tokens": said["tokens"]})
            assert back.json == {"prompt": "Tell 漢字"}
            messages = [{"role": "user", "content": "hi"}]
            asked = (await running.post(TOKENIZE, {"messages": messages})).json
            usage = (await running.post(CHAT, chat("hi", max_tokens=1))).json["usage"]
            assert asked["count"] == usage["prompt_tokens"]

    run(main)


def test_the_scripted_model_counts_tokens_and_says_that_they_have_no_ids() -> None:
    async def main() -> None:
        async with serving() as running:
            said = (await running.post(TOKENIZE, {"prompt": "Tell me"})).json
            assert (said["count"], said["tokens"]) == (2, None)
            refused = await running.post(DETOKENIZE, {"tokens": [1]})
            assert refused.status == 400
            assert "no ids" in refused.json["error"]["message"]
            assert (await running.post(TOKENIZE, {})).status == 400
            assert (await running.connect().get(TOKENIZE)).status == 405

    run(main)


def asked(body: dict[str, object]) -> Reply:
    return ask({**body, "return_token_ids": True}, engine=with_ids())


def choices(reply: Reply) -> list[Any]:
    return [choice for chunk in reply.chunks for choice in chunk["choices"]]


@pytest.mark.parametrize("logprobs", [False, True])
def test_a_chat_stream_gives_each_token_once(logprobs: bool) -> None:
    body = chat("Tell 漢字 🫠", n=2, max_tokens=30, logprobs=logprobs)
    plain, stream = asked(body), asked({**body, "stream": True})
    first, *others = stream.chunks
    prompt = with_ids().chat_prompt(())  # the beginning and the end of what the template makes
    assert first["prompt_token_ids"] == plain.json["prompt_token_ids"]
    assert spoken(first["prompt_token_ids"]).decode().endswith(prompt)
    assert not any("prompt_token_ids" in chunk for chunk in others)
    for index in (0, 1):
        streamed = [i for c in choices(stream) if c["index"] == index for i in c["token_ids"]]
        choice = plain.json["choices"][index]
        assert streamed == choice["token_ids"]
        assert len(streamed) == 30
        assert spoken(streamed).decode(errors="ignore").startswith(choice["message"]["content"])


def test_a_call_gives_each_token_once_though_not_each_gives_a_chunk() -> None:
    """Its name comes whole, with the first piece of its arguments."""
    body = chat("Weather in Oslo?", tools=[tool()], tool_choice="required", max_tokens=60)
    plain, stream = asked(body), asked({**body, "stream": True})
    streamed = [i for choice in choices(stream) for i in choice["token_ids"]]
    assert streamed == plain.json["choices"][0]["token_ids"]
    assert spoken(streamed).startswith(b"weather\n{")


def test_a_completions_stream_gives_each_prompt_with_its_first_chunk() -> None:
    body = completion(["Tell ", "me 漢字"], n=2, max_tokens=9)
    plain, stream = asked(body), asked({**body, "stream": True})
    for index, prompt in enumerate(("Tell ", "Tell ", "me 漢字", "me 漢字")):
        mine = [choice for choice in choices(stream) if choice["index"] == index]
        whole = plain.json["choices"][index]
        assert mine[0]["prompt_token_ids"] == whole["prompt_token_ids"] == ids_of(prompt)
        assert not any("prompt_token_ids" in choice for choice in mine[1:])
        assert [i for choice in mine for i in choice["token_ids"]] == whole["token_ids"]
        assert len(whole["token_ids"]) == 9


def test_a_prompt_that_waits_for_its_place_has_its_ids_in_its_first_chunk_all_the_same() -> None:
    body = completion(["Tell ", "me 漢字"], max_tokens=9, stream=True, return_token_ids=True)
    reply = ask(body, engine=with_ids(max_batch=1), settings=Settings(heartbeat=STEP / 2))
    for index, prompt in enumerate(("Tell ", "me 漢字")):
        mine = [choice for choice in choices(reply) if choice["index"] == index]
        assert mine[0]["prompt_token_ids"] == ids_of(prompt)


def test_without_the_wish_no_answer_has_ids_and_without_ids_they_are_null() -> None:
    assert b"token_ids" not in ask(chat("Tell", stream=True), engine=with_ids()).body
    assert b"token_ids" not in ask(completion("Tell"), engine=with_ids()).body
    reply = ask(chat("Tell", stream=True, max_tokens=3, return_token_ids=True))
    assert reply.chunks[0]["prompt_token_ids"] is None
    assert {choice["token_ids"] for choice in choices(reply)} == {None}


# -- admission -----------------------------------------------------------------------------------

LONG = chat("Count from 1 to 300", stream=True, max_tokens=400)


def test_what_cannot_start_in_time_is_refused_before_the_stream() -> None:
    """By the tokens owed and the pace: two running ones of 400, and one that waits for them."""

    async def main() -> None:
        async with serving(Settings(start_within=5.0), max_batch=2) as running:
            first = [running.connect() for _ in range(3)]
            for client in first:
                await client.send(CHAT, LONG)
            await trio.sleep(1)
            refused = await running.post(CHAT, LONG)
            assert refused.status == 429
            assert refused.json["error"]["code"] == "queue_full"
            expected = running.server.bridge.wait_expected()
            assert expected == pytest.approx((3 * 400 - 100) * STEP / 2, rel=0.1)
            assert int(refused.headers["retry-after"]) == pytest.approx(expected - 5, abs=1.1)
            for client in first:
                await client.hang_up()
            await until(lambda: not running.server.bridge.busy)
            assert (await running.post(CHAT, {**LONG, "max_tokens": 3})).status == 200

    run(main)


@pytest.mark.parametrize("stream", [True, False])
def test_what_did_not_start_in_time_is_given_up_and_never_runs(stream: bool) -> None:
    async def main() -> None:
        async with serving(Settings(start_within=2.0), max_batch=1) as running:
            first = running.connect()
            await first.send(CHAT, LONG)
            await until(lambda: running.engine.gauges.running == 1)
            start = trio.current_time()
            reply = await running.post(CHAT, {**LONG, "stream": stream})
            assert trio.current_time() - start == pytest.approx(2.0, abs=STEP)
            assert reply.status == 503
            assert "retry-after" in reply.headers
            assert len((await first.read()).chunks) > 300
            assert running.engine.gauges.finished == running.engine.gauges.aborted == 1

    run(main)


def test_who_starts_in_time_may_take_as_long_as_it_likes() -> None:
    async def main() -> None:
        async with serving(Settings(start_within=0.5), max_batch=1) as running:
            assert len((await running.post(CHAT, LONG)).chunks) > 300

    run(main)


def test_a_burst_between_two_steps_is_counted_as_waiting() -> None:
    async def main() -> None:
        async with serving(Settings(max_waiting=2), max_batch=1) as running:
            statuses: list[int] = []

            async def one() -> None:
                statuses.append((await running.post(CHAT, {**LONG, "max_tokens": 5})).status)

            async with trio.open_nursery() as nursery:
                for _ in range(6):
                    nursery.start_soon(one)
            assert sorted(statuses) == [200, 200, 429, 429, 429, 429]

    run(main)


def test_a_request_that_no_server_of_this_model_could_do_is_a_400() -> None:
    small = BatchingEngine(FakeRunner(block_count=2), FakeVocabulary(), max_batch=1)
    assert small.context < 100
    reply = ask(completion("x" * 200, max_tokens=400), engine=small)
    assert reply.status == 400
    whole = ask(chat("hi"), engine=with_ids())
    assert whole.status == 200


# -- bodies --------------------------------------------------------------------------------------


def test_half_sent_bodies_are_bounded_over_all_connections_and_small_ones_still_pass() -> None:
    size = 1024 * 1024

    async def main() -> None:
        limits = Limits(bodies=3 * size)
        async with serving(Settings(limits=limits)) as running:
            slow = [running.connect() for _ in range(5)]
            head = f"POST {COMPLETIONS} HTTP/1.1\r\nhost: x\r\ncontent-length: {2 * size}\r\n\r\n"
            statuses = []
            for client in slow:
                with trio.move_on_after(1):
                    await client.stream.send_all(head.encode() + b" " * size)
                    statuses.append(bytes(await client.stream.receive_some(12)))
            assert statuses == [b"HTTP/1.1 503"] * 2
            held = (await running.connect().get("/stats")).json["wire"]["body_bytes"]
            assert held == 3 * (size - limits.small)
            assert (await running.post(CHAT, chat("hi", max_tokens=1))).status == 200
            for client in slow:
                await client.hang_up()
            await trio.sleep(1)
            assert (await running.connect().get("/stats")).json["wire"]["body_bytes"] == 0
            large = await running.post(COMPLETIONS, completion("x", user="y" * size, max_tokens=1))
            assert large.status == 200

    run(main)
