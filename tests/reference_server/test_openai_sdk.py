"""Read by others: the openai SDK, plain, streamed and through its accumulators, and curl -N."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from typing import cast

import openai
import pytest
from openai.types.chat import ChatCompletionFunctionToolParam, ChatCompletionUserMessageParam

from tests.reference_server.client import CHAT, chat
from tests.reference_server.test_answers import EMOJI, tool
from tests.reference_server.test_cli import started


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with started("--step-ms", "1") as (_, url):
        yield url


@pytest.fixture
def client(url: str) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=url, api_key="none", max_retries=0, timeout=20) as client:
        yield client


MESSAGE: ChatCompletionUserMessageParam = {"role": "user", "content": f"Repeat exactly: {EMOJI}"}
TOOL = cast(ChatCompletionFunctionToolParam, tool())


def test_the_sdk_lists_the_model(client: openai.OpenAI) -> None:
    assert [model.id for model in client.models.list()] == ["scripted"]


def test_the_sdk_reads_a_plain_answer(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(model="scripted", messages=[MESSAGE])
    assert answer.choices[0].message.content == EMOJI
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage is not None
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens


def test_the_sdk_reads_a_stream(client: openai.OpenAI) -> None:
    with client.chat.completions.create(
        model="scripted",
        messages=[MESSAGE],
        stream=True,
        stream_options={"include_usage": True},
    ) as stream:
        chunks = list(stream)
    assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == EMOJI
    assert chunks[-1].usage is not None


def test_the_stream_helper_accumulates_text_usage_and_logprobs(client: openai.OpenAI) -> None:
    with client.chat.completions.stream(
        model="scripted",
        messages=[MESSAGE],
        n=2,
        logprobs=True,
        top_logprobs=2,
        stream_options={"include_usage": True},
    ) as stream:
        kinds = {event.type for event in stream}
        final = stream.get_final_completion()
    assert {"chunk", "content.delta", "content.done", "logprobs.content.delta"} <= kinds
    assert [choice.message.content for choice in final.choices] == [EMOJI, EMOJI]
    assert [choice.message.role for choice in final.choices] == ["assistant", "assistant"]
    entries = final.choices[0].logprobs
    assert entries is not None
    assert entries.content is not None
    assert b"".join(bytes(e.bytes or ()) for e in entries.content).decode() == EMOJI
    assert final.usage is not None


def test_the_stream_helper_accumulates_parallel_calls(client: openai.OpenAI) -> None:
    with client.chat.completions.stream(
        model="scripted",
        messages=[{"role": "user", "content": "Weather in Paris and 東京"}],
        tools=[TOOL],
    ) as stream:
        for _ in stream:
            pass
        choice = stream.get_final_completion().choices[0]
    assert choice.finish_reason == "tool_calls"
    calls = choice.message.tool_calls or []
    assert [json.loads(call.function.arguments) for call in calls] == [
        {"city": "Paris"},
        {"city": "東京"},
    ]
    assert len({call.id for call in calls}) == 2


def test_the_sdk_reads_completions(client: openai.OpenAI) -> None:
    plain = client.completions.create(model="scripted", prompt="Say only: a b", temperature=0)
    streamed = client.completions.create(
        model="scripted", prompt="Say only: a b", temperature=0, stream=True
    )
    with streamed:
        text = "".join(chunk.choices[0].text for chunk in streamed)
    assert text == plain.choices[0].text == "a b"


def test_the_sdk_raises_what_the_status_says(client: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError, match="does not exist"):
        client.chat.completions.create(model="nobody", messages=[MESSAGE])
    with pytest.raises(openai.BadRequestError) as refused:
        client.chat.completions.create(
            model="scripted",
            messages=[MESSAGE],
            temperature=9,
            stream=True,
        )
    assert refused.value.param == "temperature"


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_curl_reads_a_stream(url: str) -> None:
    done = subprocess.run(
        [
            "curl",
            "-sN",
            url.removesuffix("/v1") + CHAT,
            "-d",
            json.dumps(chat("Say: a b", stream=True)),
        ],
        capture_output=True,
        check=True,
        timeout=20,
    )
    blocks = done.stdout.decode().split("\n\n")
    assert blocks[-2:] == ["data: [DONE]", ""]
    assert all(block.startswith("data: {") for block in blocks[:-2])
