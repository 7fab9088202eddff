"""A row says when each thing came, from the reads on record, and nothing that is not there."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conformance.capture import Capture, End, How, Json
from loadgen.measure import Row, row_from
from loadgen.outcome import Fate
from loadgen.played import Played
from loadgen.workload import Ask
from tests.loadgen.captures import DONE, capture, chunk, text, usage, whole
from tests.strategies import captures

ASK = Ask(0, b"{}", "abc", 10, 20)


def measured(made: Capture | None, intended: float = 0.0, started: float | None = None) -> Row:
    begun = intended if started is None else started
    return row_from(Played(0, intended, begun, made), ASK, "chat")


ROLE = chunk({"role": "assistant", "content": ""})
END = chunk({}, "stop") + chunk(None, **usage(3)) + DONE


def test_the_role_is_an_event_and_no_token() -> None:
    row = measured(whole([0.5, 0.7, 1.0], sent=0.1, role_at=0.2))
    assert (row.first_byte, row.first_event, row.first_token) == (0.2, 0.2, 0.5)
    assert (row.last_event, row.token_times, row.fate) == (1.0, (0.5, 0.7, 1.0), Fate.COMPLETE)


def test_gaps_stall_and_tpot_have_their_closed_forms() -> None:
    row = measured(whole([1.0, 1.25, 2.0, 2.25], tokens=9))
    assert row.gaps == (0.25, 0.75, 0.25)
    assert row.stall == 0.75
    assert row.tpot == pytest.approx(1.25 / 8)


def test_tokens_of_the_first_chunk_are_left_out_of_tpot_where_the_server_counts_them() -> None:
    first = text("a b c", **usage(3))
    rest = [(2.0, text(" d", **usage(4))), (3.0, text(" e", **usage(5)))]
    row = measured(capture([(1.0, ROLE + first), *rest, (3.0, chunk({}, "stop") + DONE)]))
    assert (row.first_chunk_tokens, row.completion_tokens) == (3, 5)
    assert row.tpot == pytest.approx(2.0 / 2)


def test_logprobs_count_the_tokens_of_the_first_chunk_too() -> None:
    listed: Json = [{"token": "a"}, {"token": "b"}]
    choice = {
        "index": 0,
        "delta": {"content": "ab"},
        "finish_reason": None,
        "logprobs": {"content": listed},
    }
    first = chunk({}, choices=[choice])
    row = measured(capture([(1.0, first), (4.0, text("c") + END)]))
    assert row.first_chunk_tokens == 2
    assert row.tpot == pytest.approx(3.0 / 1)


def test_reasoning_is_a_token_and_no_answer() -> None:
    thought, tool = chunk({"reasoning_content": "hm"}), chunk({"tool_calls": [{"index": 0}]})
    row = measured(capture([(1.0, ROLE), (2.0, thought), (3.0, tool), (4.0, text("x") + END)]))
    assert (row.first_token, row.first_answer) == (2.0, 3.0)


def test_what_is_missing_is_none() -> None:
    row = measured(capture([(1.0, ROLE), (2.0, text("a")), (3.0, chunk({}, "stop") + DONE)]))
    assert (row.completion_tokens, row.prompt_tokens, row.tpot, row.stall) == (None,) * 4
    assert row.first_chunk_tokens is None


def test_a_request_has_left_when_its_answer_comes_whenever_send_returns() -> None:
    pieces = [(1.0, ROLE), (2.0, text("a")), (3.0, chunk({}, "stop") + DONE)]
    assert measured(capture(pieces, sent=0.5)).sent == 0.5
    late = measured(capture(pieces, sent=1.25))
    assert (late.sent, late.first_byte) == (1.0, 1.0)
    assert late.lateness == 1.25 - late.intended


@pytest.mark.parametrize("counted", [None, True, -3, 4.0, "4", 10**400])
def test_usage_that_is_no_count_is_no_count(counted: Json) -> None:
    odd = chunk(None, usage={"prompt_tokens": counted, "completion_tokens": counted})
    row = measured(capture([(1.0, text("a") + chunk({}, "stop") + odd + DONE)]))
    assert (row.prompt_tokens, row.completion_tokens) == (None, None)


def test_lateness_is_what_the_client_added_and_connecting_is_not() -> None:
    made = capture([(3.0, text("a") + END)], sent=2.75, connected=2.5, ordinal=0)
    row = measured(made, intended=1.0, started=1.125)
    assert (row.connecting, row.lateness, row.reused) == (1.375, 0.375, False)
    assert measured(capture([(3.0, END)], sent=1.25), 1.0).lateness == 0.25


def test_a_request_that_never_left_has_no_send_and_still_its_lateness() -> None:
    made = capture([], sent=None, end=End(How.NOT_CONNECTED, 1.5, "ECONNREFUSED"), ordinal=0)
    row = measured(made, intended=1.0, started=1.25)
    assert (row.fate, row.sent, row.lateness) == (Fate.NOT_CONNECTED, None, 0.25)
    assert row.detail == "ECONNREFUSED"


@pytest.mark.parametrize("unsent", [Fate.DROPPED, Fate.CANCELLED])
def test_a_request_that_was_not_sent_keeps_its_intended_start(unsent: Fate) -> None:
    row = row_from(Played(4, 2.0, unsent=unsent), ASK, "chat")
    assert (row.index, row.intended, row.fate, row.started) == (4, 2.0, unsent, None)
    assert not row.was_sent


def test_an_interrupted_request_is_one_that_we_left() -> None:
    assert measured(None, 2.0).fate is Fate.LEFT


def test_a_failure_keeps_the_beginning_of_what_it_was_told() -> None:
    error = b'data: {"error": {"message": "out of memory"}}\n\n'
    row = measured(capture([(1.0, text("a")), (2.0, error)]))
    assert (row.fate, row.told) == (Fate.ERROR_AFTER_TOKEN, error[6:-2])
    head = b"HTTP/1.1 503 Unavailable\r\nContent-Type: text/plain\r\n\r\n"
    row = measured(capture([(1.0, b"x" * 5000)], head=head))
    assert (row.fate, row.status, row.told) == (Fate.REFUSED, 503, b"x" * 200)


@given(captures())
def test_any_capture_at_all_gives_one_row(made: Capture) -> None:
    row = measured(made, 1.0)
    assert row.fate in Fate
    assert row.completion_tokens is None or row.completion_tokens >= 0


def test_an_answer_to_a_request_that_never_left_whole_is_no_stream() -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n"
    early = replace(capture([(1.0, b"{}")], head=head, sent=None), request=())
    assert measured(early).fate is Fate.EMPTY


@given(st.lists(st.integers(1, 60), max_size=40, unique=True))
def test_an_event_has_the_time_of_the_read_that_completed_it(cuts: list[int]) -> None:
    """Any cut of the bytes into reads: the n-th read stands at n seconds."""
    body = ROLE + text("a") + text("b") + END
    edges = sorted({min(len(body), cut * len(body) // 60) for cut in cuts} | {len(body)})
    starts = [0, *edges]
    pieces = [(float(n), body[a:b]) for n, (a, b) in enumerate(zip(starts, edges, strict=False), 1)]
    row = measured(capture(pieces))
    ends = [len(ROLE + text("a")), len(ROLE + text("a") + text("b"))]
    expected = tuple(float(1 + sum(edge < end for edge in edges)) for end in ends)
    assert (row.token_times, row.fate) == (expected, Fate.COMPLETE)
