"""What gates an experiment, and how it is told: exit code, document, lines, table."""

from __future__ import annotations

import csv
import json
import math
from dataclasses import replace
from typing import Any

import pytest

from conformance.errors import UsageError
from loadgen.experiments.outcome import (
    Gates,
    Outcome,
    csv_lines,
    document,
    outcome_of,
    render,
)
from loadgen.experiments.spec import find
from loadgen.experiments.table import (
    Column,
    Held,
    Table,
    judged,
    known_columns,
    markdown,
    millis,
    parse_bound,
    ratio,
)
from tests.benchmarks.experiments import table_from
from tests.loadgen.rows import failed, row
from tests.loadgen.shots import shot

COLUMNS = (Column("streams", "how many", "requests"), millis("gap", "a gap"), ratio("gain", "more"))
TABLE = Table(
    COLUMNS,
    (
        {"streams": 1, "gap": 0.0105, "gain": 1.0},
        {"streams": 2, "gap": None, "gain": math.inf},
        {"streams": 4, "gap": 0.25},
    ),
    ("said below",),
)


def held(text: str) -> Held:
    (found,) = judged(TABLE, [parse_bound(text)])
    return found.held


def test_a_bound_counts_on_every_line_that_has_a_number_there() -> None:
    assert held("gap<300ms") is Held.YES
    assert held("gap<0.25s") is Held.NO
    assert held("gap<=250ms") is Held.YES
    assert held("gain<9") is Held.NO  # a number that never ends
    assert held("gap>10ms") is Held.YES
    (found,) = judged(TABLE, [parse_bound("gap<20ms")])
    assert found.where == ("4: 250.0 ms",)


def test_a_column_without_numbers_decides_nothing() -> None:
    empty = Table(COLUMNS, ({"streams": 1, "gap": None},))
    assert judged(empty, [parse_bound("gap<1s")])[0].held is Held.UNKNOWN


@pytest.mark.parametrize("text", ["gap", "gap<", "gap=3", "gap<3kg", "Gap<3", "gap<-3"])
def test_what_is_no_bound_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"expected COLUMN OP VALUE, e\.g\. gap-p99<50ms"):
        parse_bound(text)


def test_a_bound_on_a_column_that_is_not_there_names_those_that_are() -> None:
    with pytest.raises(UsageError, match="no column gab; there are gap, gain"):
        known_columns([parse_bound("gab<1s")], COLUMNS)


def test_a_table_for_a_readme_has_a_dash_for_what_nobody_knows() -> None:
    assert markdown(TABLE).splitlines() == [
        "| streams | gap, ms | gain, × |",
        "|---:|---:|---:|",
        "| 1 | 10.5 | 1.00 |",
        "| 2 | – | ∞ |",
        "| 4 | 250.0 | – |",
        "",
        "said below",
    ]


def test_csv_has_seconds_and_empty_cells() -> None:
    assert list(csv.reader(csv_lines(TABLE))) == [
        ["streams", "gap", "gain"], ["1", "0.0105", "1.0"], ["2", "", ""], ["4", "0.25", ""],
    ]  # fmt: skip


# -- what gates ------------------------------------------------------------------------------------


def outcome(*slo: str, lost: int = 0, complete: bool = True, **members: Any) -> Outcome:
    experiment = find("overlap")
    rows = [row(0, 0.0, gap=0.5), *(failed(1 + n, 0.0) for n in range(lost))]
    bounds = tuple(parse_bound(text) for text in slo)
    gates = Gates((), bounds, "1", most=1)
    shots = [shot("at once", rows, n=1, **members)]
    return outcome_of(experiment, experiment.options, shots, gates, complete=complete)


@pytest.mark.parametrize(
    ("made", "code"),
    [
        (outcome(), 0),
        (outcome(lost=1), 0),
        (outcome(lost=2), 1),
        (outcome("gap-p50<1s"), 0),
        (outcome("gap-p50<0.1s"), 1),
        (outcome("differ<=0"), 3),  # asked for, and nobody can tell
        (outcome(lags=[0.5] * 100), 3),
        (outcome(complete=False), 3),
        (outcome("gap-p50<0.1s", lags=[0.5] * 100), 3),
    ],
)
def test_the_exit_code_is_the_first_that_applies(made: Outcome, code: int) -> None:
    assert made.exit == code
    assert document(made, "http://h", "1")["exit"] == code
    assert render(made).splitlines()[-1].endswith(f"exit {code}")


def test_a_bound_that_the_experiment_brings_may_be_undecided() -> None:
    experiment = find("hang-ups")
    gates = Gates(tuple(map(parse_bound, experiment.bounds)), (), "0", most=0)
    shots = [shot("control", [row(0, 0.0)])]
    made = outcome_of(experiment, experiment.options, shots, gates, complete=True)
    assert [each.held for each in made.verdicts] == [Held.UNKNOWN, Held.UNKNOWN, Held.YES]
    assert made.exit == 0
    assert "bound undecided: back<2s (no line has a number there)" in render(made)


def test_what_broke_in_the_end_is_a_finding_and_fails_nobody() -> None:
    experiment = find("many-streams")
    shots = [shot("at once", [row(0, 0.0)], n=1), shot("at once", [failed(0, 0.0)], n=2)]
    gates = Gates((), (), "0", most=0)
    made = outcome_of(experiment, experiment.options, shots, gates, complete=True)
    assert (made.failed, made.exit) == (0, 0)
    assert made.failures == ("2 at once: 1 × refused",)


def test_a_client_that_is_late_is_no_doubt_where_that_is_one_of_the_things_that_may_break() -> None:
    experiment = find("many-streams")
    shots = [shot("at once", [row(0, 0.0)], n=1, lags=[0.5] * 100)]
    gates = Gates((), (), "0", most=0)
    made = outcome_of(experiment, experiment.options, shots, gates, complete=True)
    assert (made.doubts, made.exit) == ((), 0)


def test_the_document_is_json_whose_columns_have_formulas_and_whose_table_comes_back() -> None:
    made = outcome("gap-p50<1s", lost=1)
    text = json.dumps(document(made, "http://h", "1"), allow_nan=False)
    found = json.loads(text)
    assert {column["name"] for column in found["columns"]} == set(found["rows"][0])
    assert all(column["formula"] for column in found["columns"])
    assert found["loads"][0]["outcomes"] == {"complete": 1, "refused": 1}
    assert found["bounds"] == [{"bound": "gap-p50<1s", "result": "met", "where": []}]
    assert markdown(table_from(found)) == markdown(made.table)


def test_by_the_user_clock_figures_say_that_they_are_bounds_and_columns_of_which_kind() -> None:
    by_reads = outcome("ttft-p50<1ms", described={"clock": "user"})
    shown = render(by_reads)
    line = next(each for each in shown.splitlines() if each.startswith("        1  "))
    assert " ".join(line.split()) == "1 ≥ 2 ≈ 1.00 ≈ 500.0 ≤ 500.0 5"
    assert "nothing is known of gap-p99, identical, differ" in shown
    assert "times: clock user; each is when a read returned: ≤ that or less" in shown
    assert "bound missed: ttft-p50<1ms (1: ≤ 500.0 ms)" in shown
    found: Any = document(by_reads, "u", "1")
    columns = {each["name"]: each["bound"] for each in found["columns"]}
    assert (columns["tokens-s"], columns["gap-p50"]) == ("at least", "as read")
    assert (columns["ttft-p50"], columns["tokens"]) == ("at most", None)


def test_by_the_kernels_clock_a_line_says_how_many_times_are_bounds() -> None:
    stamped = outcome(described={"clock": "kernel"})
    assert "times: clock kernel; 0 of 5 chunks' times are bounds" in render(stamped)
    found: Any = document(stamped, "u", "1")
    assert {each["bound"] for each in found["columns"]} == {None}


def test_a_played_part_of_an_experiment_is_reported_as_such() -> None:
    text = render(outcome(complete=False))
    assert "not complete: interrupted" in text
    assert "tokens-s" in text


def test_nothing_that_was_played_is_an_empty_table_and_no_traceback() -> None:
    for name in ("overlap", "joiners", "slow-readers", "hang-ups", "leaks", "buffers"):
        experiment = find(name)
        gates = Gates((), (), "0", most=0)
        made = outcome_of(experiment, experiment.options, [], gates, complete=False)
        assert made.exit == 3
        assert "exit 3" in render(made)


def test_a_servers_words_cannot_move_the_cursor() -> None:
    evil = replace(failed(1, 0.0), told=b"\x1b[2J\nexit 0")
    played = shot("at once", [row(0, 0.0), evil], n=2)
    target = replace(played.result.target, model="\x1b[31mm")
    played = replace(played, result=replace(played.result, target=target))
    gates = Gates((), (), "9", most=9)
    made = outcome_of(find("overlap"), {}, [played], gates, complete=True)
    assert "\x1b" not in render(made)
    assert "\nexit 0" not in render(made)
