"""Of which function calls may be, and how many: streamed, plain, and beside what was not asked."""

from __future__ import annotations

from typing import Any

import pytest

from conformance.capture import Capture
from conformance.dossier import Dossier
from conformance.findings import Verdict
from tests.conformance.bodies import judged, plain, plain_chat, result, streamed, texts
from tests.conformance.checks.test_tool import OFFER, call, first, tool

NAMED: dict[str, Any] = {"tool_choice": {"type": "function", "function": {"name": "g"}}, **OFFER}
ONE: dict[str, Any] = {"parallel_tool_calls": False, **OFFER}
PASS, FAIL, OPEN = Verdict.PASS, Verdict.FAIL, Verdict.INCONCLUSIVE


def called(*names: str, reason: str = "tool_calls", **request: Any) -> Capture:
    fragments = [first("{}", index=at, id=f"t{at}", name=name) for at, name in enumerate(names)]
    return streamed(call(*fragments, reason=reason), **(request or NAMED))


def said(*parts: str, reason: str = "stop", **request: Any) -> Capture:
    return streamed(texts(*parts, reason=reason), **(request or NAMED))


def written(*names: str, **request: Any) -> Capture:
    """A plain answer that calls these."""
    calls = [first("{}", index=at, id=f"t{at}", name=name) for at, name in enumerate(names)]
    message = {"role": "assistant", "content": None, "tool_calls": calls}
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls"}
    return plain(plain_chat(choices=[choice]), **request)


def named(answer: Capture, control: Capture | None = None) -> Verdict:
    roles = {"stream": (control or called("f", **OFFER),), "named": (answer,)}
    return judged(Dossier("tools", roles, api="chat"))["tool.named"].verdict


NAMES: list[tuple[str, Capture, Verdict]] = [
    ("a call of it", called("g"), PASS),
    ("a call of it that says stop", called("g", reason="stop"), PASS),
    ("another call", called("f"), FAIL),
    ("another call behind it", called("g", "f"), FAIL),
    ("another call that the limit cut", called("f", reason="length"), FAIL),
    ("text", said("It is late."), FAIL),
    ("text that the limit cut", said("It is", reason="length"), OPEN),
    ("nothing at all", said(), OPEN),
    ("text, and the filter's word", said("It is", reason="content_filter"), OPEN),
    ("a call whose name never came", streamed(call(tool("{}", id="t1")), **NAMED), PASS),
]


@pytest.mark.parametrize(("name", "answer", "verdict"), NAMES, ids=[row[0] for row in NAMES])
def test_a_named_choice_is_a_call_of_that_function(
    name: str, answer: Capture, verdict: Verdict
) -> None:
    assert named(answer) is verdict


def test_a_choice_that_was_not_accepted_says_nothing() -> None:
    assert named(called("f", **OFFER)) is OPEN


def test_who_never_calls_is_not_told_for_not_calling_a_named_function() -> None:
    assert named(said("It is late."), control=said("It is late.", **OFFER)) is OPEN


NUMBERS: list[tuple[str, Capture, Verdict]] = [
    ("one call", called("f", **ONE), PASS),
    ("two calls", called("f", "g", **ONE), FAIL),
    ("two calls, plain", written("f", "g", **ONE), FAIL),
    ("one call, plain", written("f", **ONE), PASS),
    ("no call", said("No.", **ONE), OPEN),
    ("two calls where any number may be", called("f", "g", **OFFER), OPEN),
    ("two calls where they are wanted", called("f", "g", parallel_tool_calls=True), OPEN),
]


@pytest.mark.parametrize(("name", "answer", "verdict"), NUMBERS, ids=[row[0] for row in NUMBERS])
def test_there_is_one_call_where_no_second_one_is_wanted(
    name: str, answer: Capture, verdict: Verdict
) -> None:
    assert result("tool.parallel", answer).verdict is verdict
