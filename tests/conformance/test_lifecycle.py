"""The life of a stream: every outcome, every row, and what has no row."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from conformance.capture import Capture, End, Given, How, Layer
from conformance.lifecycle import OUTCOMES, TRANSITIONS, Close, Life, Outcome, Phase, Step
from conformance.reading import read
from tests.conformance.bodies import (
    CHUNKS,
    body,
    chunk,
    finish,
    reading,
    role,
    say,
    streamed,
    texts,
    usage_chunk,
)

ERROR: dict[str, Any] = {"error": {"message": "lost"}}


def life(records: Any, **how: Any) -> Life:
    found = reading(records, **how).life
    assert found is not None
    return found


STREAMS: list[tuple[str, Capture, Outcome]] = [
    ("complete", streamed(CHUNKS), Outcome.COMPLETE),
    ("complete, then open", streamed(CHUNKS, how=How.CLOCK), Outcome.COMPLETE),
    ("no sentinel", streamed(CHUNKS, done=False), Outcome.COMPLETE_UNTERMINATED),
    ("no finish, sentinel", streamed(CHUNKS[:2]), Outcome.COMPLETE),
    ("cut after text", streamed(CHUNKS[:2], done=False), Outcome.TRUNCATED),
    ("cut after the role", streamed(CHUNKS[:1], done=False), Outcome.TRUNCATED),
    ("nothing", streamed([], done=False), Outcome.EMPTY),
    ("an error first", streamed([ERROR], done=False), Outcome.ERROR_BEFORE_TOKEN),
    ("an error after the role", streamed([role(), ERROR]), Outcome.ERROR_BEFORE_TOKEN),
    ("an error after text", streamed([role(), say("a"), ERROR]), Outcome.ERROR_AFTER_TOKEN),
    ("an error after the finish", streamed([*CHUNKS, ERROR]), Outcome.ERROR_AFTER_TOKEN),
    ("silence", streamed([], done=False, how=How.CLOCK), Outcome.STALLED),
    ("silence after text", streamed(CHUNKS[:2], done=False, how=How.CLOCK), Outcome.STALLED),
    ("left by us", streamed(CHUNKS[:2], done=False, how=How.LEFT), Outcome.LEFT),
    ("our bound", streamed(CHUNKS[:2], done=False, how=How.BOUND), Outcome.OVER_LONG),
    ("an error, then open", streamed([*CHUNKS[:2], ERROR], done=False, how=How.CLOCK),
     Outcome.ERROR_AFTER_TOKEN),
]  # fmt: skip


@pytest.mark.parametrize(("name", "capture", "outcome"), STREAMS, ids=[r[0] for r in STREAMS])
def test_a_stream_has_its_outcome(name: str, capture: Capture, outcome: Outcome) -> None:
    assert read(capture).outcome is outcome, name


def wire(received: bytes, how: How) -> Outcome | None:
    given = Given(path="/v1/chat/completions", request={"stream": True})
    return read(Capture(received, Layer.WIRE, end=End(how), given=given)).outcome


def chunked(records: Any, *, done: bool = True, end: bytes = b"0\r\n\r\n") -> bytes:
    data = body(records, done=done)
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n"
    return head + b"\r\n%x\r\n%s\r\n" % (len(data), data) + end


def unframed(records: Any, *, done: bool = True, fields: bytes = b"") -> bytes:
    """Only the close of its connection ends it."""
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
    return head + fields + b"\r\n" + body(records, done=done)


def of_a_length(records: Any, *, done: bool) -> bytes:
    size = len(body(records, done=done))
    return unframed(records, done=done, fields=b"Content-Length: %d\r\n" % size)


WIRE: list[tuple[str, bytes, How, Outcome]] = [
    ("no connection", b"", How.NOT_CONNECTED, Outcome.NOT_CONNECTED),
    ("no handshake", b"", How.TLS_FAILED, Outcome.TLS_FAILED),
    ("no byte", b"", How.CLOCK, Outcome.NO_ANSWER),
    ("hung up at once", b"", How.CLOSED, Outcome.NO_ANSWER),
    ("no HTTP", b"SSH-2.0-x\r\n", How.CLOSED, Outcome.UNREADABLE),
    ("a refusal", b"HTTP/1.1 400 X\r\nContent-Length: 0\r\n\r\n", How.FRAMED, Outcome.REFUSED),
    ("whole", chunked(CHUNKS), How.FRAMED, Outcome.COMPLETE),
    ("no zero chunk, no sentinel", chunked(CHUNKS, done=False, end=b""), How.CLOSED,
     Outcome.TRUNCATED),
    ("reset", chunked(CHUNKS[:2], done=False, end=b""), How.RESET, Outcome.TRUNCATED),
    ("reset after the sentinel", chunked(CHUNKS, end=b""), How.RESET, Outcome.COMPLETE),
    ("closed, no sentinel", unframed(CHUNKS, done=False), How.CLOSED,
     Outcome.COMPLETE_UNTERMINATED),
    ("unframed and reset, no sentinel", unframed(CHUNKS, done=False), How.RESET,
     Outcome.TRUNCATED),
    ("unframed and without close_notify, no sentinel", unframed(CHUNKS, done=False), How.TLS_CUT,
     Outcome.TRUNCATED),
    ("unframed and reset after the sentinel", unframed(CHUNKS), How.RESET, Outcome.COMPLETE),
    ("unframed and reset, no event", unframed([], done=False), How.RESET, Outcome.TRUNCATED),
    ("of a length, then reset", of_a_length(CHUNKS, done=False), How.RESET,
     Outcome.COMPLETE_UNTERMINATED),
]  # fmt: skip


@pytest.mark.parametrize(("name", "received", "how", "outcome"), WIRE, ids=[r[0] for r in WIRE])
def test_an_exchange_has_its_outcome(
    name: str, received: bytes, how: How, outcome: Outcome
) -> None:
    assert wire(received, how) is outcome, name


def test_every_phase_and_close_has_an_outcome() -> None:
    assert set(OUTCOMES) == set(itertools.product(Phase, Close))


def test_every_outcome_is_reached_by_a_row_or_before_the_body() -> None:
    before = {Outcome.NOT_CONNECTED, Outcome.TLS_FAILED, Outcome.REFUSED, Outcome.NO_ANSWER}
    assert set(Outcome) == {*OUTCOMES.values()} | before | {Outcome.UNREADABLE}


def test_nothing_but_the_sentinel_may_follow_an_error_and_nothing_the_sentinel() -> None:
    for step in Step:
        assert (Phase.TERMINATED, step) not in TRANSITIONS
        for phase in (Phase.FAILED_BEFORE, Phase.FAILED_AFTER):
            assert ((phase, step) in TRANSITIONS) is (step is Step.DONE)


STRAYS: list[tuple[str, list[Any], Phase, Step]] = [
    ("text behind the sentinel", [*CHUNKS, "[DONE]", say("a")], Phase.TERMINATED, Step.LATE),
    ("the sentinel twice", [*CHUNKS, "[DONE]", "[DONE]"], Phase.TERMINATED, Step.DONE),
    ("text behind the error", [role(), ERROR, say("a")], Phase.FAILED_BEFORE, Step.TEXT),
    ("text behind the finish", [*CHUNKS, say("a")], Phase.FINISHED, Step.LATE),
    ("a second finish", [*CHUNKS, finish()], Phase.FINISHED, Step.LATE),
]


@pytest.mark.parametrize(("name", "records", "phase", "step"), STRAYS, ids=[r[0] for r in STRAYS])
def test_what_has_no_row_is_a_stray(
    name: str, records: list[Any], phase: Phase, step: Step
) -> None:
    found = life(records, done=False)
    assert [(s.at, s.phase, s.step) for s in found.strays] == [(len(records) - 1, phase, step)]


@pytest.mark.parametrize("end", ["[DONE]", ERROR])
def test_what_stands_behind_the_end_belongs_to_no_choice(end: Any) -> None:
    found = life([role(), say("a"), end, say("b"), say("x", 1), finish()], done=False)
    assert [(c.index, c.text, c.finishes) for c in found.choices] == [(0, "a", ())]
    assert found.unfinished == (0,)


def test_a_clean_stream_has_no_strays() -> None:
    assert life([*texts("a", "b"), usage_chunk()]).strays == ()


def test_unfinished_choices_are_named() -> None:
    found = life([role(0), role(1), finish("stop", 1)], n=3)
    assert found.unfinished == (0, 2)
    assert found.outcome is Outcome.COMPLETE
    assert life([role(0), role(1), finish("stop", 1)], n=3, done=False).outcome is Outcome.TRUNCATED


def test_an_empty_finish_reason_finishes_nothing() -> None:
    found = life([role(), chunk({"content": "a"}, "")], done=False)
    assert (found.outcome, found.unfinished) == (Outcome.TRUNCATED, (0,))


def test_choices_keep_their_own_text() -> None:
    found = life([role(1), say("a", 0), say("x", 1), say("b", 0)], n=2)
    assert [(c.index, c.text) for c in found.choices] == [(1, "x"), (0, "ab")]


def test_complete_is_never_inferred_from_the_end_of_the_body() -> None:
    for how in How:
        outcome = read(streamed(CHUNKS[:2], done=False, how=how)).outcome
        assert outcome not in (Outcome.COMPLETE, Outcome.COMPLETE_UNTERMINATED)
