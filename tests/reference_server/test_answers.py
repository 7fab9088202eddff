"""What the server answers: shapes of both APIs, streamed and plain, all through real HTTP bytes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.reference_server.client import Reply, ask, chat, completion

EMOJI = "🫠👩\u200d👩\u200d👧 龜 \u2028 e\u0301"
CITY = {"type": "object", "properties": {"city": {"enum": ["Paris", "東京"]}}, "required": ["city"]}


def tool(name: str = "weather", schema: object = None) -> dict[str, object]:
    return {"type": "function", "function": {"name": name, "parameters": schema or CITY}}


def deltas(reply: Reply, index: int = 0) -> list[Any]:
    choices = [choice for chunk in reply.chunks for choice in chunk["choices"]]
    return [choice["delta"] for choice in choices if choice["index"] == index]


def finishes(reply: Reply) -> list[str]:
    choices = [choice for chunk in reply.chunks for choice in chunk["choices"]]
    return [choice["finish_reason"] for choice in choices if choice["finish_reason"]]


def test_a_chat_stream_is_role_then_content_then_finish_then_the_sentinel() -> None:
    reply = ask(chat("Say only: hi there", stream=True))
    assert reply.status == 200
    assert reply.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert reply.headers["transfer-encoding"] == "chunked"
    assert reply.whole
    assert deltas(reply) == [
        {"role": "assistant", "content": ""},
        {"content": "hi"},
        {"content": " there"},
        {},
    ]
    assert finishes(reply) == ["stop"]
    assert {(c["id"], c["object"], c["created"], c["model"]) for c in reply.chunks} == {
        (reply.chunks[0]["id"], "chat.completion.chunk", reply.chunks[0]["created"], "scripted")
    }
    assert all("usage" not in chunk for chunk in reply.chunks)


def test_usage_comes_once_in_a_chunk_of_its_own_and_is_null_before() -> None:
    reply = ask(chat(stream=True, max_tokens=5, stream_options={"include_usage": True}))
    *before, last = reply.chunks
    assert all(chunk["usage"] is None and chunk["choices"] for chunk in before)
    assert last["choices"] == []
    assert last["usage"]["completion_tokens"] == 5
    assert last["usage"]["total_tokens"] == last["usage"]["prompt_tokens"] + 5


@pytest.mark.parametrize("make", [chat, completion])
def test_streamed_and_plain_say_the_same_and_count_the_same(make: Any) -> None:
    streamed = ask(make("abc", stream=True, stream_options={"include_usage": True}, max_tokens=60))
    plain = ask(make("abc", max_tokens=60)).json
    choice = plain["choices"][0]
    assert streamed.text() == choice.get("message", {}).get("content", choice.get("text"))
    assert streamed.chunks[-1]["usage"] == plain["usage"]
    assert finishes(streamed) == [choice["finish_reason"]]


def test_a_plain_chat_answer_is_one_json_document() -> None:
    reply = ask(chat("Say only: hi"))
    assert reply.headers["content-type"] == "application/json"
    assert reply.json["object"] == "chat.completion"
    message = {"role": "assistant", "content": "hi", "refusal": None}
    assert reply.json["choices"] == [
        {"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}
    ]


def test_characters_of_many_bytes_survive_streaming() -> None:
    reply = ask(chat(f"Repeat exactly: {EMOJI}", stream=True))
    assert reply.text() == EMOJI
    assert "\u2028".encode() not in reply.body


@pytest.mark.parametrize("limit", [1, 2, 7])
@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens"])
def test_a_limit_gives_length_and_exactly_that_many_tokens(name: str, limit: int) -> None:
    reply = ask(chat("Count from 1 to 300", **{name: limit}))
    assert reply.json["choices"][0]["finish_reason"] == "length"
    assert reply.json["usage"]["completion_tokens"] == limit


@pytest.mark.parametrize("stop", ["5, 6", ["nothing", "5, 6"]])
def test_a_stop_string_is_not_shown(stop: object) -> None:
    reply = ask(chat("Count from 1 to 9", stop=stop, stream=True))
    assert reply.text() == "1, 2, 3, 4, "
    assert finishes(reply) == ["stop"]


def test_n_choices_open_in_order_and_differ_at_temperature() -> None:
    reply = ask(chat(stream=True, n=3, temperature=1, seed=4, max_tokens=20))
    roles = [c for chunk in reply.chunks for c in chunk["choices"] if "role" in c["delta"]]
    assert [choice["index"] for choice in roles] == [0, 1, 2]
    assert len({reply.text(index) for index in range(3)}) == 3
    assert len(finishes(reply)) == 3
    again = ask(chat(stream=True, n=3, temperature=1, seed=4, max_tokens=20))
    assert [again.text(i) for i in range(3)] == [reply.text(i) for i in range(3)]


@pytest.mark.parametrize("make", [chat, completion])
@pytest.mark.parametrize("seed", range(6))
def test_choices_appear_in_their_order_whichever_has_text_first(make: Any, seed: int) -> None:
    reply = ask(make("x", n=5, temperature=1, seed=seed, stream=True, max_tokens=4))
    order = [choice["index"] for chunk in reply.chunks for choice in chunk["choices"]]
    assert list(dict.fromkeys(order)) == [0, 1, 2, 3, 4]


def test_prompts_of_a_list_are_numbered_prompt_by_prompt() -> None:
    body = completion(["Say only: a", "Say only: b"], n=2)
    plain = ask(body).json
    assert [(c["index"], c["text"]) for c in plain["choices"]] == [
        (0, "a"),
        (1, "a"),
        (2, "b"),
        (3, "b"),
    ]
    assert plain["usage"]["completion_tokens"] == 4
    streamed = ask({**body, "stream": True})
    assert [streamed.text(i) for i in range(4)] == ["a", "a", "b", "b"]


def test_echo_gives_the_prompt_first_code_point_for_code_point() -> None:
    prompt = f"e\u0301 {EMOJI}"
    for stream in (False, True):
        reply = ask(completion(prompt, echo=True, stream=stream, max_tokens=3))
        text = reply.text() if stream else reply.json["choices"][0]["text"]
        assert text.startswith(prompt)
        assert len(text) > len(prompt)


def test_completion_chunks_have_all_four_keys() -> None:
    reply = ask(completion(stream=True))
    for chunk in reply.chunks:
        (choice,) = chunk["choices"]
        assert set(choice) == {"text", "index", "logprobs", "finish_reason"}
        assert chunk["object"] == "text_completion"


def test_chat_logprobs_spell_each_delta() -> None:
    reply = ask(chat(f"Repeat exactly: {EMOJI}", stream=True, logprobs=True, top_logprobs=3))
    for chunk in reply.chunks:
        (choice,) = chunk["choices"]
        text = choice["delta"].get("content")
        if text:
            entries = choice["logprobs"]["content"]
            assert b"".join(bytes(entry["bytes"]) for entry in entries).decode() == text
            for entry in entries:
                tops = [top["logprob"] for top in entry["top_logprobs"]]
                assert len(tops) == 3
                assert tops == sorted(tops, reverse=True)
                assert entry["logprob"] == tops[0] <= 0
    assert reply.text() == EMOJI


@pytest.mark.parametrize("echo", [False, True])
def test_completion_logprobs_are_four_arrays_whose_offsets_go_on(echo: bool) -> None:
    body = completion("Once 漢 🫠", logprobs=2, echo=echo, max_tokens=30)
    plain = ask(body).json["choices"][0]
    streamed = ask({**body, "stream": True})
    merged: dict[str, list[Any]] = {}
    for chunk in streamed.chunks:
        for name, values in (chunk["choices"][0]["logprobs"] or {}).items():
            merged.setdefault(name, []).extend(values)
    assert merged == plain["logprobs"]
    assert len({len(values) for values in merged.values()}) == 1
    assert "".join(merged["tokens"]) == plain["text"]
    for token, offset in zip(merged["tokens"], merged["text_offset"], strict=True):
        assert plain["text"].startswith(token, offset)


def test_a_required_tool_call_comes_in_fragments_as_openai_sends_them() -> None:
    body = chat("Weather?", tools=[tool()], tool_choice="required", stream=True)
    reply = ask(body)
    first, head, *rest, last = deltas(reply)
    assert first == {"role": "assistant", "content": None}
    (call,) = head["tool_calls"]
    assert call["index"] == 0
    assert call["id"]
    assert call["type"] == "function"
    assert call["function"] == {"name": "weather", "arguments": ""}
    pieces = [fragment["tool_calls"][0] for fragment in rest]
    assert all(set(piece) == {"index", "function"} for piece in pieces)
    assert all(set(piece["function"]) == {"arguments"} for piece in pieces)
    arguments = "".join(piece["function"]["arguments"] for piece in pieces)
    assert json.loads(arguments) == {"city": "Paris"}
    assert last == {}
    assert finishes(reply) == ["tool_calls"]
    del body["stream"]
    message = ask(body).json["choices"][0]["message"]
    assert message["content"] is None
    assert message["tool_calls"][0]["function"] == {"name": "weather", "arguments": arguments}


def test_two_mentioned_members_are_two_parallel_calls() -> None:
    body = chat("Weather in 東京 and Paris", tools=[tool()], stream=True)
    calls: dict[int, str] = {}
    ids = []
    for delta in deltas(ask(body)):
        for call in delta.get("tool_calls", ()):
            ids += [call["id"]] if "id" in call else []
            calls[call["index"]] = calls.get(call["index"], "") + call["function"]["arguments"]
    assert [json.loads(calls[0]), json.loads(calls[1])] == [{"city": "東京"}, {"city": "Paris"}]
    assert len(set(ids)) == 2
    single = ask({**body, "parallel_tool_calls": False})
    assert {c["index"] for d in deltas(single) for c in d.get("tool_calls", ())} == {0}


@pytest.mark.parametrize(
    ("choice", "called"),
    [
        ("auto", "weather"),
        ("none", None),
        ("required", "weather"),
        ({"type": "function", "function": {"name": "other"}}, "other"),
    ],
)
def test_tool_choice_decides(choice: object, called: str | None) -> None:
    tools = [tool(), tool("other", {"type": "object", "properties": {}})]
    message = ask(chat("Hello", tools=tools, tool_choice=choice)).json["choices"][0]["message"]
    names = [call["function"]["name"] for call in message.get("tool_calls", ())]
    assert names == ([called] if called else [])
    if called == "other":
        assert message["tool_calls"][0]["function"]["arguments"] == "{}"


def test_after_a_tool_result_the_answer_is_text() -> None:
    call = {"id": "c", "type": "function", "function": {"name": "weather", "arguments": "{}"}}
    messages = [
        {"role": "user", "content": "Weather?"},
        {"role": "assistant", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": "sunny"},
    ]
    choice = ask({**chat(), "messages": messages, "tools": [tool()]}).json["choices"][0]
    assert choice["message"]["content"]
    assert choice["finish_reason"] == "stop"


@pytest.mark.parametrize("limit", range(1, 8))
def test_a_call_cut_by_the_limit_finishes_with_length(limit: int) -> None:
    body = chat("Weather?", tools=[tool()], tool_choice="required", max_tokens=limit)
    choice = ask(body).json["choices"][0]
    assert choice["finish_reason"] == "length"
    (call,) = choice["message"].get("tool_calls", [None])
    whole = '{"city":"Paris"}'
    assert call is None or (call["function"]["name"] == "weather" and call["id"])
    assert call is None or whole.startswith(call["function"]["arguments"])
    assert (call is None) == (limit < 2)


def test_a_call_pays_for_its_name_and_has_no_more_deltas_than_tokens() -> None:
    body = chat("Weather?", tools=[tool()], tool_choice="required", stream=True)
    reply = ask({**body, "stream_options": {"include_usage": True}})
    carrying = [delta for delta in deltas(reply) if "tool_calls" in delta]
    assert len(carrying) <= reply.chunks[-1]["usage"]["completion_tokens"]


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"const": EMOJI}, EMOJI),
        ({"enum": ["a", "b"]}, "a"),
        ({"type": "object", "properties": {"x": {"enum": [EMOJI]}}}, {"x": EMOJI}),
        ({"$ref": "#/$defs/n", "$defs": {"n": {"type": "integer", "minimum": 3}}}, 3),
        ({"type": "array", "items": {"type": "null"}, "minItems": 2}, [None, None]),
        ({"type": "string", "minLength": 6, "maxLength": 6}, "textxx"),
        ({"anyOf": [{"type": "boolean"}, {"type": "number"}]}, True),
        ({"type": "number", "exclusiveMinimum": 2, "maximum": 3}, 2.5),
        ({"type": "integer", "exclusiveMaximum": 0}, -1),
    ],
)
def test_a_schema_constrains_the_answer(schema: object, value: object) -> None:
    wanted = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    for stream in (False, True):
        reply = ask(chat("Go", response_format=wanted, stream=stream))
        content = reply.text() if stream else reply.json["choices"][0]["message"]["content"]
        assert json.loads(content) == value


def test_json_object_gives_an_object() -> None:
    reply = ask(chat('Say "hi"', response_format={"type": "json_object"}))
    assert isinstance(json.loads(reply.json["choices"][0]["message"]["content"]), dict)


@pytest.mark.parametrize("prompt", ["漢" * 50, "Count from 1 to 300"])
def test_an_empty_answer_is_still_well_formed(prompt: str) -> None:
    whole = ask(chat(prompt)).json["choices"][0]["message"]["content"]
    reply = ask(chat(prompt, stop=whole[:1], stream=True, stream_options={"include_usage": True}))
    assert reply.text() == ""
    assert finishes(reply) == ["stop"]
    assert deltas(reply)[-1] == {}


def test_zero_tokens_of_a_completion_are_none() -> None:
    reply = ask(completion("abc", max_tokens=0, echo=True))
    assert reply.json["choices"][0]["text"] == "abc"
    assert reply.json["usage"]["completion_tokens"] == 0
