"""Each scheduled request has exactly one fate, and the fates add up."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conformance.capture import Capture, End, How
from conformance.lifecycle import Outcome
from conformance.reading import read
from loadgen.outcome import FATES, OURS, SUCCESSES, UNSENT, Fate, Lack, fate_of, sums
from tests.loadgen.captures import DONE, HEAD, capture, chunk, text, whole

FINISH = chunk({}, "stop")
ROLE = chunk({"role": "assistant", "content": ""})


def test_the_table_has_a_row_for_every_outcome_and_every_lack() -> None:
    assert set(FATES) == set(itertools.product([*Outcome, None], Lack))


def test_every_fate_can_be_reached() -> None:
    assert set(FATES.values()) | UNSENT == set(Fate)


def at_once(*events: bytes, end: How = How.CLOSED, head: bytes = HEAD) -> Capture:
    return capture([(1.0, b"".join(events))], end=End(end, 1.0), head=head)


CUT = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: 99999\r\n\r\n"
REFUSAL = b"HTTP/1.1 429 Too Many Requests\r\n\r\n"
ERROR = b'data: {"error": {"message": "x"}}\n\n'

SEEN = {
    "whole": (at_once(ROLE, text("a"), FINISH, DONE), Fate.COMPLETE),
    "no sentinel": (at_once(ROLE, text("a"), FINISH), Fate.COMPLETE_UNTERMINATED),
    "sentinel, no finish": (at_once(ROLE, text("a"), DONE), Fate.UNFINISHED),
    "finish, no token": (at_once(ROLE, FINISH, DONE), Fate.TOKENLESS),
    "finish, no token, no sentinel": (at_once(ROLE, FINISH), Fate.TOKENLESS),
    "sentinel alone": (at_once(DONE), Fate.TOKENLESS),
    "no event": (at_once(b""), Fate.EMPTY),
    "only comments": (at_once(b": ping\n\n"), Fate.EMPTY),
    "text, then the end": (at_once(ROLE, text("a")), Fate.TRUNCATED),
    "cut by its length": (at_once(ROLE, text("a"), FINISH, head=CUT), Fate.TRUNCATED),
    "reset": (at_once(ROLE, text("a"), end=How.RESET), Fate.TRUNCATED),
    "reset after the finish": (
        at_once(ROLE, text("a"), FINISH, end=How.RESET),
        Fate.TRUNCATED,
    ),
    "reset after the sentinel": (
        at_once(ROLE, text("a"), FINISH, DONE, end=How.RESET),
        Fate.COMPLETE,
    ),
    "a clock": (at_once(ROLE, text("a"), end=How.CLOCK), Fate.STALLED),
    "a bound": (at_once(ROLE, text("a"), end=How.BOUND), Fate.OVER_LONG),
    "we left": (at_once(ROLE, text("a"), end=How.LEFT), Fate.LEFT),
    "error first": (at_once(ERROR, DONE), Fate.ERROR_BEFORE_TOKEN),
    "error later": (at_once(text("a"), ERROR, DONE), Fate.ERROR_AFTER_TOKEN),
    "refusal": (at_once(ERROR, head=REFUSAL), Fate.REFUSED),
    "no head": (capture([], end=End(How.RESET, 1.0)), Fate.NO_ANSWER),
    "no HTTP": (at_once(b"", head=b"SSH-2.0-x\r\n"), Fate.UNREADABLE),
    "no connection": (capture([], end=End(How.NOT_CONNECTED, 1.0)), Fate.NOT_CONNECTED),
    "no TLS": (capture([], end=End(How.TLS_FAILED, 1.0)), Fate.TLS_FAILED),
}


@pytest.mark.parametrize("name", SEEN)
def test_a_capture_has_the_fate_that_its_bytes_and_its_end_make(name: str) -> None:
    made, fate = SEEN[name]
    assert fate_of(read(made, api="chat")) is fate


def test_only_a_stream_with_text_and_finish_is_a_success() -> None:
    assert {name for name, (_, fate) in SEEN.items() if fate in SUCCESSES} == {
        "whole",
        "no sentinel",
        "reset after the sentinel",
    }
    assert fate_of(read(whole([1.0]), api="chat")) in SUCCESSES


@given(st.lists(st.sampled_from(Fate)))
def test_the_sums_are_exact(fates: list[Fate]) -> None:
    books = sums(fates)
    left = books.of.get(Fate.LEFT, 0)
    assert books.scheduled == len(fates) == books.sent + books.dropped + books.cancelled
    assert books.sent == books.succeeded + books.failed + left
    assert sum(books.of.values()) == books.scheduled
    failing = [f for f in fates if f not in SUCCESSES | UNSENT | OURS]
    assert books.failed == len(failing)
