"""What the server refuses, with which status, and which parameter it names."""

from __future__ import annotations

import json
from typing import Any

import h11
import pytest

from reference_server.wire.limits import Limits
from reference_server.wire.server import Settings
from tests.reference_server.client import (
    CHAT,
    COMPLETIONS,
    Reply,
    ask,
    chat,
    completion,
    counted,
    run,
    serving,
    until,
)
from tests.reference_server.test_answers import tool


def is_error(reply: Reply, status: int) -> dict[str, Any]:
    assert reply.status == status, reply.body
    assert reply.headers["content-type"] == "application/json"
    assert reply.whole
    error: dict[str, Any] = reply.json["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert isinstance(error["message"], str)
    assert error["code"] is None or isinstance(error["code"], str)
    return error


DEEP_ITEMS = {"type": "array", "minItems": 4000, "items": {"$ref": "#"}}
TWINS = {"type": "object", "properties": {"a": {"$ref": "#"}, "b": {"$ref": "#"}}}


def formatted(schema: object) -> dict[str, object]:
    return {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}


NAMED = {"type": "function", "function": {"name": "nobody"}}
FORMAT = "response_format.json_schema"


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("members", "param"),
    [
        ({"messages": None}, "messages"),
        ({"messages": []}, "messages"),
        ({"messages": "hi"}, "messages"),
        ({"messages": [3]}, "messages[0]"),
        ({"messages": [{"role": "king", "content": "x"}]}, "messages[0].role"),
        ({"messages": [{"role": "user"}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, None),
        ({"messages": [{"role": "tool", "content": "x"}]}, "messages[0].tool_call_id"),
        ({"model": None}, "model"),
        ({"model": 3}, "model"),
        ({"temperature": "hot"}, "temperature"),
        ({"temperature": -0.1}, "temperature"),
        ({"temperature": 2.5}, "temperature"),
        ({"temperature": True}, "temperature"),
        ({"top_p": 1.1}, "top_p"),
        ({"presence_penalty": 3}, "presence_penalty"),
        ({"logit_bias": {"1": 1000}}, "logit_bias"),
        ({"max_tokens": -1}, "max_tokens"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": 1.5}, "max_tokens"),
        ({"max_tokens": 10**30}, "max_tokens"),
        ({"max_completion_tokens": "9"}, "max_completion_tokens"),
        ({"n": 0}, "n"),
        ({"n": 129}, "n"),
        ({"seed": "x"}, "seed"),
        ({"stop": 3}, "stop"),
        ({"stop": ""}, "stop"),
        ({"stop": ["a", 1]}, "stop"),
        ({"stop": list("abcde")}, "stop"),
        ({"logprobs": 1}, "logprobs"),
        ({"top_logprobs": 3}, "top_logprobs"),
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
        ({"stream_options": 1}, "stream_options"),
        ({"tools": []}, "tools"),
        ({"tools": [{"type": "x"}]}, "tools[0].type"),
        ({"tools": [tool("a b")]}, "tools[0].function.name"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tools": [tool()], "tool_choice": NAMED}, "tool_choice"),
        ({"tools": [tool()], "tool_choice": 7}, "tool_choice"),
        ({"functions": []}, "functions"),
        ({"response_format": {"type": "xml"}}, "response_format.type"),
        ({"response_format": {"type": "json_schema"}}, f"{FORMAT}.schema"),
        ({"response_format": formatted({"pattern": "a"})}, FORMAT),
        ({"response_format": formatted(DEEP_ITEMS)}, FORMAT),
        ({"response_format": formatted(TWINS)}, FORMAT),
        ({"response_format": formatted({"type": {}})}, FORMAT),
    ],
)
def test_a_wrong_chat_parameter_is_a_400_before_any_stream(
    members: dict[str, object], param: str | None, stream: bool
) -> None:
    error = is_error(ask({**chat(), **members, "stream": stream}), 400)
    assert error["type"] == "invalid_request_error"
    if param is not None:
        assert error["param"] == param


@pytest.mark.parametrize(
    ("members", "param"),
    [
        ({"prompt": None}, "prompt"),
        ({"prompt": []}, "prompt"),
        ({"prompt": [1, 2]}, "prompt"),
        ({"max_tokens": -1}, "max_tokens"),
        ({"logprobs": 6}, "logprobs"),
        ({"logprobs": True}, "logprobs"),
        ({"echo": "yes"}, "echo"),
        ({"best_of": 3}, "best_of"),
        ({"suffix": "x"}, "suffix"),
        ({"stream": 1}, "stream"),
        ({"stream_options": {"include_usage": True}}, "stream_options"),
        ({"stream": True, "stream_options": {"include_usage": 1}}, "stream_options.include_usage"),
        ({"prompt": ["a"] * 32, "n": 5}, "n"),
    ],
)
def test_a_wrong_completions_parameter_is_named(members: dict[str, object], param: str) -> None:
    assert is_error(ask({**completion(), **members}), 400)["param"] == param


@pytest.mark.parametrize("value", [None, False])
def test_null_means_the_default(value: object) -> None:
    members = dict.fromkeys(("stop", "n", "seed", "max_tokens", "tools", "stream_options"))
    assert ask({**chat(), **members, "stream": value}).json["object"] == "chat.completion"


DEEP = b"[" * 100_000


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b'{"model": "scripted", "stream": true, "messages": [',
        b"[]",
        b"null",
        b'{"n": NaN}',
        b'{"n": Infinity}',
        b'{"n": 1e400}',
        b'{"n": 1' + b"0" * 5000 + b"}",
        b'{"a": "\xff"}',
        b'{"a": "\\ud83d"}',
        b'{"\\udc00": 1}',
        DEEP,
        b'{"a":' + DEEP,
    ],
    ids=range(14),
)
def test_a_body_that_is_no_json_object_is_a_400(body: bytes) -> None:
    async def main() -> None:
        async with serving() as running:
            client = running.connect()
            is_error(await client.post(CHAT, body), 400)
            assert (await client.post(CHAT, chat(max_tokens=2))).status == 200

    run(main)


def test_a_lone_surrogate_is_a_400() -> None:
    body = json.dumps(chat("x")).replace('"x"', '"\\ud83d"').encode()

    async def main() -> None:
        async with serving() as running:
            error = is_error(await running.post(CHAT, body), 400)
            assert "surrogate" in error["message"]

    run(main)


@pytest.mark.parametrize("post", [chat(stream=True), completion(stream=True)])
def test_an_unknown_model_is_a_404(post: dict[str, object]) -> None:
    error = is_error(ask({**post, "model": "nobody"}), 404)
    assert (error["param"], error["code"]) == ("model", "model_not_found")


def test_a_prompt_that_fills_the_context_is_refused_before_the_stream() -> None:
    small = Settings(context=50)
    error = is_error(ask(chat("word " * 60, stream=True), settings=small), 400)
    assert error["code"] == "context_length_exceeded"
    assert error["param"] == "messages"
    assert is_error(ask(completion("word " * 60), settings=small), 400)["param"] == "prompt"


def test_the_context_ends_an_answer_with_length() -> None:
    reply = ask(completion("Count from 1 to 300.", max_tokens=4000), settings=Settings(context=60))
    assert reply.json["choices"][0]["finish_reason"] == "length"
    assert reply.json["usage"]["total_tokens"] == 60


@pytest.mark.parametrize(
    ("path", "method", "status", "allow"),
    [
        ("/v1/nothing", "GET", 404, None),
        ("/", "GET", 404, None),
        ("/chat/completions", "GET", 404, None),
        (CHAT, "GET", 405, "POST"),
        (COMPLETIONS, "DELETE", 405, "POST"),
        ("/health", "POST", 405, "GET, HEAD"),
    ],
)
def test_wrong_routes_and_methods(path: str, method: str, status: int, allow: str | None) -> None:
    async def main() -> None:
        async with serving() as running:
            reply = await running.connect().get(path, method)
            is_error(reply, status)
            assert reply.headers.get("allow") == allow

    run(main)


@pytest.mark.parametrize("target", ["http://test/health", "HTTP://t:80/health?x=1", "/health?a"])
def test_a_target_may_be_absolute_and_have_a_query(target: str) -> None:
    async def main() -> None:
        async with serving() as running:
            assert (await running.connect().get(target)).json == {"status": "ok"}

    run(main)


def test_head_gets_the_head_alone() -> None:
    async def main() -> None:
        async with serving() as running:
            client = running.connect()
            await client.stream.send_all(b"HEAD /health HTTP/1.1\r\nHost: x\r\n\r\n")
            raw = bytes(await client.stream.receive_some(65536))
            assert raw.startswith(b"HTTP/1.1 200 OK\r\n")
            assert raw.endswith(b"\r\n\r\n")
            assert (await client.get("/health")).json == {"status": "ok"}

    run(main)


@pytest.mark.parametrize("given", [None, "Bearer wrong", "Bearer", "Basic s3cret", "s3cret"])
def test_a_wrong_key_is_a_401_with_a_challenge(given: str | None) -> None:
    async def main() -> None:
        async with serving(Settings(api_key="s3cret")) as running:
            headers = {} if given is None else {"authorization": given}
            reply = await running.post(CHAT, chat(), **headers)
            is_error(reply, 401)
            assert reply.headers["www-authenticate"].startswith("Bearer")
            right = await running.post(CHAT, chat(), authorization="bearer s3cret")
            assert right.status == 200
            assert (await running.connect().get("/health")).status == 200

    run(main)


def test_a_body_over_the_limit_is_a_413_that_can_be_read() -> None:
    async def main() -> None:
        async with serving(Settings(limits=Limits(body=1000))) as running:
            reply = await running.post(CHAT, chat("x" * 2000))
            is_error(reply, 413)
            assert reply.headers["connection"] == "close"

    run(main)


def test_a_head_over_the_limit_is_a_431() -> None:
    async def main() -> None:
        async with serving(Settings(limits=Limits(head=1000))) as running:
            client = running.connect()
            client._h11.send(h11.Request(method="GET", target="/", headers=[("host", "x")]))
            await client.stream.send_all(b"GET /health HTTP/1.1\r\nx: " + b"y" * 5000)
            is_error(await client.read(), 431)

    run(main)


@pytest.mark.parametrize(
    "raw", [b"\x16\x03\x01\r\n\r\n", b"GET /\r\n\r\n", b"GET / HTTP/1.1\r\n\r\n"]
)
def test_an_unreadable_request_is_a_400_and_the_end(raw: bytes) -> None:
    async def main() -> None:
        async with serving() as running:
            client = running.connect()
            client._h11.send(h11.Request(method="GET", target="/", headers=[("host", "x")]))
            await client.stream.send_all(raw)
            assert (await client.read()).status == 400
            assert await client.stream.receive_some(10) == b""

    run(main)


def test_a_request_that_does_not_come_is_a_408() -> None:
    async def main() -> None:
        async with serving() as running:
            client = running.connect()
            client._h11.send(h11.Request(method="GET", target="/", headers=[("host", "x")]))
            await client.stream.send_all(b"POST /v1/completions HTTP/1.1\r\nhost: x\r\n")
            is_error(await client.read(), 408)

    run(main)


def test_an_idle_connection_is_closed_without_a_word() -> None:
    async def main() -> None:
        async with serving() as running:
            assert await running.connect().stream.receive_some(10) == b""

    run(main)


def test_beyond_the_queue_a_request_is_refused_with_retry_after() -> None:
    async def main() -> None:
        async with serving(Settings(max_waiting=1), max_batch=1) as running:
            for number in (1, 2):
                client = running.connect()
                await client.send(CHAT, chat("Count from 1 to 99", stream=True))
                await counted(running, "submitted", number)
                await until(lambda: running.engine.gauges.tokens > 0)
            reply = await running.post(CHAT, chat(stream=True))
            error = is_error(reply, 429)
            assert error["type"] == "rate_limit_error"
            assert int(reply.headers["retry-after"]) > 0

    run(main)


def test_messages_leak_no_path_and_no_trace() -> None:
    for body in (chat(temperature="hot"), chat(tools=[{}]), completion(prompt={})):
        text = json.dumps(ask(body).json)
        assert "Traceback" not in text
        assert ".py" not in text
