"""What belongs to another request is found in an answer, and nothing else is."""

from __future__ import annotations

import json
import signal
from dataclasses import replace

import pytest
import trio

from loadgen.crosstalk import Solo, crossings, marks_in
from loadgen.reload import loads
from loadgen.workload import Workload
from tests.conformance.attacks import says
from tests.conformance.hostile_server import EVENTS, Asked, Attack, chunk, head, stream_answer
from tests.loadgen.playing import against, against_reference
from tests.loadgen.test_reload import text

MARKS = [Workload("chat", "m", 7).ask(index).mark or "" for index in range(4)]
LOAD = ("--rate", "5", "--requests", "8")


def answers(words: str) -> Attack:
    return says(head(EVENTS, b"Connection: close") + stream_answer(words))


def test_no_two_requests_have_one_mark() -> None:
    marks = [Workload("chat", "m", 7).ask(index).mark for index in range(2000)]
    assert len(set(marks)) == 2000


@pytest.mark.parametrize(
    ("said", "found"),
    [
        ("nothing", ()),
        (f"[{MARKS[0]}] again", ()),
        (f"so {MARKS[1]} and ({MARKS[2]}), {MARKS[1]}", (MARKS[1], MARKS[2])),
        (f"{MARKS[1]}0", ()),
        (f"f{MARKS[1]}", ()),
        (MARKS[1].upper(), ()),
    ],
)
def test_a_mark_is_found_where_it_stands_alone_and_is_not_ones_own(
    said: str, found: tuple[str, ...]
) -> None:
    assert marks_in(said, MARKS[0]) == found


def test_a_number_that_is_nobodys_mark_is_no_crossing() -> None:
    assert crossings([(0, ("0123456789ab",))], {MARKS[1]: 1}) == []


def test_the_last_requests_mark_in_an_answer_is_a_finding_and_a_failure() -> None:
    asked: list[str] = []

    def choose(request: Asked) -> Attack | None:
        if not request.streams or request.body is None:
            return None
        asked.append(request.body["messages"][0]["content"])
        return answers(f"you said {asked[-2][:14]}" if len(asked) == 5 else f"ok {asked[-1][:14]}")

    ran = against(choose, *LOAD).result
    assert [(each.index, each.other) for each in ran.tally.crossed] == [(4, 3)]
    assert (ran.failed, ran.exit, ran.summary.good) == (1, 1, 7)
    stored = "".join(text(ran))
    assert json.loads(stored)["checks"]["cross_talk"] == [{"request": 4, "of": 3}]
    assert loads(stored, "x")[0].tally.crossed == ran.tally.crossed


def test_a_mark_in_two_pieces_is_found_too() -> None:
    words = MARKS[2]

    async def attack(stream: trio.SocketStream) -> None:
        await stream.send_all(head(EVENTS, b"Connection: close"))
        for piece in (words[:5], words[5:]):
            await stream.send_all(chunk({"role": "assistant", "content": piece}))
        await stream.send_all(chunk({}, "stop") + b"data: [DONE]\n\n")

    ran = against(lambda asked: attack if asked.streams else None, *LOAD).result
    assert {each.other for each in ran.tally.crossed} == {2}
    assert {each.index for each in ran.tally.crossed} == {0, 1, 3, 4, 5, 6, 7}


# -- alone -----------------------------------------------------------------------------------------


def test_an_endpoint_that_repeats_itself_is_identical_to_solo() -> None:
    ran = against_reference(*LOAD, "--solo", "4").result
    assert ran.solo == Solo(4, 4, ())
    assert str(ran.solo) == "identical to solo: 4 of 4"


def numbered(changed: int) -> tuple[list[Asked], object]:
    """Answers the same to the same prompt, but for the request of that number."""
    asked: list[Asked] = []

    def choose(request: Asked) -> Attack | None:
        if not request.streams or request.body is None:
            return None
        asked.append(request)
        content = request.body["messages"][0]["content"]
        return answers("torn" if len(asked) == changed else f"same {content[20:40]}")

    return asked, choose


def test_an_answer_that_differs_under_load_is_told_and_gates_nothing() -> None:
    asked, choose = numbered(changed=3)
    ran = against(choose, *LOAD, "--solo", "99").result  # type: ignore[arg-type]
    assert ran.solo == Solo(8, 8, (2,))
    assert ran.exit == 0
    assert len(asked) == 8 + 16
    assert all(request.body and request.body["temperature"] == 0 for request in asked)
    assert loads(text(ran), "x")[0] == replace(ran, load=dict(ran.load))


def test_what_does_not_repeat_itself_alone_says_nothing() -> None:
    _, choose = numbered(changed=10)  # the second lone answer of the first request
    ran = against(choose, *LOAD, "--solo", "99").result  # type: ignore[arg-type]
    assert ran.solo == Solo(8, 7, ())
    assert "(1 of 8 do not repeat themselves alone)" in str(ran.solo)


def test_nobody_is_asked_again_without_the_option() -> None:
    asked, choose = numbered(changed=0)
    assert against(choose, *LOAD).result.solo is None  # type: ignore[arg-type]
    assert len(asked) == 8
    assert all(request.body and "temperature" not in request.body for request in asked)


def test_an_interruption_of_the_lone_requests_costs_only_them() -> None:
    asked, choose = numbered(changed=0)

    def interrupting(request: Asked) -> Attack | None:
        attack: Attack | None = choose(request)  # type: ignore[operator]
        if len(asked) == 10:
            signal.raise_signal(signal.SIGINT)
        return attack

    ran = against(interrupting, *LOAD, "--solo", "99").result
    assert (ran.solo, ran.complete, ran.summary.books.succeeded) == (None, True, 8)
