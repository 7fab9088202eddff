"""What becomes of a request's parameters: the engine's own terms, or one line that names one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from reference_server.engine import script
from reference_server.engine.interface import Message, Sampling
from reference_server.wire import chat_request, request
from reference_server.wire.errors import ApiError
from reference_server.wire.request import Ask

CHAT = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
PLAIN = {"model": "m", "prompt": "hi", "max_tokens": 20}
ROUTES: tuple[tuple[Callable[[dict[str, Any]], Ask], dict[str, Any]], ...] = (
    (chat_request.chat, CHAT),
    (request.completions, PLAIN),
)
both = pytest.mark.parametrize(("route", "base"), ROUTES, ids=("chat", "completions"))


def each(name: str, *values: object) -> list[tuple[str, object]]:
    return [(name, value) for value in values]


@both
def test_every_parameter_of_the_sampler_reaches_it(
    route: Callable[[dict[str, Any]], Ask], base: dict[str, Any]
) -> None:
    asked = {
        "max_tokens": 9,
        "temperature": 0.5,
        "seed": -7,
        "stop": ["x"],
        "top_p": 0,
        "top_k": 40,
        "min_p": 0.05,
        "repetition_penalty": 1.25,
        "presence_penalty": -2,
        "frequency_penalty": 0.5,
        "logit_bias": {"0": -100, "2147483647": 1.5},
        "min_tokens": 9,
        "ignore_eos": True,
        "stop_token_ids": [0, 7, 2**31 - 1],
    }
    assert route(base | asked).sampling == Sampling(
        max_tokens=9,
        temperature=0.5,
        seed=-7,
        stop=("x",),
        top_p=0.0,
        top_k=40,
        min_p=0.05,
        repetition_penalty=1.25,
        presence_penalty=-2.0,
        frequency_penalty=0.5,
        logit_bias=((0, -100.0), (2**31 - 1, 1.5)),
        min_tokens=9,
        ignore_eos=True,
        stop_token_ids=(0, 7, 2**31 - 1),
    )


@both
def test_what_is_absent_or_null_changes_nothing(
    route: Callable[[dict[str, Any]], Ask], base: dict[str, Any]
) -> None:
    names = (
        *("temperature", "seed", "stop", "top_p", "top_k", "min_p", "repetition_penalty"),
        *("presence_penalty", "frequency_penalty", "logit_bias", "min_tokens", "ignore_eos"),
        *("stop_token_ids", "return_token_ids", "logprobs"),
    )
    plain = Sampling(max_tokens=base.get("max_tokens"))
    assert route(base).sampling == plain
    assert route(base | dict.fromkeys(names)) == route(base)


@both
@pytest.mark.parametrize(
    ("name", "value"),
    [
        *each("top_p", -0.1, 1.01, "1", True, []),
        *each("top_k", -2, 1.5, "40", 2**31 + 1, False),
        *each("min_p", -0.01, 1.5, "0"),
        *each("repetition_penalty", 0, -1, 101, "1", True),
        *each("presence_penalty", 2.1, -2.1, "0"),
        *each("frequency_penalty", 2.1, -2.1, "0", []),
        *each("min_tokens", -1, 1.0, "1", True),
        *each("ignore_eos", 0, 1, "true"),
        *each("return_token_ids", 0, "yes"),
        *each("stop_token_ids", 7, "7", {}, [-1], [True], [1.0], ["1"]),
        *each("stop_token_ids", [2**31], list(range(129))),
        *each("logit_bias", [], "x", {"a": 1}, {"": 1}, {"-1": 1}, {"1.0": 1}),
        *each("logit_bias", {"01": 1}, {"٣": 1}, {"²": 1}, {" 1": 1}, {str(2**31): 1}),
        *each("logit_bias", {"1": 101}, {"1": True}, {"1": "5"}, {"1": None}),
        ("logit_bias", {"9" * 5000: 1}),
        ("logit_bias", {"1\n2": 1}),
        ("logit_bias", {str(number): 1 for number in range(1025)}),
    ],
)
def test_a_wrong_value_is_refused_in_one_line_that_names_its_parameter(
    route: Callable[[dict[str, Any]], Ask], base: dict[str, Any], name: str, value: object
) -> None:
    with pytest.raises(ApiError) as refused:
        route(base | {name: value})
    assert (refused.value.status, refused.value.param) == (400, name)
    assert str(refused.value).startswith(f"{name}: expected")
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 300


@both
def test_as_many_biases_and_stop_ids_as_there_may_be_are_taken(
    route: Callable[[dict[str, Any]], Ask], base: dict[str, Any]
) -> None:
    many = {"logit_bias": {str(number): 1 for number in range(1024)}}
    asked = route(base | many | {"stop_token_ids": list(range(128))}).sampling
    assert (len(asked.logit_bias), len(asked.stop_token_ids)) == (1024, 128)


@both
@pytest.mark.parametrize("off", [0, -1, None])
def test_top_k_has_other_servers_words_for_off(
    route: Callable[[dict[str, Any]], Ask], base: dict[str, Any], off: int | None
) -> None:
    assert route(base | {"top_k": off}).sampling.top_k is None


@both
def test_an_answer_cannot_have_to_be_longer_than_it_may(
    route: Callable[[dict[str, Any]], Ask], base: dict[str, Any]
) -> None:
    with pytest.raises(ApiError, match="min_tokens: expected at most the 4 tokens"):
        route(base | {"max_tokens": 4, "min_tokens": 5})


def test_the_least_length_is_held_against_the_limit_that_counts() -> None:
    newer = CHAT | {"max_tokens": 2, "max_completion_tokens": 8, "min_tokens": 8}
    assert chat_request.chat(newer).sampling.min_tokens == 8
    assert chat_request.chat(CHAT | {"min_tokens": 8}).sampling.max_tokens is None
    with pytest.raises(ApiError, match="at most the 16 tokens"):
        request.completions({"model": "m", "prompt": "hi", "min_tokens": 17})


@both
def test_token_ids_come_with_the_answer_only_where_asked_for(
    route: Callable[[dict[str, Any]], Ask], base: dict[str, Any]
) -> None:
    assert not route(base).return_token_ids
    assert route(base | {"return_token_ids": True}).return_token_ids


def test_a_chat_keeps_its_messages_their_parts_joined() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    ask = chat_request.chat(
        {
            "model": "m",
            "messages": [
                {"role": "system", "content": parts},
                {"role": "user", "content": "hi"},
                {"role": "assistant", "tool_calls": [call]},
                {"role": "tool", "tool_call_id": "c", "content": "5"},
            ],
        }
    )
    assert ask.messages[0] == Message("system", "ab")
    assert [message.role for message in ask.messages] == ["system", "user", "assistant", "tool"]
    assert '"name":"f"' in ask.messages[2].content
    assert ask.prompts == (script.chat_prompt(ask.messages),)


def test_the_scripted_models_chat_template_ends_where_the_assistant_speaks() -> None:
    asked = [Message("system", "be brief"), Message("user", "hi")]
    assert script.chat_prompt(asked) == "<|system|>be brief<|end|><|user|>hi<|end|><|assistant|>"
    assert script.last_message(script.chat_prompt(asked)) == "hi"


def test_stop_strings_do_not_cut_a_call_but_the_other_parameters_stay() -> None:
    tool = {"type": "function", "function": {"name": "f"}}
    asked = {"tools": [tool], "tool_choice": "required", "stop": "x", "top_k": 3, "min_tokens": 2}
    sampling = chat_request.chat(CHAT | asked).sampling
    assert (sampling.stop, sampling.top_k, sampling.min_tokens) == ((), 3, 2)


@pytest.mark.parametrize("prompt", [[1, 2, 3], [[1], [2]], [], ["a", 3], 7, None])
def test_prompts_of_token_ids_are_refused_in_one_line(prompt: object) -> None:
    with pytest.raises(ApiError, match=r"prompt: expected a string or an array") as refused:
        request.completions(PLAIN | {"prompt": prompt})
    assert refused.value.param == "prompt"
