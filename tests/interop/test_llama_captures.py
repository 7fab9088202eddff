"""llama.cpp's own server, recorded: what `judge` says of bytes that were read by eye before."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

import pytest

from conformance.cli import main
from conformance.dossier import Dossier
from conformance.findings import Result, Verdict
from conformance.inputs import Hints, items, request_from_file
from conformance.judge import judge
from conformance.specs import known_cases
from tests.interop.llama import HERE

CAPTURES = HERE / "captures" / "llama"
EXPECTED: dict[str, dict[str, str]] = json.loads((CAPTURES / "expected.json").read_text())
CASES = known_cases()
# Temperature 0, and yet the plain answer of a cold cache begins otherwise than the streamed one of
# a warm cache; alone it is no control.
UNSTEADY = "chat-logprobs"


def plain_beside(name: str) -> Path | None:
    """The stored plain answer to the same request, where it is a control."""
    stem = name.removesuffix("-stream")
    plain, request = CAPTURES / f"{stem}-plain.http", CAPTURES / f"{stem}-plain.json"
    if stem in (name, UNSTEADY) or not request.exists():
        return None
    asked = json.loads(request.read_text())
    return plain if asked.get("temperature") == 0 else None


def above_info(results: Iterable[Result]) -> dict[str, str]:
    """Case id → verdict, of what is worse than info."""
    quiet = (Verdict.PASS, Verdict.INFO, Verdict.INCONCLUSIVE, Verdict.UNSUPPORTED, Verdict.BLOCKED)
    return {each.id: each.verdict.value for each in results if each.verdict not in quiet}


def judged(name: str) -> dict[str, str]:
    request = CAPTURES / f"{name}.json"
    plain = plain_beside(name)
    hints = Hints(
        request=request_from_file(str(request)) if request.exists() else None,
        plain=text_of(plain) if plain else None,
    )
    (item,) = items(str(CAPTURES / f"{name}.http"), hints)
    return above_info(judge([item.dossier], CASES))


def text_of(plain: Path) -> str:
    """The first choice's text of a stored plain answer."""
    answer = json.loads(plain.read_bytes().split(b"\r\n\r\n", 1)[1])
    choice = answer["choices"][0]
    return str(choice.get("text", choice.get("message", {}).get("content")))


def test_every_stored_exchange_has_an_expectation() -> None:
    assert {path.stem for path in CAPTURES.glob("*.http")} == set(EXPECTED)


@pytest.mark.parametrize("name", EXPECTED)
def test_a_stored_exchange_is_judged_as_it_was_by_eye(name: str) -> None:
    assert judged(name) == EXPECTED[name]


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
