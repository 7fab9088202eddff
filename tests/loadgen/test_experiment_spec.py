"""Experiments as data: what is published is whole, and what is not says where."""

from __future__ import annotations

from pathlib import Path

import pytest

from conformance.errors import SpecError, UsageError
from conformance.plainyaml import read_bytes
from loadgen.experiments.reports import REPORTS
from loadgen.experiments.spec import Experiment, Leaves, experiment_of, find, folder, known
from loadgen.experiments.staging import doublings, turns
from loadgen.experiments.table import known_columns, parse_bound

NAMES = (
    *("buffers", "hang-ups", "joiners", "leaks"),
    *("long-prompt", "many-streams", "overlap", "slow-readers"),
)
SMALL = """
experiment: mine
title: Two streams at once
report: overlap
options: {streams: 4, repeat: 2}
loads:
  - load: control
    parts: [{role: stream, count: streams, input: 8, output: 16}]
"""


def made(text: str) -> Experiment:
    return experiment_of(read_bytes(text.encode(), "mine.yaml"), "mine.yaml")


def test_every_published_experiment_can_be_read_and_bounds_columns_that_its_table_has() -> None:
    found = known()
    assert tuple(found) == NAMES
    assert {path.stem for path in folder().iterdir()} == set(NAMES)
    for name, each in found.items():
        assert each.name == name
        assert set(each.options) >= {"output_tokens", "repeat"}
        known_columns([parse_bound(text) for text in each.bounds], REPORTS[each.report].columns)


@pytest.mark.parametrize(
    ("was", "now", "expected"),
    [
        ("report: overlap", "report: overlaps", "mine.yaml:4: report: expected one of"),
        ("output: 16", "output: 16, wait: 3", "parts[0].wait: expected no such field"),
        ("count: streams", "count: stream", "expected an option (did you mean streams?)"),
        ("streams: 4", "streams: many", "mine.yaml:5: options.streams: expected a whole number"),
        ("streams: 4", "streams: 9999999", "expected a whole number up to 1000000"),
        ("load: control", "load: others, watch: 3", "YAML"),
        (
            "load: control\n    parts: [{",
            "load: first\n    parts: [{at: 30, ",
            "named control first",
        ),
        (
            "role: stream, count: streams",
            "role: stream, leaves: {events: 2}, count: streams",
            "stream: expected another role for who leaves or stalls",
        ),
        (
            "role: stream, count: streams",
            "role: leaver, leaves: {events: [5, 2]}, count: streams",
            "events: expected the smaller number first",
        ),
        ("title: Two", "doubling: most\ntitle: Two", "doubling: expected an option's name"),
    ],
)
def test_what_an_experiment_may_not_say_is_one_line_with_its_place(
    was: str, now: str, expected: str
) -> None:
    assert was in SMALL
    with pytest.raises(SpecError) as error:
        made(SMALL.replace(was, now))
    assert expected in str(error.value)
    assert str(error.value).startswith("mine.yaml:")


def test_a_whole_number_may_be_spelled_as_a_float() -> None:
    part = "role: leaver, leaves: {events: 2.0}, count: 1.0"
    (load,) = made(SMALL.replace("role: stream, count: streams", part)).loads
    assert (load.parts[0].count, load.parts[0].leaves) == (1, Leaves(events=(2, 2)))
    assert type(load.parts[0].count) is int


def test_an_experiment_of_ones_own_is_a_file(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(SMALL)
    assert find(str(file)).title == "Two streams at once"
    with pytest.raises(
        UsageError, match=r"named overlaps \(did you mean overlap\?\); there are buffers"
    ):
        find("overlaps")


def test_doubling_ends_with_what_was_asked_for() -> None:
    assert doublings(0) == doublings(1) == [1]
    assert doublings(32) == [1, 2, 4, 8, 16, 32]
    assert doublings(20) == [1, 2, 4, 8, 16, 20]


def test_rounds_play_all_loads_and_every_second_one_in_the_other_order() -> None:
    slow = find("slow-readers")
    order = [(turn.round, turn.name) for turn in turns(slow, {**slow.options, "repeat": 2})]
    assert order == [(0, "control"), (0, "slow"), (1, "slow"), (1, "control")]
    overlap = find("overlap")
    counts = [turn.n for turn in turns(overlap, {**overlap.options, "repeat": 1, "streams": 4})]
    assert counts == [1, 2, 4]


def test_hang_ups_have_five_moments_each_by_fin_and_by_rst() -> None:
    hang_ups = find("hang-ups")
    names = [turn.name for turn in turns(hang_ups, {**hang_ups.options, "repeat": 1})]
    moments = ("waiting", "before the headers", "first token", "mid-decode", "slow reader")
    expected = [f"{moment} {how}" for moment in moments for how in ("fin", "rst")]
    assert names == ["control", "nobody leaves", *expected]
