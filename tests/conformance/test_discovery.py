"""Discovery against small servers that refuse, rename or lack things."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import trio
import trio.testing

from conformance.capture import Json
from conformance.connect import Door
from conformance.discovery import Discovery, Found, bound
from conformance.dossier import APIS, CHAT, COMPLETIONS
from conformance.errors import TargetError
from conformance.recorder import Recorder
from conformance.script import Clocks
from conformance.target import Target, parse_url
from tests.conformance.mini_server import Got, MiniServer, Say, refused

MODELS: Json = {"data": [{"id": "first", "max_model_len": 512}, {"id": "second"}]}
ANSWER: Json = {"choices": [{"index": 0, "message": {"role": "assistant", "content": "hi"}}]}


def accepting(got: Got) -> Say:
    """Everything under /v1, and nothing else."""
    if got.path == "/v1/models":
        return Say(200, MODELS)
    if got.path in ("/v1/chat/completions", "/v1/completions"):
        return Say(200, ANSWER)
    return refused(404, "no such route")


def refusing(*members: str, status: int = 400) -> Callable[[Got], Say]:
    """As `accepting`, but requests with one of these members are refused by name."""

    def answer(got: Got) -> Say:
        for name in members:
            if got.body is not None and name in got.body:
                return refused(status, f"{name} is not\nsupported", name)
        return accepting(got)

    return answer


def discovered(
    answer: Callable[[Got], Say],
    *,
    apis: tuple[str, ...] = (),
    path: str = "",
    quick: bool = False,
    **told: object,
) -> tuple[Found, list[Got]]:
    """What discovery found, and the requests that the server got."""
    server = MiniServer(answer)
    found: list[Found] = []
    refusals: list[TargetError] = []

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            url = parse_url(await server.start(nursery) + path)
            target = replace(Target(url), **told)  # type: ignore[arg-type]
            recorder = Recorder(Door(url.host, url.port))
            clocks = Clocks(first_byte=5, progress=5, total=20)
            try:
                discovery = Discovery(recorder, target, apis, clocks=clocks, quick=quick)
                found.append(await discovery.run())
            except TargetError as error:  # out of the nursery's group
                refusals.append(error)
            nursery.cancel_scope.cancel()

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
    if refusals:
        raise refusals[0]
    return found[0], server.got


def test_the_server_root_and_the_base_lead_to_the_same_endpoints() -> None:
    root, _ = discovered(accepting)
    base, _ = discovered(accepting, path="/v1")
    assert root.endpoints == base.endpoints
    assert [(each.api, each.path) for each in root.endpoints] == [
        (CHAT, "/v1/chat/completions"),
        (COMPLETIONS, "/v1/completions"),
    ]


def test_an_api_without_the_v1_prefix_is_found_as_well() -> None:
    def answer(got: Got) -> Say:
        return accepting(replace(got, path="/v1" + got.path))

    found, _ = discovered(answer)
    assert found.endpoints[0].path == "/chat/completions"


def test_the_model_is_the_first_listed_unless_one_is_named() -> None:
    found, _ = discovered(accepting)
    assert (found.endpoints[0].model, found.endpoints[0].context) == ("first", 512)
    named, got = discovered(accepting, model="second")
    assert {each.body["model"] for each in got if each.body} == {"second"}
    assert named.endpoints[0].context is None


def test_a_server_that_accepts_everything_costs_few_requests() -> None:
    found, got = discovered(accepting)
    assert not found.endpoints[0].unsupported
    assert not [
        each for each in got if {"max_tokens", "max_completion_tokens"} <= {*(each.body or {})}
    ]
    assert len(got) <= 11
    assert found.requests == len(got)


@pytest.mark.parametrize(
    ("member", "capability"),
    [
        ("stream_options", "usage"),
        ("logprobs", "logprobs"),
        ("seed", "seed"),
        ("stop", "stop"),
        ("n", "n"),
        ("max_completion_tokens", "max_completion_tokens"),
    ],
)
def test_an_honest_refusal_of_a_member_makes_its_capability_unsupported(
    member: str, capability: str
) -> None:
    found, _ = discovered(refusing(member), apis=(CHAT,))
    said = {capability: f"400: {member} is not supported"}
    assert found.endpoints[0].unsupported == said


def test_a_refused_temperature_or_seed_is_left_out_of_every_template() -> None:
    found, _ = discovered(refusing("temperature", "seed", status=422), apis=(CHAT,))
    assert found.endpoints[0].omit == {"temperature", "seed"}


@pytest.mark.parametrize("status", [429, 500, 503])
def test_what_is_no_refusal_of_the_member_takes_nothing_away(status: int) -> None:
    found, _ = discovered(refusing("n", status=status), apis=(CHAT,))
    assert found.endpoints[0].has("n")


def test_the_newer_name_of_the_limit_is_used_where_the_older_is_refused() -> None:
    found, got = discovered(refusing("max_tokens"), apis=(CHAT,))
    assert found.endpoints[0].limit == "max_completion_tokens"
    assert found.endpoints[0].unsupported == {}
    assert all("max_tokens" not in (each.body or {}) for each in got[2:])


def test_what_the_target_file_says_is_not_asked_again() -> None:
    found, got = discovered(
        accepting, apis=(CHAT,), capabilities={"tools": False, "n": True}, omit=("seed",)
    )
    assert found.endpoints[0].unsupported == {"tools": "declared off"}
    assert found.endpoints[0].omit == {"seed"}
    members = [name for each in got for name in each.body or {}]
    assert not {"tools", "seed"} & {*members}
    assert members.count("n") == 1  # no question, but an answer to look at


def test_a_declared_capability_is_not_taken_away_by_a_refusal() -> None:
    found, _ = discovered(refusing("n"), apis=(CHAT,), capabilities={"n": True})
    assert found.endpoints[0].has("n")


@pytest.mark.parametrize(
    "lacking",
    [("stop",), ("temperature", "usage"), ("seed", "stop", "usage"), ("logprobs", "n")],
    ids=" ".join,
)
def test_refusals_that_name_nothing_are_found_out_by_leaving_out(lacking: tuple[str, ...]) -> None:
    names = {"usage": "stream_options"}

    def answer(got: Got) -> Say:
        if any(names.get(each, each) in (got.body or {}) for each in lacking):
            return refused(400, "bad request")
        return accepting(got)

    found, got = discovered(answer, apis=(CHAT,))
    endpoint = found.endpoints[0]
    assert {*endpoint.unsupported, *endpoint.omit} == {*lacking}
    assert len([each for each in got if each.body and answer(each).status == 200]) == 5
    asks = bound(Target(parse_url("http://127.0.0.1")), CHAT)
    assert len(asks) >= found.requests - 1  # the models list apart


def test_an_api_that_is_absent_is_left_out_with_a_note() -> None:
    def answer(got: Got) -> Say:
        return refused(404, "gone") if got.path == "/v1/completions" else accepting(got)

    found, _ = discovered(answer)
    assert [each.api for each in found.endpoints] == [CHAT]
    assert found.notes == ("POST /v1/completions answered 404: gone",)


def test_every_probe_is_recorded_and_none_beyond_the_bound() -> None:
    found, got = discovered(refusing("stop"))
    recorded = sum(len(takes) for each in found.dossiers for takes in each.roles.values())
    assert recorded == len(got) == found.requests
    (control,) = found.answers[CHAT]
    assert b"Count from" in control
    target = Target(parse_url("http://127.0.0.1"))
    asks = [ask for api in APIS for ask in bound(target, api)]
    assert found.requests <= len(asks) + len(target.url.bases())
    assert found.tokens <= sum(ask.tokens for ask in asks)


def test_quick_asks_about_no_parameter() -> None:
    found, got = discovered(accepting, quick=True)
    assert len(got) == 3
    assert not found.endpoints[0].has("usage")


@pytest.mark.parametrize(
    ("answer", "apis", "said"),
    [
        (lambda got: refused(404, "gone"), (), "models answered 404: gone; name one with --model"),
        (lambda got: refused(401, "no key"), (), "answered 401: no key; give a key with"),
        (refusing("model", status=404), (), "(models listed: first, second)"),
        (refusing("model", status=401), (), "give a key with --api-key-env or --header"),
        (refusing("prompt", status=404), (COMPLETIONS,), "POST /v1/completions answered 404"),
        (
            lambda got: accepting(got) if got.body is None else Say(drop=True),
            (),
            "got no answer",
        ),
    ],
)
def test_nothing_to_test_is_one_line_that_says_what_to_do(
    answer: Callable[[Got], Say], apis: tuple[str, ...], said: str
) -> None:
    with pytest.raises(TargetError) as refusal:
        discovered(answer, apis=apis)
    assert said in str(refusal.value)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    "body", [b"", b"\xff\xfe", b"[" * 5000, b'{"data": 3}', b'{"data": [1, {"id": 5}, null]}']
)
def test_a_models_list_that_is_none_asks_for_a_model(body: bytes) -> None:
    def answer(got: Got) -> Say:
        return Say(200, body) if got.body is None else accepting(got)

    with pytest.raises(TargetError, match="--model"):
        discovered(answer)
    found, _ = discovered(answer, model="mine")
    assert found.endpoints[0].model == "mine"
