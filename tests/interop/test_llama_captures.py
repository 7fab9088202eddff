"""llama.cpp's own server, recorded: what `judge` says of bytes that were read by eye before."""

from __future__ import annotations

import json

import pytest

from conformance.cli import main
from conformance.dossier import Dossier
from conformance.findings import Verdict
from conformance.inputs import Hints, items, request_from_file
from conformance.judge import judge
from tests.interop.llama import HERE
from tests.interop.stored import CASES, judged, plain_beside

CAPTURES = HERE / "captures" / "llama"
EXPECTED: dict[str, dict[str, str]] = json.loads((CAPTURES / "expected.json").read_text())
# Temperature 0, and yet the plain answer of a cold cache begins otherwise than the streamed one of
# a warm cache; alone it is no control.
UNSTEADY = "chat-logprobs"


def judged_here(name: str) -> dict[str, str]:
    control = None if name.startswith(UNSTEADY) else plain_beside(CAPTURES, name)
    return judged(CAPTURES, name, control)


def test_every_stored_exchange_has_an_expectation() -> None:
    assert {path.stem for path in CAPTURES.glob("*.http")} == set(EXPECTED)


@pytest.mark.parametrize("name", EXPECTED)
def test_a_stored_exchange_is_judged_as_it_was_by_eye(name: str) -> None:
    assert judged_here(name) == EXPECTED[name]


@pytest.mark.parametrize(
    ("name", "code"), [("chat-short-stream", 0), ("completions-prompts-stream", 1)]
)
@pytest.mark.usefixtures("capsys")
def test_the_command_says_the_same_by_its_exit_code(name: str, code: int) -> None:
    dump, request = CAPTURES / f"{name}.http", CAPTURES / f"{name}.json"
    assert main(["judge", str(dump), "--request", str(request)]) == code


def test_two_answers_that_differ_by_the_cache_alone_are_no_failure() -> None:
    roles = {}
    for role in ("stream", "plain"):
        name = CAPTURES / f"{UNSTEADY}-{role}"
        (item,) = items(f"{name}.http", Hints(request=request_from_file(f"{name}.json")))
        roles[role] = item.dossier.roles["stream"]
    found = judge([Dossier("pair", roles)], CASES)
    (parity,) = (result for result in found if result.id == "parity.text")
    assert parity.verdict is Verdict.INCONCLUSIVE
    assert (parity.reason or "").startswith("det")
