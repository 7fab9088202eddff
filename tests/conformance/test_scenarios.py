"""What the scenarios send, and what a server that is in order makes of it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from conformance.dossier import APIS, CHAT, COMPLETIONS
from conformance.material import CODE, SCRIPTS
from conformance.scenarios import SCENARIOS
from conformance.scenarios.asks import Ask, request_for, template
from conformance.scenarios.invalid import mistakes
from conformance.scenarios.stop_cut import chosen
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


@pytest.mark.parametrize(
    ("api", "unsupported", "members"),
    [
        (CHAT, (), {"response_format"}),
        (CHAT, ("response_format",), {"tools", "tool_choice"}),
        (CHAT, ("response_format", "tools"), set()),
        (COMPLETIONS, (), {"echo"}),
        (COMPLETIONS, ("echo",), set()),
    ],
)
def test_characters_are_demanded_in_the_best_way_that_is_accepted(
    api: str, unsupported: tuple[str, ...], members: set[str]
) -> None:
    endpoint = Endpoint(api, model="m", unsupported=dict.fromkeys(unsupported, "400"))
    (given,) = SCENARIOS["pair"].variants({"answer": "characters"})
    for each in SCENARIOS["pair"].asks(endpoint, given):
        assert isinstance(each.body, dict)
        basic = {*template(endpoint, "x", 1, stream=each.stream), "stream_options"}
        assert set(each.body) - basic == members
        assert all(piece in _prompt(each.body) for piece in SCRIPTS.values())


@pytest.mark.parametrize("api", APIS)
def test_code_is_never_put_into_a_schema(api: str) -> None:
    for each in asks(api, "pair", answer="code"):
        assert isinstance(each.body, dict)
        assert not {"response_format", "tools"} & set(each.body)
        assert CODE in _prompt(each.body)


def _prompt(body: Any) -> str:
    return str(body["messages"][0]["content"] if "messages" in body else body["prompt"])


@pytest.mark.parametrize("api", APIS)
def test_the_two_forms_of_a_pair_differ_in_nothing_but_the_stream(api: str) -> None:
    plain, stream, again, last = (ask.body for ask in asks(api, "pair", repeats=2))
    assert (plain, stream) == (last, again)
    assert isinstance(stream, dict)
    assert {k: v for k, v in stream.items() if k not in ("stream", "stream_options")} == plain


def test_limits_stand_under_the_name_asked_for() -> None:
    named = [ask.body for ask in asks(CHAT, "limit", name="max_completion_tokens")]
    limits = [body["max_completion_tokens"] for body in named if isinstance(body, dict)]
    assert limits == [1, 7]
    assert [
        ask.body["max_tokens"]
        for ask in asks(CHAT, "limit", name="")
        if not isinstance(ask.body, bytes)
    ] == [1, 2, 7, 32]
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
    assert (roles.count("control"), roles.count("neighbour")) == (1, 2)


@pytest.mark.parametrize("api", APIS)
def test_every_cut_differs_from_its_control_in_the_stop_string_alone(api: str) -> None:
    for answer in ("long", "characters"):
        sent = [ask for ask in asks(api, "stop-cut", answer=answer) if not ask.attempt]
        (given,) = SCENARIOS["stop-cut"].variants({"answer": answer})
        shared = SCENARIOS["stop-cut"].shares(Endpoint(api, model="m"), given)
        (control, *_) = (*shared, *(ask for ask in sent if ask.role == "control"))
        cuts = [ask for ask in sent if ask.role != "control"]
        assert cuts
        for cut in cuts:
            assert isinstance(cut.body, dict)
            without = {key: value for key, value in cut.body.items() if key not in ("stop", "n")}
            assert without == (control.body if cut.stream else _plain(control.body))
            assert ("n" in cut.body) == (cut.role == "several")


def _plain(body: Any) -> dict[str, Any]:
    return {k: v for k, v in body.items() if k not in ("stream", "stream_options")}


def test_a_stop_string_is_chosen_for_each_role_that_has_a_place() -> None:
    pieces = tuple(f"{n}, " for n in range(1, 40))
    stops = chosen(pieces, wide=False)
    assert set(stops) == {"cut", "several", "near", "first", "white"}
    assert (stops["first"], stops["white"]) == ("1, ", " ")
    assert chosen(("Line\n1, 2, 3",), wide=False)["white"] == "\n"
    assert chosen(("\n1, 2, 3, 4",), wide=False)["white"] == " "  # behind something
    assert chosen(("too short",), wide=False) == {"first": "too short", "white": " "}
    assert chosen((), wide=True) == {}
