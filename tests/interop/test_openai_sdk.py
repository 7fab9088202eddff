"""The reference server read by the openai SDK: the client that most users have."""

from __future__ import annotations

import json
from collections.abc import Iterator

import openai
import pytest
from openai.types.chat import ChatCompletionToolParam

pytestmark = pytest.mark.slow

MODEL = "scripted"
COLOUR: ChatCompletionToolParam = {
    "type": "function",
    "function": {
        "name": "pick",
        "description": "Pick a colour",
        "parameters": {
            "type": "object",
            "properties": {"colour": {"type": "string", "enum": ["red", 'dark "blue" 🙂']}},
            "required": ["colour"],
            "additionalProperties": False,
        },
    },
}


@pytest.fixture
def client(reference_url: str) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=reference_url, api_key="unused", max_retries=0) as made:
        yield made


def test_the_pieces_of_a_stream_are_the_plain_answer(client: openai.OpenAI) -> None:
    plain = client.chat.completions.create(
        model=MODEL, messages=[{"role": "user", "content": "hi"}], max_tokens=20, seed=7
    )
    stream = client.chat.completions.create(
        model=MODEL,
        messages=[{"role": "user", "content": "hi"}],
        max_tokens=20,
        seed=7,
        stream=True,
        stream_options={"include_usage": True},
    )
    chunks = list(stream)
    text = "".join(c.delta.content or "" for chunk in chunks for c in chunk.choices)
    assert text == plain.choices[0].message.content != ""
    assert [c.finish_reason for x in chunks for c in x.choices if c.finish_reason] == ["length"]
    assert chunks[-1].choices == []
    assert chunks[-1].usage is not None
    assert plain.usage is not None
    assert chunks[-1].usage.completion_tokens == plain.usage.completion_tokens == 20


def test_the_accumulating_stream_builds_each_choice_once(client: openai.OpenAI) -> None:
    with client.chat.completions.stream(
        model=MODEL,
        messages=[{"role": "user", "content": "hi"}],
        n=2,
        seed=7,
        logprobs=True,
        top_logprobs=2,
    ) as stream:
        kinds = [event.type for event in stream]
        final = stream.get_final_completion()
    assert kinds.count("content.done") == 2
    assert [choice.index for choice in final.choices] == [0, 1]
    for choice in final.choices:
        assert choice.message.role == "assistant"
        assert choice.finish_reason == "stop"
        assert choice.logprobs is not None
        spelled = b"".join(bytes(t.bytes or []) for t in choice.logprobs.content or [])
        assert spelled.decode() == choice.message.content != ""


def test_the_accumulating_stream_builds_a_forced_tool_call(client: openai.OpenAI) -> None:
    with client.chat.completions.stream(
        model=MODEL,
        messages=[{"role": "user", "content": "Pick a colour."}],
        tools=[COLOUR],
        tool_choice={"type": "function", "function": {"name": "pick"}},
    ) as stream:
        final = stream.get_final_completion()
    (call,) = final.choices[0].message.tool_calls or []
    assert call.function.name == "pick"
    assert json.loads(call.function.arguments)["colour"] in ("red", 'dark "blue" 🙂')
    assert final.choices[0].finish_reason in ("tool_calls", "stop")


def test_legacy_completions_stream_the_plain_text(client: openai.OpenAI) -> None:
    plain = client.completions.create(model=MODEL, prompt="1, 2,", max_tokens=8, echo=True, seed=7)
    pieces = client.completions.create(
        model=MODEL, prompt="1, 2,", max_tokens=8, echo=True, seed=7, stream=True
    )
    text = "".join(choice.text for piece in pieces for choice in piece.choices)
    assert text == plain.choices[0].text
    assert text.startswith("1, 2,")


@pytest.mark.parametrize("seed", range(8))
def test_the_choices_of_two_prompts_appear_in_order(client: openai.OpenAI, seed: int) -> None:
    pieces = client.completions.create(
        model=MODEL, prompt=["a", "b"], n=2, max_tokens=2, seed=seed, stream=True
    )
    indices = [choice.index for piece in pieces for choice in piece.choices]
    assert list(dict.fromkeys(indices)) == [0, 1, 2, 3]


@pytest.mark.parametrize("stream", [False, True], ids=["plain", "streamed"])
def test_a_refusal_is_the_exception_that_names_the_parameter(
    client: openai.OpenAI, stream: bool
) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        client.chat.completions.create(
            model=MODEL, messages=[{"role": "user", "content": "hi"}], n=0, stream=stream
        )
    assert refused.value.param == "n"
    with pytest.raises(openai.NotFoundError) as unknown:
        client.chat.completions.create(
            model="no-such-model", messages=[{"role": "user", "content": "hi"}], stream=stream
        )
    assert unknown.value.code == "model_not_found"


def test_the_models_list_names_the_model(client: openai.OpenAI) -> None:
    assert MODEL in [model.id for model in client.models.list()]
