"""A load by several workers is the load by one process; who of them is lost is told."""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator, Callable

import pytest
import trio

from conformance.errors import TargetError
from loadgen import sharded
from loadgen.crosstalk import Solo
from loadgen.frames import Failed, Frame, Go, Order, Plan, Ready, Snapshot
from loadgen.interrupting import Shelter
from loadgen.outcome import Fate
from loadgen.preflight import Endpoint
from loadgen.shard import run_shard
from loadgen.sharded import plans_of
from loadgen.team import team
from tests.conformance.attacks import says
from tests.conformance.hostile_server import EVENTS, Asked, Attack, head, stream_answer
from tests.loadgen import playing
from tests.loadgen.playing import Ran
from tests.loadgen.test_crosstalk import MARKS
from tests.loadgen.test_ending_early import signalling
from tests.loadgen.test_run import interrupt, slow
from tests.loadgen.test_sessions import by_messages
from tests.loadgen.working import Dying, Here, Make, Mute, Workers

LOAD = ("--rate", "10", "--requests", "40", "--arrivals", "poisson", "--input-tokens", "5..9")


def divided(
    patch: pytest.MonkeyPatch,
    choose: Callable[[Asked], Attack | None],
    *words: str,
    kinds: tuple[Make, ...] = (Here, Here),
    meanwhile: playing.Meanwhile | None = None,
    shelter: Shelter | None = None,
) -> tuple[Ran, Workers]:
    with patch.context() as within:
        workers = Workers(within)
        workers.play(within, *kinds)
        return playing.against(choose, *words, meanwhile=meanwhile, shelter=shelter), workers


def asked(ran: Ran) -> set[tuple[object, ...]]:
    """What was asked when, and what came of it."""
    start = ran.result.summary.window.start
    return {
        (row.index, round(row.intended - start, 6), row.prompt_hash, row.fate, row.turn, row.part)
        for row in ran.result.rows
    }


LOADS = {
    "open": LOAD,
    "with a bound": (*LOAD, "--max-requests", "17"),
    "clients that leave": (*LOAD, "--leave", "30%:time:0.01", "--read", "10%:rate:2000"),
    "sessions": ("--rate", "5", "--requests", "9", "--turns", "1..3", "--think", "0.5"),
    "nothing in time": ("--rate", "1", "--requests", "1"),
}


@pytest.mark.parametrize("workers", [2, 3])
@pytest.mark.parametrize("name", LOADS)
def test_workers_ask_what_one_process_asks_and_when(
    monkeypatch: pytest.MonkeyPatch, name: str, workers: int
) -> None:
    one = playing.against(slow(0.1), *LOADS[name])
    many, _ = divided(monkeypatch, slow(0.1), *LOADS[name], kinds=(Here,) * workers)
    assert asked(many) == asked(one)
    assert many.outcomes == one.outcomes
    assert many.result.summary.measured == one.result.summary.measured
    assert many.result.summary.window.seconds == pytest.approx(one.result.summary.window.seconds)
    crew = many.result.crew
    assert crew is not None
    assert sum(each.sent for each in crew.members) == one.result.summary.books.sent
    assert [each.place for each in crew.members] == [f"task {n}" for n in range(workers)]
    assert (crew.lost, many.result.exit) == ((), one.result.exit)


def test_a_closed_loop_is_divided_by_its_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    words = ("--concurrency", "5", "--requests", "31")
    ran, _ = divided(monkeypatch, slow(1.0), *words)
    assert sorted(row.index for row in ran.result.rows) == list(range(31))
    assert ran.outcomes == {"complete": 31}
    starts = sorted(row.intended for row in ran.result.rows)
    assert sum(at < 0.5 for at in starts) == 5


def test_an_answer_with_the_mark_of_another_worker_s_request_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Every answer says the mark of request 1: worker 0 has the even ones."""
    crossing = says(head(EVENTS, b"Connection: close") + stream_answer(f"so {MARKS[1]}"))
    words = ("--rate", "10", "--requests", "6", "--checks", "wire")

    def choose(asked: Asked) -> Attack | None:
        return crossing if asked.method == "POST" else None

    ran, _ = divided(monkeypatch, choose, *words)
    assert [(each.index, each.other) for each in ran.result.tally.crossed] == [
        (index, 1) for index in (0, 2, 3, 4, 5)
    ]
    assert ran.result.tally.judged == 6
    assert ran.result.failed == 5


def test_later_turns_are_asked_alone_whichever_worker_played_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    talks, choose = by_messages()
    words = ("--rate", "5", "--requests", "4", "--turns", "3", "--solo", "99")
    ran, _ = divided(monkeypatch, choose, *words)
    assert ran.result.solo == Solo(12, 12, ())
    assert {repr(talk) for talk in talks[12:]} == {repr(talk) for talk in talks[:12]}


@pytest.mark.parametrize(("kind", "why"), [(Dying, "killed by SIGKILL"), (Mute, "nothing for 5 s")])
def test_a_lost_worker_is_named_and_what_it_has_not_told_is_counted(
    monkeypatch: pytest.MonkeyPatch, kind: Make, why: str
) -> None:
    ran, workers = divided(monkeypatch, slow(0.1), *LOAD, kinds=(Here, kind, Here))
    assert ran.result.crew is not None
    (lost,) = ran.result.crew.lost
    assert (lost.number, lost.scheduled, lost.missing) == (1, 13, 13)
    assert why in str(lost.lost)
    assert workers.hands[1].ended
    books = ran.result.summary.books
    assert books.scheduled == books.sent + books.dropped + books.cancelled == 40 - 13
    assert {row.index % 3 for row in ran.result.rows} == {0, 2}
    assert [doubt.reason for doubt in ran.result.doubts] == ["worker_lost"]
    assert (ran.result.exit, ran.result.complete) == (3, False)


def test_with_no_worker_left_there_is_a_report_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ran, _ = divided(monkeypatch, slow(0.1), *LOAD, kinds=(Dying, Dying))
    assert (ran.result.rows, ran.result.exit) == ((), 3)
    assert ran.result.crew is not None
    assert ran.result.crew.missing == 40


def test_an_interruption_leaves_what_all_workers_had(monkeypatch: pytest.MonkeyPatch) -> None:
    words = ("--rate", "10", "--duration", "60")
    ran, _ = divided(monkeypatch, slow(1.0), *words, meanwhile=interrupt)
    books = ran.result.summary.books
    assert books.scheduled == books.sent + books.cancelled == 600
    assert books.of[Fate.LEFT] == 10
    assert books.of[Fate.COMPLETE] == books.sent - 10
    assert 35 <= books.of[Fate.COMPLETE] <= 40
    assert [doubt.reason for doubt in ran.result.doubts] == ["interrupted"]
    assert (ran.result.complete, ran.result.exit) == (False, 3)
    assert ran.took < 5.5


class Late(Here):
    """Never comes to be."""

    async def send(self, data: bytes) -> None:
        pass


@pytest.mark.parametrize("name", ["tally", "crew_of"])
def test_a_signal_after_the_load_loses_nothing_that_workers_told(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    signalling(monkeypatch, signal.SIGINT, name, sharded)
    with Shelter() as shelter, shelter.lifted():
        words = (*LOAD, "--solo", "2")
        result = divided(monkeypatch, slow(0.1), *words, shelter=shelter)[0].result
    assert (result.summary.books.succeeded, result.complete) == (40, True)
    assert (result.solo is None) == (name == "tally")


class Failing(Here):
    """Says why it cannot start."""

    async def send(self, data: bytes) -> None:
        self.emit(Failed("no room"))


@pytest.mark.parametrize(
    ("kind", "why"), [(Late, "worker 1 did not start within 60 s"), (Failing, "worker 1: no room")]
)
def test_without_all_workers_nothing_is_sent(
    monkeypatch: pytest.MonkeyPatch, kind: Make, why: str
) -> None:
    numbers: list[Asked] = []

    def choose(asked: Asked) -> Attack | None:
        numbers.append(asked)
        return None

    with pytest.raises(BaseExceptionGroup) as raised:
        divided(monkeypatch, choose, *LOAD, "--tokenizer", "words", kinds=(Here, kind))
    error: BaseException = raised.value
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    assert isinstance(error, TargetError)
    assert str(error) == why
    assert {each.method for each in numbers} == {"GET"}


def test_what_is_raised_beside_a_team_is_raised_as_it_is() -> None:
    async def main() -> None:
        async with team([]):
            raise TargetError("nobody")

    with pytest.raises(TargetError, match="nobody"):
        trio.run(main)


# -- one worker, without a team --------------------------------------------------------------------


def planned(*words: str) -> Plan:
    setup = playing.setup("http://127.0.0.1:9/v1", "--rate", "5", "--requests", "4", *words)
    return plans_of(setup, Endpoint("/v1/chat/completions", "m"), 1)[0]


async def orders(*said: Order) -> AsyncIterator[Order]:
    for each in said:
        yield each


def test_what_goes_wrong_in_a_worker_is_its_last_word_in_one_line() -> None:
    frames: list[Frame] = []
    broken = Go(float("nan"), "nobody's", 0.0)

    async def raises() -> AsyncIterator[Order]:
        yield broken
        raise KeyError("first\nsecond")

    run_shard(planned(), frames.append, raises, "here")
    assert isinstance(frames[0], Ready)
    (failed,) = [frame for frame in frames if isinstance(frame, Failed)]
    assert frames[-1] is failed
    assert failed.why.startswith("KeyError: 'first\\nsecond' (test_sharded.py:")


def test_a_worker_whose_orders_end_stops_without_a_word() -> None:
    frames: list[Frame] = []
    run_shard(planned("--duration", "100"), frames.append, lambda: orders(), "here")
    assert {type(frame) for frame in frames} <= {Ready, Snapshot}


def test_a_worker_to_whom_nobody_listens_ends() -> None:
    def emit(frame: Frame) -> None:
        raise BrokenPipeError

    run_shard(planned(), emit, lambda: orders(), "here")
