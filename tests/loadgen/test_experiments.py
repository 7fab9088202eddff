"""Experiments on the reference server, over real sockets and a virtual clock: what is right has its
closed form, and each way of not minding a client that leaves or does not read shows in a line."""

from __future__ import annotations

from typing import Any

import pytest

from loadgen.experiments.outcome import Outcome
from loadgen.experiments.table import Held
from tests.loadgen.experimenting import STEP, experimented


def lines(made: Outcome) -> dict[str, dict[str, Any]]:
    """By the first column."""
    first = made.table.columns[0].name
    return {str(row[first]): dict(row) for row in made.table.rows}


def missed(made: Outcome) -> set[str]:
    return {each.bound.column for each in made.verdicts if each.held is Held.NO}


def test_overlap_of_a_server_that_steps_evenly_has_its_closed_form() -> None:
    words = ("--streams", "4", "--repeat", "1", "--output-tokens", "16", "--set", "solo=1")
    made = experimented("overlap", *words)
    assert (made.exit, made.complete) == (0, True)
    table = lines(made)
    assert list(table) == ["1", "2", "4"]
    for n, found in table.items():
        assert found["gap-p50"] == pytest.approx(STEP)
        assert found["tokens-s"] == pytest.approx(int(n) / STEP)
        assert (found["identical"], found["differ"]) == ("1 of 1", 0)


@pytest.mark.slow
def test_long_prompts_and_joiners_come_while_the_others_run() -> None:
    sizes = ("--streams", "2", "--repeat", "1", "--output-tokens", "40")
    for name, prompt in (("joiners", None), ("long-prompt", 4000)):
        made = experimented(name, *sizes)
        assert made.exit == 0
        while_ = lines(made)["while one waits"]
        assert while_["ttft-p50"] == pytest.approx(STEP, abs=STEP)
        if prompt is not None:
            assert isinstance(while_["prompt"], float | int)
            assert 2000 < while_["prompt"] < prompt
        assert lines(made)["before they come"]["gap-max"] == pytest.approx(STEP)


@pytest.mark.slow
def test_streams_are_doubled_until_the_server_refuses() -> None:
    made = experimented("many-streams", "--output-tokens", "8", batch=4, waiting=2)
    table = lines(made)
    assert list(table) == ["1", "2", "4"]  # four come before the first of them is seated
    assert [row["broke"] for row in list(table.values())[:-1]] == ["nothing"] * 2
    assert str(table["4"]["broke"]).startswith("the server refused 2 of 4 (429 ")
    assert (made.exit, made.loads[-1]["tries"]) == (0, 3)


@pytest.mark.slow
def test_a_client_that_never_reads_absorbs_the_whole_of_a_small_answer() -> None:
    made = experimented("buffers", "--output-tokens", "60")
    never = made.table.rows[1]
    assert (never["share"], never["tokens"], never["made"]) == (1.0, 60, 60)
    assert never["stopped"] == "never"
    assert made.table.notes[0].startswith("the server never stopped: the whole answer, ")


# -- hang-ups --------------------------------------------------------------------------------------

SIZES = ("--repeat", "1", "--streams", "2", "--output-tokens", "200", "--set", "watch=2")


def hung_up(*loads: str, faults: tuple[str, ...] = ()) -> Outcome:
    return experimented("hang-ups", *SIZES, loads=loads, faults=faults)


@pytest.mark.slow
def test_a_server_that_stops_at_once_is_rid_of_the_work_in_two_looks_at_every_moment() -> None:
    words = ("--repeat", "1", "--streams", "2", "--output-tokens", "40", "--set", "crowd=16")
    made = experimented("hang-ups", *words)
    assert (made.exit, missed(made)) == (0, set())
    table = lines(made)
    assert len(table) == 12
    for name, found in list(table.items())[2:]:
        assert (found["left"], found["stuck"], found["lost"]) == ("2 of 2", 0, 0), name
        assert isinstance(found["back"], float)
        assert found["back"] < 1.0
        assert found["probe"] is None or found["probe"] == pytest.approx(STEP, abs=STEP)
    assert table["mid-decode fin"]["made"] == table["mid-decode rst"]["made"] == 9
    assert table["nobody leaves"]["made"] == 40
    assert len(made.table.notes) == 1  # somebody waited


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "load", "late"),
    [
        ("abort.fin:leak", "mid-decode", ["fin", "rst"]),
        ("abort.fin:only-fin", "mid-decode", ["fin"]),
        ("abort.rst:only-rst", "mid-decode", ["rst"]),
        ("abort.queued", "waiting", ["fin", "rst"]),
        ("abort.rst", "slow reader", ["fin", "rst"]),
    ],
)
def test_work_that_goes_on_without_its_client_shows_in_the_line_of_its_moment(
    fault: str, load: str, late: list[str]
) -> None:
    made = hung_up(load, faults=(fault,))
    table = lines(made)
    assert [how for how in ("fin", "rst") if is_late(table[f"{load} {how}"])] == late
    assert missed(made) & {"stuck", "back"}
    assert made.exit == 1


def is_late(line: dict[str, Any]) -> bool:
    """More than two seconds, or not as long as it was watched."""
    back = line["back"]
    return bool(line["stuck"]) or (isinstance(back, float) and back >= 2)


@pytest.mark.slow
def test_neighbours_that_end_with_those_who_leave_are_lost() -> None:
    made = hung_up("mid-decode", faults=("abort.neighbours",))
    assert lines(made)["mid-decode fin"]["lost"] == 2
    assert (missed(made), made.exit) == ({"lost"}, 1)


@pytest.mark.slow
def test_without_gauges_a_server_that_serves_one_at_a_time_shows_it_in_the_probe() -> None:
    loads = ("nobody leaves", "mid-decode")
    words = (*SIZES, "--metrics", "none", "--set", "neighbours=1")
    clean = experimented("hang-ups", *words, batch=1, loads=loads)
    faulty = experimented("hang-ups", *words, batch=1, loads=loads, faults=("abort.fin",))
    probes = [lines(made)["mid-decode rst"]["probe"] for made in (clean, faulty)]
    assert all(isinstance(each, float) for each in probes)
    assert probes[0] < probes[1]
    assert "by contrast" in clean.table.notes[0]


# -- slow readers and leaks ------------------------------------------------------------------------


@pytest.mark.slow
def test_all_who_wait_for_the_one_that_does_not_read_take_as_long() -> None:
    sizes = ("--repeat", "1", "--set", "streams=3")
    clean = experimented("slow-readers", *sizes)
    assert clean.exit == 0
    assert clean.table.rows[1]["longer"] == pytest.approx(1.0, abs=0.01)
    faulty = experimented("slow-readers", *sizes, faults=("slow.others-unharmed",))
    assert (missed(faulty), faulty.exit) == ({"longer"}, 1)
    longer = faulty.table.rows[1]["longer"]
    assert isinstance(longer, float)
    assert longer > 2


LEAKS = ("--set", "requests=40", "--set", "probes=3", "--streams", "8")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "columns"),
    [
        (None, set()),
        ("abort.storm:dead", {"lost"}),
        ("abort.storm:hole", {"changed"}),
        ("abort.fin:leak", {"more", "lost"}),
    ],
)
def test_leaks_are_what_the_server_does_not_give_back(fault: str | None, columns: set[str]) -> None:
    made = experimented("leaks", *LEAKS, "--timeout", "5", faults=(fault,) if fault else ())
    assert missed(made) >= columns
    assert made.exit == (1 if columns else 0)
