"""Bad requests: for each check an `invalid` record that passes it and records that fail it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from conformance.capture import Capture, End, Given, How, Layer
from conformance.dossier import CHAT, PATHS, Dossier
from conformance.findings import Level, Result, Verdict
from tests.conformance.bodies import (
    CHUNKS,
    judged,
    plain,
    plain_chat,
    streamed,
    usage_chunk,
)

NAMES = ("json-cut", "messages-missing", "unknown-model", "temperature-text", "limit-negative",
         "penalty-range")  # fmt: skip
CHECKS = (
    "err.malformed-json",
    "err.missing-field",
    "err.unknown-model",
    "err.wrong-types",
    "err.client-mistake-5xx",
    "err.recovers",
    "err.same-status",
    "err.context",
)
KEY = "wrong-key"
TOO_LONG = "context-exceeded"
ERROR = '{"error": {"message": "no", "type": "invalid_request_error", "param": null, "code": null}}'


def refused(status: int = 400, body: str = ERROR, **request: Any) -> Capture:
    given = Given(status, "application/json", "/v1" + PATHS[CHAT], request or None)
    return Capture(body.encode(), Layer.BODY, end=End(How.FRAMED), given=given)


SILENCE = Capture(
    b"", request=(), end=End(How.RESET), given=Given(path="/v1" + PATHS[CHAT], request={})
)
HUNG_UP = replace(SILENCE, ordinal=1, end=End(How.CLOSED))
BAD_STREAM = streamed(CHUNKS)
BAD_PLAIN = plain(plain_chat())
Changes = Mapping[tuple[str, str], Capture]


def invalid(
    changes: Changes | None = None,
    controls: tuple[Capture, ...] = (BAD_STREAM,),
    **picked: Any,
) -> Dossier:
    """A record of a server in order, with some of its answers replaced: (form, mistake)."""
    changes = changes or {}
    names = [*NAMES, TOO_LONG]
    roles = {
        f"refused-{form}": tuple(changes.get((form, name), refused()) for name in names)
        for form in ("stream", "plain")
    }
    picked = {"mistakes": names, "models": ["m", "o"], "context": 50, "skipped": None, **picked}
    roles["control"] = controls
    return Dossier("invalid", roles, api=CHAT, picked=picked, name="d")


def keyed(stream: int, plain_: int, body: str = ERROR) -> Dossier:
    """The same with a wrong key tried in both forms."""
    whole = invalid(mistakes=[*NAMES, TOO_LONG, KEY])
    answers = {"stream": refused(stream, body), "plain": refused(plain_, body)}
    roles = {
        role: (*takes, answers[role.removeprefix("refused-")]) if "refused" in role else takes
        for role, takes in whole.roles.items()
    }
    return replace(whole, roles=roles)


@pytest.mark.parametrize(
    ("stream", "plain_", "level"),
    [
        (401, 401, None),
        (401, 403, None),
        (401, 400, Level.SHOULD),
        (404, 404, Level.SHOULD),
        (500, 500, Level.MUST),
        (200, 401, Level.MUST),
    ],
)
def test_a_wrong_key_is_a_401_or_a_403(stream: int, plain_: int, level: Level | None) -> None:
    found = judged(keyed(stream, plain_))
    told = found["err.wrong-key"]
    assert (told.level if told.findings else None) == level
    assert told.verdict is not Verdict.PASS or level is None
    others = ("err.client-mistake-5xx", "err.same-status", "err.wrong-types")
    assert {found[name].verdict for name in others} == {Verdict.PASS}


def test_a_200_with_an_error_in_it_is_no_refusal_of_a_wrong_key() -> None:
    assert result("err.wrong-key", keyed(401, 200)).verdict is Verdict.FAIL


def test_without_a_key_or_with_a_busy_server_a_wrong_one_says_nothing() -> None:
    assert result("err.wrong-key", invalid()).verdict is Verdict.INCONCLUSIVE
    busy = result("err.wrong-key", keyed(429, 503))
    assert (busy.verdict, (busy.reason or "")[:5]) == (Verdict.INCONCLUSIVE, "rate:")


def broken(dossier: Dossier) -> dict[str, Level]:
    found = judged(dossier)
    return {name: found[name].level for name in CHECKS if found[name].findings}


def result(check: str, dossier: Dossier) -> Result:
    return judged(dossier)[check]


def both(name: str, stream: Capture, other: Capture) -> Changes:
    return {("stream", name): stream, ("plain", name): other}


def accepted(name: str) -> Changes:
    return both(name, BAD_STREAM, BAD_PLAIN)


def everywhere(status: int) -> Changes:
    names = (*NAMES, TOO_LONG)
    return {(form, name): refused(status) for form in ("stream", "plain") for name in names}


MUST, SHOULD, MAY = Level.MUST, Level.SHOULD, Level.MAY
SERVED = [{**record, "model": "no-such"} for record in CHUNKS]
COUNTED = [*CHUNKS, usage_chunk({"prompt_tokens": 90, "completion_tokens": 1, "total_tokens": 91})]

ROWS: list[tuple[str, Dossier, dict[str, Level]]] = [
    ("all in order", invalid(), {}),
    ("a 422 is the framework's 400", invalid(everywhere(422)), {}),
    ("a cut body is accepted", invalid(accepted("json-cut")), {"err.malformed-json": MUST}),
    ("a cut body is a 404", invalid(both("json-cut", refused(404), refused(404))),
     {"err.malformed-json": SHOULD}),
    ("no messages, an answer", invalid(accepted("messages-missing")),
     {"err.missing-field": MUST}),
    ("plain alone accepts no messages", invalid({("plain", "messages-missing"): BAD_PLAIN}),
     {"err.missing-field": MUST, "err.same-status": SHOULD}),
    ("any model will do", invalid(accepted("unknown-model")), {"err.unknown-model": MUST}),
    ("the one model says who it is", invalid(accepted("unknown-model"), models=["m"]),
     {"err.unknown-model": MAY}),
    ("the one model says it is another",
     invalid(both("unknown-model", streamed(SERVED), plain(plain_chat(model="no-such"))),
             models=["m"]),
     {"err.unknown-model": MUST}),
    ("an unknown model is a 404", invalid(both("unknown-model", refused(404), refused(404))), {}),
    ("a text as temperature is accepted", invalid(accepted("temperature-text")),
     {"err.wrong-types": MUST}),
    ("a negative limit is no limit", invalid(accepted("limit-negative")),
     {"err.wrong-types": SHOULD}),
    ("a member that not every server knows is passed over", invalid(accepted("penalty-range")),
     {"err.wrong-types": SHOULD}),
    ("a 500", invalid(both("temperature-text", refused(500), refused(500))),
     {"err.client-mistake-5xx": MUST}),
    ("a 501 is honest", invalid(both("temperature-text", refused(501), refused(501))), {}),
    ("another status without a stream", invalid({("plain", "json-cut"): refused(422)}),
     {"err.same-status": SHOULD}),
    ("another envelope without a stream",
     invalid({("plain", "json-cut"): refused(body='{"error": {"message": "no"}}')}),
     {"err.same-status": SHOULD}),
    ("a long prompt is answered", invalid(accepted(TOO_LONG)), {"err.context": MUST}),
    ("a long prompt fits after all", invalid({("stream", TOO_LONG): streamed(COUNTED)}),
     {"err.context": MAY, "err.same-status": SHOULD}),
    ("a control is a 500", invalid(controls=(BAD_STREAM, refused(500))), {"err.recovers": MUST}),
    ("a control gets no answer", invalid(controls=(SILENCE,)), {"err.recovers": MUST}),
    ("a kept connection gives no answer, a new one neither",
     invalid(controls=(HUNG_UP, SILENCE)), {"err.recovers": MUST}),
    ("a kept connection was closed, and a new one is answered",
     invalid(controls=(HUNG_UP, BAD_STREAM)), {}),
    ("a kept connection stands still",
     invalid(controls=(replace(HUNG_UP, end=End(How.CLOCK)),)), {"err.recovers": MUST}),
    ("a control stands still",
     invalid(controls=(streamed(CHUNKS[:2], done=False, how=How.CLOCK),)),
     {"err.recovers": MUST}),
]  # fmt: skip


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_what_becomes_of_a_bad_request_is_told(
    row: tuple[str, Dossier, dict[str, Level]],
) -> None:
    assert broken(row[1]) == row[2]


@pytest.mark.parametrize("check", CHECKS)
def test_a_server_in_order_passes_every_check(check: str) -> None:
    assert result(check, invalid()).verdict is Verdict.PASS


@pytest.mark.parametrize("status", [401, 429, 503])
@pytest.mark.parametrize("check", CHECKS)
def test_a_busy_server_is_neither_right_nor_wrong(check: str, status: int) -> None:
    found = result(check, invalid(everywhere(status), controls=(refused(status),)))
    assert found.verdict is Verdict.INCONCLUSIVE
    assert (found.reason or "").startswith("rate: ")


def test_one_answer_of_a_busy_server_leaves_its_check_open() -> None:
    found = result("err.malformed-json", invalid({("stream", "json-cut"): refused(429)}))
    assert found.verdict is Verdict.INCONCLUSIVE


@pytest.mark.parametrize("check", [c for c in CHECKS if c != "err.recovers"])
def test_no_answer_at_all_is_another_checks_business(check: str) -> None:
    silent = dict.fromkeys(everywhere(400), SILENCE)
    assert (result(check, invalid(silent)).reason or "").startswith("net")


def test_a_control_without_an_answer_is_the_network_where_nothing_was_answered() -> None:
    silent = dict.fromkeys(everywhere(400), SILENCE)
    found = result("err.recovers", invalid(silent, controls=(SILENCE,)))
    assert (found.verdict, found.reason) == (
        Verdict.INCONCLUSIVE,
        "net: no answer (reset)",
    )


def test_a_context_that_is_not_filled_is_not_judged() -> None:
    found = result("err.context", invalid(skipped="the context length is not known"))
    assert (found.verdict, found.reason) == (
        Verdict.INCONCLUSIVE,
        "budget: the context length is not known",
    )


def test_what_an_error_inside_a_200_tells_is_not_told_twice() -> None:
    inside = streamed(['{"error": {"message": "no"}}'])
    found = judged(invalid(both("json-cut", inside, refused())))
    assert found["err.prestream-200"].verdict is Verdict.FAIL
    assert found["err.malformed-json"].verdict is Verdict.BLOCKED
    assert found["err.same-status"].verdict is Verdict.BLOCKED


def test_a_finding_stands_at_the_request_that_it_is_about() -> None:
    (first, second) = result("err.wrong-types", invalid(accepted("temperature-text"))).findings
    assert {(first.role, first.take), (second.role, second.take)} == {
        ("refused-stream", 3),
        ("refused-plain", 3),
    }
    assert first.excerpt
    assert "temperature-text" in first.message


def test_a_scenario_that_was_not_run_decides_nothing() -> None:
    other = replace(invalid(), scenario="stream")
    assert {result(check, other).verdict for check in CHECKS} == {Verdict.INCONCLUSIVE}
