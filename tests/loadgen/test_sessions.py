"""Sessions: turns in order, with the answers that came; retries before the first byte."""

from __future__ import annotations

import io
import itertools
import signal
import zlib
from typing import Any

import pytest
import trio
import trio.testing

from conformance.errors import UsageError
from loadgen.crosstalk import Solo
from loadgen.kept import Kept
from loadgen.load import Open
from loadgen.outcome import Fate
from loadgen.parts import parse_retry, parse_turns
from loadgen.progress import show
from loadgen.reload import loads
from loadgen.strata import strata
from loadgen.workload import Place, Workload
from tests.conformance.attacks import says
from tests.conformance.hostile_server import EVENTS, Asked, Attack, framed, head, stream_answer
from tests.loadgen.playing import NO_CHECKS, Ran, against, against_reference, setup
from tests.loadgen.rows import row
from tests.loadgen.test_reload import text

TWO = ("--rate", "5", "--requests", "4", "--turns", "3", "--think", "2", "--output-tokens", "8",
       *NO_CHECKS)  # fmt: skip


def numbered() -> Any:
    """Every answer says which number it has."""
    numbers = itertools.count()

    def choose(asked: Asked) -> Attack | None:
        if not asked.streams:
            return None
        return says(head(EVENTS, b"Connection: close") + stream_answer(f"a{next(numbers)}"))

    return choose


def after(seconds: float, answer: bytes) -> Attack:
    async def late(stream: trio.SocketStream) -> None:
        await trio.sleep(seconds)
        await stream.send_all(answer)

    return late


def test_a_turn_repeats_what_was_asked_and_what_was_really_answered() -> None:
    ran = against(numbered(), "--concurrency", "1", "--requests", "2", "--turns", "3")
    first, second, third, *other = [asked.body["messages"] for asked in ran.asked if asked.body]
    assert [each["role"] for each in third] == ["user", "assistant", "user", "assistant", "user"]
    assert third[:1] == first
    assert third[:3] == second
    assert (third[1]["content"], third[3]["content"]) == ("a0", "a1")
    assert third[2]["content"] != third[4]["content"]
    assert "a2" not in str(other)
    assert ran.outcomes == {"complete": 6}


def test_a_turn_is_due_when_the_answer_ended_and_the_think_time_is_over() -> None:
    ran = against_reference(*TWO)
    rows = ran.result.rows
    assert [(row.index, row.turn) for row in rows] == [(n, n % 3) for n in range(12)]
    for before, after in itertools.pairwise(rows):
        if after.turn:
            assert after.intended == pytest.approx((before.ended or 0) + 2)
            assert (after.lateness or 0) < 1e-6
    starts = [row.intended for row in rows if not row.turn]
    assert [at - starts[0] for at in starts] == pytest.approx([0, 0.2, 0.4, 0.6])


def test_figures_tell_the_first_turn_from_later_ones() -> None:
    ran = against_reference(*TWO).result
    kinds = {(each.kind, each.name): each.books.succeeded for each in ran.strata}
    assert kinds[("turn", "first turn")] == 4
    assert kinds[("turn", "later turns")] == 8
    assert kinds[("turn number", "turn 3")] == 4
    assert loads("".join(text(ran)), "x")[0].strata == ran.strata


def failing_at(number: int) -> Any:
    numbers = itertools.count(1)

    def choose(asked: Asked) -> Attack | None:
        if asked.streams and next(numbers) == number:
            return says(framed(b"{}", status=b"503 Busy"))
        return None

    return choose


def test_a_failed_turn_ends_its_session_and_the_books_say_what_was_not_reached() -> None:
    ran = against(failing_at(2), "--concurrency", "1", "--requests", "2", "--turns", "4")
    books = ran.result.summary.books
    assert ran.outcomes == {"complete": 5, "refused": 1, "unreached": 2}
    assert (books.scheduled, books.sent, books.dropped, books.cancelled) == (8, 6, 0, 2)
    assert books.failed == 1
    assert [row.index for row in ran.result.rows] == list(range(8))
    assert ran.result.summary.goodput == pytest.approx(5 / 8)
    assert ran.result.valid


def test_who_leaves_between_turns_asks_no_more() -> None:
    ran = against_reference(
        "--rate", "5", "--requests", "20", "--turns", "3", "--leave", "20%:between",
        "--output-tokens", "4", *NO_CHECKS,
    )  # fmt: skip
    rows = ran.result.rows
    left = [row for row in rows if row.client == "leave between" and row.fate is Fate.COMPLETE]
    assert left
    for one in left:
        later = [r for r in rows if r.index // 3 == one.index // 3 and r.index > one.index]
        assert {each.fate for each in later} <= {Fate.CANCELLED}
    books = ran.result.summary.books
    assert books.scheduled == 60 == books.sent + books.cancelled
    assert books.failed == 0


def test_an_interruption_keeps_the_books_of_sessions() -> None:
    async def interrupt(_: trio.CancelScope) -> None:
        await trio.sleep(3.0)
        signal.raise_signal(signal.SIGINT)

    ran = against(numbered(), "--rate", "1", "--duration", "9", "--turns", "3", "--think", "2",
                  meanwhile=interrupt)  # fmt: skip
    books = ran.result.summary.books
    assert books.scheduled == 27 == books.sent + books.cancelled
    assert len({row.index for row in ran.result.rows}) == 27
    assert books.sent == len(ran.asked)


def test_sessions_that_were_begun_in_time_are_played_to_their_end() -> None:
    """Three turns with two seconds between them; after five seconds nobody begins another one."""
    ran = against(numbered(), "--concurrency", "1", "--duration", "5", "--turns", "3",
                  "--think", "2")  # fmt: skip
    starts = [row.intended - ran.result.rows[0].intended for row in ran.result.rows]
    assert starts == pytest.approx([0, 2, 4, 4, 6, 8], abs=0.01)
    assert ran.outcomes == {"complete": 6}
    assert ran.result.summary.window.seconds == pytest.approx(5.0)
    assert ran.result.summary.measured.scheduled == 4


def test_limits_of_ours_drop_what_is_left_of_a_session() -> None:
    ran = against(numbered(), "--concurrency", "1", "--requests", "3", "--turns", "3",
                  "--max-requests", "4")  # fmt: skip
    assert ran.outcomes == {"complete": 4, "dropped": 5}


def test_turns_are_drawn_for_each_session_and_an_index_says_which_turn_it_is() -> None:
    load = Workload("chat", "m", 3, turns=parse_turns("1..4", "--turns"), retry=parse_retry("2"))
    assert load.stride == 12
    counts = [len(load.indices(unit)) for unit in range(400)]
    assert {counts.count(n) > 60 for n in (1, 2, 3, 4)} == {True}
    place = load.place(5 * 12 + 2 * 3 + 1)
    assert place == Place(5, 2, 1)
    assert load.index(place) == 67
    assert (load.unit(67), load.ask(67).turn, load.ask(67).attempt) == (5, 2, 1)


def test_a_turn_is_the_same_wherever_it_is_made() -> None:
    load = Workload("chat", "m", 3, turns=parse_turns("3", "--turns"))
    assert load.ask(2, ["x", "y"]).body == load.ask(2, ["x", "y"]).body
    assert load.ask(2, ["x", "y"]).prompt_hash == load.ask(2).prompt_hash
    assert load.ask(1).mark == load.ask(2).mark != load.ask(3).mark


# -- alone -----------------------------------------------------------------------------------------


def by_messages(torn: int = 0, late: int = 0) -> tuple[list[Any], Any]:
    """Says the same to the same talk, but to generation number `torn`; number `late` is answered
    after a while. Keeps what it was asked."""
    talks: list[Any] = []

    def choose(asked: Asked) -> Attack | None:
        if not asked.streams or asked.body is None or asked.body["max_tokens"] != 64:
            return None  # it is a probe
        talks.append(asked.body["messages"])
        words = "torn" if len(talks) == torn else f"a{zlib.crc32(repr(talks[-1]).encode())}"
        bare = head(EVENTS, b"Connection: close") + stream_answer(words)
        return after(9.0, bare) if len(talks) == late else says(bare)

    return talks, choose


def test_later_turns_are_asked_alone_with_the_talk_that_was_sent() -> None:
    talks, choose = by_messages(torn=2)
    ran = against(choose, "--concurrency", "1", "--requests", "2", "--turns", "3", "--solo", "99")
    assert ran.result.solo == Solo(6, 6, (1,))
    assert talks[2][3]["content"] == "torn"
    assert talks[6:] == [talk for talk in talks[:6] for _ in range(2)]


def test_answers_that_were_not_judged_are_repeated_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Kept.__init__, "__defaults__", (1,))
    talks, choose = by_messages()
    ran = against(choose, "--concurrency", "1", "--requests", "1", "--turns", "3", "--solo", "99")
    assert (ran.result.solo, ran.result.tally.unjudged) == (Solo(3, 3, ()), 3)
    assert talks[3:] == [talk for talk in talks[:3] for _ in range(2)]


def test_a_talk_goes_on_from_the_attempt_that_was_answered() -> None:
    talks, choose = by_messages(late=1)
    words = ("--concurrency", "1", "--requests", "1", "--turns", "2", "--retry", "1:0.5")
    ran = against(choose, *words, "--leave", "50%:patience:2", "--solo", "9", "--seed", "9")
    done = [row.index for row in ran.result.rows if row.success]
    ordinary = [row.index for row in ran.result.rows if row.success and row.client is None]
    assert (done, ordinary) == ([1, 2], [2])
    assert ran.result.solo == Solo(1, 1, ())
    assert talks[2:] == [talks[2]] * 3


# -- retries ---------------------------------------------------------------------------------------


def slow_until(number: int, seconds: float) -> Any:
    """The first so many requests are answered after so long, later ones at once."""
    numbers = itertools.count(1)

    late = after(seconds, head(EVENTS, b"Connection: close") + stream_answer())

    def choose(asked: Asked) -> Attack | None:
        counts = asked.body is not None and asked.body.get("max_tokens") == 64  # no probe
        return late if counts and next(numbers) <= number else None

    return choose


PATIENT = ("--concurrency", "1", "--requests", "1", "--leave", "100%:patience:2")


def by_attempt(ran: Ran) -> list[tuple[int, int, str]]:
    return [(row.index, row.attempt, row.fate.value) for row in ran.result.rows]


def test_who_is_out_of_patience_asks_again_and_is_felt_from_the_first_start() -> None:
    ran = against(slow_until(2, 9.0), *PATIENT, "--retry", "3:0.5")
    assert by_attempt(ran) == [(0, 0, "left"), (1, 1, "left"), (2, 2, "complete")]
    first, second, third = ran.result.rows
    assert second.intended == pytest.approx((first.ended or 0) + 0.5)
    assert (second.wanted, third.wanted) == (first.intended, first.intended)
    assert {row.prompt_hash for row in ran.result.rows} == {first.prompt_hash}
    attempts = {each.name: each for each in ran.result.strata if each.kind == "attempt"}
    felt = attempts["attempt 3"].metrics["ttft@first"].most
    assert felt == pytest.approx(2 * 2.5, abs=0.01)
    books = ran.result.summary.books
    assert (books.scheduled, books.sent, books.succeeded, books.failed) == (3, 3, 1, 0)


def test_attempts_are_those_of_clients_who_ask_again() -> None:
    rows = [row(0, 0.0), row(2, 1.0, client="leave patience")]
    rows += [row(3, 2.0, client="leave patience", attempt=1, wanted=1.0)]
    assert [each.books.sent for each in strata(rows, rows)] == [1, 1]
    assert strata(rows[:2], rows[:2]) == ()


def test_nobody_asks_more_often_than_said() -> None:
    ran = against(slow_until(99, 9.0), *PATIENT, "--retry", "2:0.5")
    assert by_attempt(ran) == [(0, 0, "left"), (1, 1, "left"), (2, 2, "left")]


def test_after_the_first_byte_nobody_asks_again() -> None:
    async def headers_only(stream: trio.SocketStream) -> None:
        await stream.send_all(head(EVENTS, b"Connection: close"))
        await trio.sleep(9)

    ran = against(lambda asked: headers_only if asked.streams else None, *PATIENT, "--retry", "3")
    assert by_attempt(ran) == [(0, 0, "left")]


def test_a_session_goes_on_from_a_retry() -> None:
    words = ("--turns", "2", "--retry", "1:0.5")
    ran = against(slow_until(1, 9.0), *PATIENT, *words)
    assert by_attempt(ran) == [(0, 0, "left"), (1, 1, "complete"), (2, 0, "complete")]


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--think", "2"), "--think is the time between turns"),
        (("--turns", "3", "--api", "completions"), "turns are for --api chat"),
        (("--turns", "500"), "at most 100 turns"),
        (("--turns", "3", "--think", "soon"), "--think soon: expected seconds"),
        (("--retry", "2"), "--retry is for clients whose patience ends"),
        (("--retry", "99", "--leave", "9%:patience:2"), "--retry 99: expected TIMES:SECONDS"),
    ],
)
def test_what_makes_no_sense_is_one_line(words: tuple[str, ...], why: str) -> None:
    with pytest.raises(UsageError, match=why):
        setup("http://h", "--rate", "1", "--requests", "1", *words)


def test_max_tokens_total_counts_whole_sessions() -> None:
    """The first turn costs 20, the second at most 40: its prompt repeats both."""
    words = (
        "--input-tokens",
        "10",
        "--output-tokens",
        "10",
        "--turns",
        "2",
        "--tokenizer",
        "words",
    )
    made = setup("http://h", "--rate", "1", "--requests", "9", *words, "--max-tokens-total", "110")
    assert made.limits.index == 1


def test_the_live_line_does_not_say_of_how_many_where_nobody_knows() -> None:
    file = io.StringIO()

    class Playing:
        sent, in_flight = 3, 1

        def interrupt(self) -> None: ...

    async def shown() -> None:
        with trio.move_on_after(0.1):
            await show(Playing(), Open((0.0, 1.0), 2.0), file, a_unit=3)

    trio.run(shown, clock=trio.testing.MockClock(autojump_threshold=0))
    assert "3 sent" in file.getvalue()
