"""What the scenarios send, and what a server that is in order makes of it."""

from __future__ import annotations

import json

import pytest

from conformance.dossier import APIS, CHAT, COMPLETIONS
from conformance.scenarios import SCENARIOS
from conformance.scenarios.asks import Ask, request_for, template
from conformance.scenarios.invalid import mistakes
from conformance.scenarios.stop_cut import LENGTH, place
from conformance.target import Endpoint


def asks(api: str, scenario: str, **given: str | int | bool) -> tuple[Ask, ...]:
    (parameters,) = SCENARIOS[scenario].variants(given)
    return SCENARIOS[scenario].asks(Endpoint(api, model="m"), parameters)


def test_templates_speak_the_dialect_that_discovery_settled() -> None:
    endpoint = Endpoint(
        CHAT,
        model="m",
        limit="max_completion_tokens",
        omit=frozenset({"seed"}),
        extra={"think": False},
    )
    body = template(endpoint, "Hello", 5)
    assert body == {
        "model": "m",
        "messages": [{"role": "user", "content": "Hello"}],
        "max_completion_tokens": 5,
        "temperature": 0,
        "stream": True,
        "think": False,
    }
    assert "stream" not in template(endpoint, "Hello", 5, stream=False)


def test_characters_are_demanded_by_a_schema_only_where_that_is_accepted() -> None:
    given = {"answer": "characters"}
    for api, unsupported, constrained in (
        (CHAT, {}, True),
        (CHAT, {"response_format": "400"}, False),
        (COMPLETIONS, {}, False),
    ):
        endpoint = Endpoint(api, unsupported=unsupported)
        asked = SCENARIOS["stream"].asks(endpoint, next(SCENARIOS["stream"].variants(given)))
        assert isinstance(asked[0].body, dict)
        assert ("response_format" in asked[0].body) is constrained


@pytest.mark.parametrize("api", APIS)
def test_the_two_forms_of_a_pair_differ_in_nothing_but_the_stream(api: str) -> None:
    plain, stream, again, last = (ask.body for ask in asks(api, "pair", repeats=2))
    assert (plain, stream) == (last, again)
    assert isinstance(stream, dict)
    assert {k: v for k, v in stream.items() if k not in ("stream", "stream_options")} == plain


def test_limits_stand_under_the_name_asked_for() -> None:
    named = [ask.body for ask in asks(CHAT, "limit", name="max_completion_tokens")]
    limits = [body["max_completion_tokens"] for body in named if isinstance(body, dict)]
    assert limits == [1, 2, 7, 32]
    assert not any("max_tokens" in body for body in named)


@pytest.mark.parametrize("api", APIS)
def test_every_mistake_is_another_body_and_none_is_the_good_one(api: str) -> None:
    endpoint = Endpoint(api, model="m")
    good = request_for({"answer": "natural"}, endpoint, {})
    bodies = [Ask("x", body).rendered() for body in mistakes(endpoint, stream=True).values()]
    assert len(set(bodies)) == len(bodies) == 20
    assert json.dumps(good).encode() not in bodies


@pytest.mark.parametrize("api", APIS)
def test_a_good_request_follows_every_tenth_malformed_one_and_one_ends_it(api: str) -> None:
    roles = [ask.role for ask in asks(api, "invalid")]
    since = 0
    for role in roles:
        since = since + 1 if role.startswith("refused") else 0
        assert since <= 10
    assert roles[-1] == "recovery"
    assert roles.count("control") == roles.count("neighbour") == 2


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12", 12),
        ("", None),
        ("too short", None),
        ("abababababababababababababababab", None),
    ],
)
def test_a_stop_string_is_chosen_where_it_stands_for_the_first_time(
    text: str, at: int | None
) -> None:
    assert place(text) == at
    if at is not None:
        assert text.find(text[at : at + LENGTH]) == at
