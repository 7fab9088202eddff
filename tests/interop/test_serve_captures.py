"""`transformers serve`, recorded: what `judge` says of bytes that were read by eye."""

from __future__ import annotations

import json

import pytest

from tests.interop.serve import CAPTURES
from tests.interop.stored import judged, plain_beside

EXPECTED: dict[str, dict[str, str]] = json.loads((CAPTURES / "expected.json").read_text())


def test_every_stored_exchange_has_an_expectation() -> None:
    assert {path.stem for path in CAPTURES.glob("*.http")} == set(EXPECTED)


@pytest.mark.parametrize("name", EXPECTED)
def test_a_stored_exchange_is_judged_as_it_was_by_eye(name: str) -> None:
    assert judged(CAPTURES, name, plain_beside(CAPTURES, name)) == EXPECTED[name]


@pytest.mark.parametrize("name", EXPECTED)
def test_an_exchange_says_by_its_bytes_what_it_is_expected_to_break(name: str) -> None:
    """Every stream of this server ends without the sentinel; so says the file, or it is none."""
    answer = (CAPTURES / f"{name}.http").read_bytes()
    finished = b"text/event-stream" in answer and b'"finish_reason"' in answer
    ended = "done.missing" in EXPECTED[name] or "stream.truncated" in EXPECTED[name]
    assert finished == ended
    assert b"[DONE]" not in answer
