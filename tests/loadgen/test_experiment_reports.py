"""Reports of experiments against loads made by hand: every figure has its closed form."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from conformance.capture import Capture, Layer, Read
from loadgen.crosstalk import Solo
from loadgen.experiments.figures import Shot, pooled, throughput, took
from loadgen.experiments.leavers import back_after, hang_ups, leaks
from loadgen.experiments.readers import absorbed, buffers, slow_readers
from loadgen.experiments.streams import broke, joiners, many_streams, overlap
from loadgen.experiments.table import Table
from loadgen.measure import Row
from loadgen.outcome import Fate
from tests.loadgen.rows import failed, row, unsent
from tests.loadgen.shots import level, shot


def line(table: Table, number: int) -> Mapping[str, Any]:
    """Every column of the table has a place in the line, and no other has."""
    assert set(table.rows[number]) <= {column.name for column in table.columns}
    return table.rows[number]


def streams(count: int, **members: float) -> list[Row]:
    return [row(index, 0.0, **members) for index in range(count)]  # type: ignore[arg-type]


# -- overlap ---------------------------------------------------------------------------------------


def at_once(n: int, gap: float, solo: Solo | None = None, round: int = 0) -> Shot:
    rows = streams(n, ttft=0.1, chunks=101, gap=gap)
    return shot("at once", rows, n=n, round=round, solo=solo)


def test_overlap_has_a_line_for_each_number_with_its_throughput_and_gain() -> None:
    table = overlap([at_once(1, 0.01), at_once(4, 0.02), at_once(1, 0.01, round=1)], {})
    one, four = line(table, 0), line(table, 1)
    assert one["tokens-s"] == pytest.approx(101 / 1.1)
    assert four["tokens-s"] == pytest.approx(404 / 2.1)
    assert four["gain"] == pytest.approx((404 / 2.1) / (101 / 1.1))
    assert (four["gap-p50"], four["ttft-p50"]) == (pytest.approx(0.02), pytest.approx(0.1))
    assert one["gap-p99"] == pytest.approx(0.01)
    assert (four["tokens"], four["identical"], four["differ"]) == (101, None, None)


def test_identity_counts_only_what_repeats_itself_alone() -> None:
    found = [
        at_once(2, 0.01, Solo(asked=2, repeats=2, differs=())),
        at_once(2, 0.01, Solo(asked=2, repeats=1, differs=(0,)), round=1),
        at_once(4, 0.01, Solo(asked=4, repeats=0, differs=())),
    ]
    table = overlap(found, {})
    assert (line(table, 0)["identical"], line(table, 0)["differ"]) == ("2 of 3", 1)
    assert line(table, 1)["identical"] == "none of 4 repeats itself"
    assert line(table, 1)["differ"] is None


def test_a_percentile_of_too_few_gaps_is_none_and_not_their_worst() -> None:
    assert pooled([1.0] * 99, 0.99) is None
    assert pooled([1.0] * 100, 0.99) == 1.0
    assert pooled([], 0.5) is None


def test_nothing_is_said_of_tokens_that_nobody_counted() -> None:
    assert throughput([row(0, 0.0), row(1, 0.0, completion_tokens=None)]) is None
    assert throughput([]) is None
    assert took([row(0, 0.0), failed(1, 0.0)]) is None


# -- others come -----------------------------------------------------------------------------------


def test_gaps_of_running_streams_are_told_apart_by_who_waits_at_their_end() -> None:
    times = (1.0, 1.1, 1.2, 2.0, 2.1, 2.2)  # the joiner is sent at 1.25 and has its token at 1.9
    running = row(0, 0.0, token_times=times)
    joiner = row(1, 1.25, ttft=0.65, client="joiner")
    table = joiners([shot("control", [row(0, 0.0)]), shot("joined", [running, joiner])], {})
    before, during, after = (line(table, n) for n in (1, 2, 3))
    assert before["gap-max"] == pytest.approx(0.1)
    assert during["gap-max"] == pytest.approx(0.8)
    assert after["gap-max"] == pytest.approx(0.1)
    assert (during["ttft-p50"], during["lost"]) == (pytest.approx(0.65), 0)
    assert line(table, 0)["running streams"] == "alone"


def test_joiners_that_never_came_leave_no_gaps_to_tell() -> None:
    lost = failed(1, 1.25)
    table = joiners([shot("control", [row(0, 0.0)]), shot("joined", [row(0, 0.0), lost])], {})
    assert [line(table, n)["gap-p50"] for n in (1, 2, 3)] == [None, None, None]


# -- slow readers ----------------------------------------------------------------------------------


def slow_shots(factor: float, lost: int = 0) -> list[Shot]:
    found = []
    for round in range(2):
        pace = 0.01 * (1 + round)  # the machine is slower in the second round: it cancels out
        healthy = streams(7, ttft=0.0, chunks=101, gap=pace)
        found.append(shot("control", healthy, round=round))
        held = streams(7 - lost, ttft=0.0, chunks=101, gap=pace * factor)
        held += [failed(7 + n, 0.0, Fate.STALLED) for n in range(lost)]
        found.append(shot("slow", [*held, row(99, 0.0, client="reader")], round=round))
    return found


def test_slow_readers_are_held_against_the_control_of_their_own_round() -> None:
    table = slow_readers(slow_shots(1.25), {})
    control, slow = line(table, 0), line(table, 1)
    assert (control["longer"], slow["longer"]) == (1.0, pytest.approx(1.25))
    assert (control["took"], slow["took"]) == (pytest.approx(1.5), pytest.approx(1.875))
    assert slow["gap-longer"] == pytest.approx(1.25)
    assert (slow["whole"], slow["lost"], slow["its end"]) == ("14 of 14", 0, "complete")


def test_a_healthy_stream_that_is_lost_is_counted_and_takes_no_time() -> None:
    slow = line(slow_readers(slow_shots(1.0, lost=1), {}), 1)
    assert (slow["lost"], slow["whole"], slow["took"], slow["longer"]) == (
        2,
        "12 of 14",
        None,
        None,
    )


# -- hang-ups --------------------------------------------------------------------------------------


def gone(index: int, at: float, chunks: int = 3, client: str = "leaver") -> Row:
    times = tuple(at - 0.3 + n * 0.1 for n in range(chunks))
    members: dict[str, Any] = {
        "fate": Fate.LEFT,
        "ended": at,
        "client": client,
        "token_times": times,
    }
    return row(index, at - 0.5, completion_tokens=None, last_event=None, **members)


NEIGHBOUR = row(0, 0.0, ttft=0.5, chunks=51, gap=0.1)  # runs until 5.5


@pytest.mark.parametrize(
    ("levels", "back"),
    [
        ([(0.0, 0), (1.0, 1), (1.9, 2), (2.1, 2), (2.3, 1), (3.0, 1)], 0.3),
        ([(0.0, 0), (1.9, 2), (2.1, 1), (2.3, 2), (3.0, 1)], 1.0),  # came back and went again
        ([(0.0, 0), (1.9, 2), (2.1, 2), (3.0, 2), (5.0, 2)], False),
        ([(0.0, 1), (1.9, 3), (2.1, 2), (3.0, 2)], 0.1),  # a request of somebody else's all along
        ([(0.0, 0), (1.9, 2)], None),  # nobody looked afterwards
        ([(0.0, 0), (1.9, 2), (5.4, 2), (5.6, 1)], None),  # the neighbour was just going
        ([], None),
    ],
)
def test_the_work_is_over_when_the_gauges_show_nobody_but_those_who_are_there(
    levels: Sequence[tuple[float, float]], back: float | bool | None
) -> None:
    found = back_after([NEIGHBOUR, gone(1, 2.0)], [level(at, n) for at, n in levels])
    assert found == (pytest.approx(back) if isinstance(back, float) else back)
    assert type(found) is type(back)


def test_waiting_requests_count_as_work_too() -> None:
    samples = [level(0.0, 0), level(2.1, 1, 1), level(3.0, 1, 1)]
    assert back_after([NEIGHBOUR, gone(1, 2.0)], samples) is False


def hang_up_shot(**members: float) -> Shot:
    samples = [level(0.0, 0), level(2.1, 2), level(2.4, 1)]
    rows = [NEIGHBOUR, gone(1, 1.9), gone(2, 2.0), row(3, 3.0, ttft=0.2, client="probe")]
    return shot("mid-decode", rows, how="rst", samples=samples, **members)  # type: ignore[arg-type]


def test_a_line_of_hang_ups_says_when_the_work_was_over_and_what_it_cost() -> None:
    found = line(hang_ups([hang_up_shot(tokens=51 + 5 + 20)], {}), 0)
    assert (found["they hang up"], found["left"], found["got"]) == ("mid-decode rst", "2 of 2", 3)
    assert found["back"] == pytest.approx(0.4)
    assert (found["stuck"], found["lost"], found["made"]) == (0, 0, 10)
    assert (found["probe"], found["stall"]) == (pytest.approx(0.2), pytest.approx(0.1))


def test_rounds_that_did_not_come_back_are_counted_and_have_no_time() -> None:
    stuck = shot("mid-decode", [NEIGHBOUR, gone(1, 2.0)], how="rst", round=1,
                 samples=[level(0.0, 0), level(2.1, 2), level(3.0, 2)])  # fmt: skip
    found = line(hang_ups([hang_up_shot(), stuck], {}), 0)
    assert (found["stuck"], found["back"]) == (1, pytest.approx(0.4))
    assert (
        "back" not in line(hang_ups([stuck], {}), 0)
        or line(hang_ups([stuck], {}), 0)["back"] is None
    )


def test_without_gauges_the_table_says_where_to_look_instead() -> None:
    rows = [NEIGHBOUR, gone(1, 2.0)]
    table = hang_ups([shot("nobody leaves", [NEIGHBOUR]), shot("mid-decode", rows, how="fin")], {})
    assert line(table, 1).get("stuck") is None
    assert "by contrast" in table.notes[0]


def test_a_queue_that_nobody_stood_in_is_said() -> None:
    rows = [NEIGHBOUR, gone(1, 2.0)]
    quiet = shot("waiting", rows, how="fin", samples=[level(0.0, 0), level(2.5, 1)])
    assert "nobody had to wait" in hang_ups([quiet], {}).notes[-1]
    queued = shot("waiting", rows, how="fin", samples=[level(0.0, 0), level(1.9, 1, 1)])
    assert len(hang_ups([queued], {}).notes) == 1


# -- leaks -----------------------------------------------------------------------------------------


def test_leaks_hold_the_server_after_the_mixture_against_the_server_before() -> None:
    alone = [row(0, 0.0, ttft=0.1, chunks=2, gap=0.1)]
    slower = [row(0, 0.0, ttft=0.2, chunks=2, gap=0.2)]
    mixed = [
        row(0, 0.0),
        row(1, 0.0),
        failed(2, 0.0),
        gone(3, 2.0),
        gone(4, 2.0, client="slow leaver"),
    ]
    shots = [
        shot("before", alone, samples=[level(0.0, 9, blocks=0.9), level(1.0, 0, blocks=0.1)]),
        shot("mixed", mixed),
        shot("after", slower, samples=[level(9.0, 2, 1, blocks=0.3)]),
    ]
    table = leaks(shots, {})
    assert [each["clients"] for each in table.rows] == [
        "alone, before", "read to the end", "leaver", "slow leaver", "alone, after",
    ]  # fmt: skip
    readers, after = line(table, 1), line(table, 4)
    assert (readers["sent"], readers["whole"], readers["lost"]) == (3, 2, 1)
    assert (line(table, 2)["left"], line(table, 2)["lost"]) == (1, None)
    assert (after["more"], after["blocks-more"]) == (3, pytest.approx(0.2))
    assert after["slower"] == pytest.approx(2.0)


def test_an_answer_that_repeated_itself_before_and_is_another_after_is_counted() -> None:
    def alone(load: str, *answers: str | None) -> Shot:
        return shot(load, [row(n, 0.0, answer_hash=each) for n, each in enumerate(answers)])

    shots = [alone("control", "a", "b", "c", None), alone("before", "a", "b", "x", "d")]
    assert line(leaks([*shots, alone("after", "a", "b", "y", "z")], {}), 1)["changed"] == 0
    assert line(leaks([*shots, alone("after", "a", "h", "c", "d")], {}), 1)["changed"] == 1
    assert line(leaks([*shots[1:], alone("after", "q")], {}), 1)["changed"] is None


# -- many streams ----------------------------------------------------------------------------------

MOST = {"ttft": 10, "gap": 5}


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (shot("at once", streams(2), n=2), None),
        (
            shot("at once", [row(0, 0.0), replace(failed(1, 0.0), status=503, told=b"full")], n=2),
            "the server refused 1 of 2 (503 full)",
        ),
        (
            shot("at once", [row(0, 0.0), replace(failed(1, 0.0, Fate.STALLED), detail="x")], n=2),
            "1 of 2 stalled (x)",
        ),
        (shot("at once", streams(2, ttft=11.0), n=2), "a first token took 11.0 s (ttft 10)"),
        (shot("at once", streams(2, gap=6.0), n=2), "a stream stood still for 6.0 s (gap 5)"),
        (shot("at once", streams(2, late=0.6), n=2), "our own client: sends were up to 0.6 s late"),
        (
            shot("at once", [row(0, 0.0), unsent(1, 0.0)], n=2),
            "our own client: 1 of 2 were not sent",
        ),
        (
            shot("at once", streams(2), n=2, lags=[0.5] * 100, described={"clock": "user"}),
            "our own client: the client's timer",
        ),
        (shot("at once", streams(2), n=2, lags=[0.5] * 100, described={"clock": "kernel"}), None),
    ],
)
def test_what_broke_is_told_in_words(made: Shot, expected: str | None) -> None:
    found = broke(made, MOST)
    assert (found or "").startswith(expected or "")
    assert (found is None) == (expected is None)
    assert line(many_streams([made], MOST), 0)["broke"] == (found or "nothing")


@pytest.mark.parametrize(
    ("limit", "why"),
    [(64, "and more were not asked for (--streams N)"), (2, "and more files than that may not be")],
)
def test_what_nothing_broke_says_why_it_went_no_further(limit: int, why: str) -> None:
    whole = shot("at once", streams(2), n=2, described={"streams_at_most": limit})
    (note,) = many_streams([shot("at once", streams(1), n=1), whole], MOST).notes
    assert note.startswith(f"nothing broke up to 2 streams, {why}")
    lost = shot("at once", [row(0, 0.0), failed(1, 0.0)], n=2)
    assert many_streams([lost], MOST).notes == ()
    late = [shot("at once", streams(n), n=n, lags=[0.5] * 100) for n in (1, 2)]
    (note,) = many_streams([*late, lost], MOST).notes
    assert note.startswith("from 1 streams on our own client was late (the client's timer woke")
    assert many_streams([], MOST).notes == ()


def test_the_line_of_many_streams_tells_refusals_from_other_failures() -> None:
    rows = [row(0, 0.0), failed(1, 0.0), failed(2, 0.0, Fate.TRUNCATED)]
    found = line(many_streams([shot("at once", rows, n=3)], MOST), 0)
    assert (found["whole"], found["refused"], found["failed"]) == (1, 1, 1)


# -- buffers ---------------------------------------------------------------------------------------


def capture(*reads: tuple[int, float]) -> Capture:
    made = tuple(Read(end, at, True) for end, at in reads)
    return Capture(b"x" * reads[-1][0], Layer.WIRE, reads=made)


def test_absorbed_is_what_comes_at_once_when_reading_begins() -> None:
    held = capture((100, 50.0), (900, 50.1), (1000, 52.0))
    assert absorbed(held, 10.0) == 900  # a twentieth of ten seconds
    assert absorbed(held, 100.0) == 1000
    assert absorbed(held, None) is None


def test_buffers_say_whether_the_server_stopped() -> None:
    control = shot("control", [row(0, 0.0, ttft=1.0, chunks=10, gap=1.0)],
                   captures={0: capture((1000, 1.0))})  # fmt: skip
    counted = ((0.0, 5.0), (40.0, 9.0), (60.0, 30.0))  # it goes on once it is read
    made = [level(at, 1, generated_tokens=tokens) for at, tokens in counted]
    reader = row(0, 0.0, client="reader", completion_tokens=10)
    stopped = shot("never", [reader], samples=made, captures={0: capture((300, 50.0), (900, 53.0))})
    found = line(buffers([control, stopped], {}), 1)
    assert (found["absorbed"], found["bytes"], found["share"]) == (300, 900, pytest.approx(1 / 3))
    assert (found["made"], found["stopped"]) == (4, "yes")
    (note,) = buffers([control, stopped], {}).notes
    assert note == "the server stopped: while nobody read, 300 bytes were under way"
    busy = [*made[:2], level(49.5, 1, generated_tokens=12.0)]
    slow = row(0, 0.0, client="reader", completion_tokens=20)
    going = shot("never", [slow], samples=busy, captures={0: capture((300, 50.0), (900, 53.0))})
    assert line(buffers([control, going], {}), 1)["stopped"] == "not yet"
    assert "still at work when reading began" in buffers([control, going], {}).notes[0]
    late = [*made[:2], level(49.0, 1, generated_tokens=15.0)]
    whole = shot("never", [reader], samples=late, captures={0: capture((900, 50.0))})
    assert line(buffers([control, whole], {}), 1)["stopped"] == "never"
    assert (
        buffers([control, whole], {})
        .notes[0]
        .startswith(
            "the server never stopped: the whole answer, 900 bytes, was made while nobody read"
        )
    )


@pytest.mark.parametrize(
    ("reads", "stopped"),
    [(((900, 50.0), (1000, 50.2)), "never"), (((900, 50.0), (1000, 53.0)), "yes")],
)
def test_without_a_counter_the_time_that_the_rest_takes_says_whether_the_server_stopped(
    reads: Sequence[tuple[int, float]], stopped: str
) -> None:
    control = shot("control", [row(0, 0.0, ttft=1.0, chunks=10, gap=1.0)],
                   captures={0: capture((1000, 1.0))})  # fmt: skip
    reader = row(0, 0.0, client="reader")
    held = shot("never", [reader], captures={0: capture(*reads)})
    table = buffers([control, held], {})
    assert line(table, 1)["stopped"] == stopped
    assert table.notes[0].endswith("by contrast, as it shows no counter")
    lost = shot("never", [failed(0, 0.0)], captures={0: capture(*reads)})
    assert line(buffers([control, lost], {}), 1).get("stopped") is None
