"""Who played: a lost worker is named, counted, and reason enough not to trust the run."""

from __future__ import annotations

import json

import pytest

from loadgen import archive, console
from loadgen.crew import Crew, Member, apart, tail, worst
from loadgen.looking import Tally
from loadgen.reload import loads
from loadgen.result import Ran, Result, Target, result_of
from loadgen.summary import Window
from tests.loadgen.rows import row

FINE = Member(0, "pid 7", 50, 50, lag=0.001, late=0.0004)
DEAD = Member(1, "pid 8\x1b[2J", 50, 12, 50, "killed by SIGKILL")


def result(crew: Crew | None, *, complete: bool = True) -> Result:
    ran = Ran(
        target=Target("http://h/v1", "chat", "m"),
        load={"kind": "open", "rate": 10.0},
        rows=[row(2 * n, n / 10, ttft=0.1) for n in range(50)],
        tally=Tally(50),
        gates=("wire",),
        window=Window(0.0, 5.0),
        lags=(0.001,) * 200,
        complete=complete,
        steady=True,
        crew=crew,
    )
    return result_of(ran, [], 0, "0")


def test_a_lost_worker_is_a_reason_and_exit_3() -> None:
    found = result(Crew((FINE, DEAD), (0.0, 0.0)))
    (doubt,) = found.doubts
    assert doubt.reason == "worker_lost"
    assert "worker 1" in doubt.detail
    assert "SIGKILL; 50 requests are in no figure" in doubt.detail
    assert (found.exit, found.complete, found.valid) == (3, False, False)


def test_with_all_workers_there_is_nothing_to_doubt() -> None:
    found = result(Crew((FINE, FINE), (0.0, 0.0)))
    assert (found.doubts, found.exit, found.complete) == ((), 0, True)


def test_an_interruption_is_told_apart_from_a_loss() -> None:
    both = result(Crew((FINE, DEAD)), complete=False)
    assert [each.reason for each in both.doubts] == ["worker_lost", "interrupted"]


def test_the_report_names_the_lost_and_harms_no_terminal() -> None:
    text = console.render(result(Crew((FINE, DEAD), (0.001, 0.004))))
    assert "2 workers, starts 1.00 to 4.00 ms apart, the slowest timer p99 1.00 ms late" in text
    assert "lost: worker 1 (pid 8" in text
    assert "50 of 50 requests are in no figure, at least 12 were sent" in text
    assert "\x1b" not in text


def test_the_workers_come_back_from_a_stored_run() -> None:
    made = result(Crew((FINE, DEAD), (0.0, 0.25)))
    text = "".join(archive.dumps([made], "1"))
    workers = json.loads(text)["workers"]
    assert (workers["count"], workers["lost"], workers["missing"]) == (2, 1, 50)
    assert [each["alive"] for each in workers["each"]] == [True, False]
    (back,) = loads(text, "run.json")
    assert back == made
    assert json.loads("".join(archive.dumps([result(None)], "1")))["workers"] is None


@pytest.mark.parametrize(
    ("starts", "expected"),
    [
        ([], None),
        ([(0.0, 0.0)], (0.0, 0.0)),
        ([(0.0, 0.1)], (0.0, 0.1)),
        ([(0.0, 0.0), (0.25, 0.25), (0.1, 0.1)], (0.25, 0.25)),
        ([(0.0, 0.0), (-0.1, 0.4)], (0.0, 0.5)),
        ([(0.0, 0.1), (0.3, 0.5)], (0.2, 0.5)),
    ],
)
def test_starts_are_as_far_apart_as_the_clocks_can_tell(
    starts: list[tuple[float, float]], expected: tuple[float, float] | None
) -> None:
    found = apart(starts)
    assert found == (None if expected is None else pytest.approx(expected))


def test_the_worker_that_cannot_keep_up_is_not_averaged_away() -> None:
    good, bad = [0.001] * 5000, [0.001] * 90 + [0.5] * 10
    assert worst([good, bad, good]) is bad
    assert worst([good, [0.7], good]) == [0.7]
    assert worst([]) == ()
    assert (tail([0.1] * 99), tail([])) == (None, None)


def test_what_is_not_known_of_a_worker_stays_unknown() -> None:
    crew = Crew((Member(0, "not started", None, 3, 3, "killed"),), None)
    text = "".join(archive.dumps([result(crew)], "1"))
    (back,) = loads(text, "run.json")
    assert back.crew == crew
    assert "killed; 3 requests are in no figure, at least 3 were sent" in console.render(back)
