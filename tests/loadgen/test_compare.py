"""Two loads compared: seldom an alarm where nothing differs, nearly always where something does."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from loadgen import archive, cli
from loadgen.blocks import BLOCKS_AT_LEAST, Unit, Units, likeness, request_time, units_of
from loadgen.compare import Change, Difference, differences
from loadgen.result import Result
from tests.loadgen.rows import failed, row
from tests.loadgen.simulator import run

FEW = 399  # splits, for speed


def changes(first: Result, second: Result, seed: int, threshold: float = 0.0) -> dict[str, Change]:
    units = units_of([first], [second])
    found = () if units is None else differences(units, seed, threshold, FEW)
    return {each.measure.name: each.change for each in found}


def alarms(slower: float, seeds: range) -> int:
    """Comparisons in which anything differs: any way, or for a slowdown for the worse."""
    wanted = {Change.WORSE} if slower > 1 else {Change.WORSE, Change.BETTER}
    found = [changes(run(2 * n), run(2 * n + 1, slower), n) for n in seeds]
    return sum(bool(wanted & set(each.values())) for each in found)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_of_a_hundred_comparisons_of_the_same_few_raise_an_alarm() -> None:
    assert alarms(1.0, range(100)) <= 11


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_slowdown_by_a_tenth_is_found_in_nine_of_ten() -> None:
    assert alarms(1.1, range(100)) >= 90


def test_the_same_in_small() -> None:
    assert alarms(1.0, range(2, 5)) == 0
    assert alarms(1.2, range(2, 5)) == 3


def units(first: list[Unit], second: list[Unit]) -> Units:
    return Units("block", 1.0, tuple(first), tuple(second))


def told(found: tuple[Difference, ...], name: str) -> Difference:
    return next(each for each in found if each.measure.name == name)


def steady(ttft: float, seed: int, blocks: int = 20, fail: int = 0) -> list[Unit]:
    """Blocks of ten requests each, `fail` of them failed."""
    rng = Random(seed)
    good = [
        [row(n, float(n), ttft=ttft * rng.uniform(0.9, 1.1)) for n in range(10 - fail)]
        for _ in range(blocks)
    ]
    lost = tuple(failed(10 + n, 1.0) for n in range(fail))
    return [Unit((*rows, *lost), 10.0) for rows in good]


def test_a_difference_has_its_size_and_its_direction() -> None:
    slower = differences(units(steady(1.0, 1), steady(1.2, 2)), 7, splits=FEW)
    ttft = told(slower, "ttft mean")
    assert ttft.difference == pytest.approx(0.2, abs=0.02)
    assert ttft.change is Change.WORSE
    assert ttft.noise is not None
    assert ttft.noise < 0.2
    faster = differences(units(steady(1.2, 2), steady(1.0, 1)), 7, splits=FEW)
    assert told(faster, "ttft mean").change is Change.BETTER


def test_what_is_sure_and_too_small_to_matter_is_no_difference() -> None:
    found = differences(units(steady(1.0, 1), steady(1.2, 2)), 7, threshold=0.5, splits=FEW)
    ttft = told(found, "ttft mean")
    assert ttft.p is not None
    assert ttft.p <= 0.05
    assert ttft.change is Change.SAME


def test_failing_more_is_worse_whatever_the_latencies_do() -> None:
    found = differences(units(steady(1.0, 1), steady(0.9, 2, fail=2)), 7, splits=FEW)
    failures = told(found, "failed")
    assert failures.difference == pytest.approx(0.2)
    assert failures.change is Change.WORSE


def test_a_tail_is_compared_only_where_ten_values_lie_beyond_it() -> None:
    few = differences(units(steady(1.0, 1), steady(2.0, 2)), 7, splits=FEW)
    assert told(few, "ttft p99").change is Change.UNKNOWN
    assert told(few, "ttft p90").change is Change.WORSE
    many = differences(units(steady(1.0, 1, 100), steady(2.0, 2, 100)), 7, splits=FEW)
    assert told(many, "ttft p99").change is Change.WORSE


def test_one_seed_gives_one_result() -> None:
    sides = units(steady(1.0, 1), steady(1.02, 2))
    assert differences(sides, 7, splits=FEW) == differences(sides, 7, splits=FEW)
    assert differences(sides, 7, splits=FEW) != differences(sides, 8, splits=FEW)


def test_a_block_is_at_least_ten_request_times_long() -> None:
    first, second = run(0), run(1)
    found = units_of([first], [second])
    assert found is not None
    assert found.seconds is not None
    assert found.seconds >= 10 * request_time([first, second])
    assert sum(len(unit.rows) for unit in found.first) == len(first.rows)
    assert len(found.first) >= BLOCKS_AT_LEAST


def test_six_runs_on_either_side_are_units_themselves_and_can_be_told_apart() -> None:
    runs = [run(2 * n) for n in range(6)], [run(2 * n + 1, 1.5) for n in range(7)]
    found = units_of(*runs)
    assert found is not None
    assert (found.kind, len(found.first), len(found.second)) == ("run", 6, 7)
    assert told(differences(found, 7, splits=999), "ttft mean").change is Change.WORSE


def test_five_runs_are_cut_into_blocks_for_as_units_they_could_not_be_told_apart() -> None:
    runs = [run(2 * n) for n in range(5)], [run(2 * n + 1, 1.5) for n in range(5)]
    found = units_of(*runs)
    assert found is not None
    assert found.kind == "block"
    assert told(differences(found, 7, splits=FEW), "ttft mean").change is Change.WORSE


def test_blocks_that_drift_are_alike() -> None:
    drifting = [Unit((row(n, float(n), ttft=1 + n / 10),), 1.0) for n in range(20)]
    shuffled = Random(3).sample(drifting, 20)
    high, low = likeness([drifting]), likeness([shuffled])
    assert high is not None
    assert low is not None
    assert high > 0.6
    assert low < 0.25


def test_a_run_of_a_few_requests_has_no_units() -> None:
    whole = run(0)
    tiny = replace(whole.summary.window, end=10.0)
    short = replace(whole, summary=replace(whole.summary, window=tiny))
    assert units_of([short], [short]) is None


# -- the command -----------------------------------------------------------------------------------


def written(folder: Path, name: str, *runs: Result) -> str:
    file = folder / name
    file.write_text("".join(archive.dumps(runs, "1")))
    return str(file)


def test_compare_exits_1_for_a_slowdown_and_0_for_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    a, b = written(tmp_path, "a.json", run(0)), written(tmp_path, "b.json", run(1))
    slow = written(tmp_path, "slow.json", run(2, 1.3))
    assert cli.main(["compare", a, b]) == 0
    told = capsys.readouterr().out
    assert "no difference (what counts: p ≤ 0.05 and more than 5 % of A, of a share 1 pt)" in told
    assert f"A {a}: m at http://h/v1, 1 run\n" in told
    assert "noise: 95 % of the random splits" in told
    assert "unknown: too few values on a side" in told
    assert cli.main(["compare", a, slow, "--json", str(tmp_path / "out.json")]) == 1
    assert "tpot mean worse" in capsys.readouterr().out
    found = json.loads((tmp_path / "out.json").read_text())
    assert found["exit"] == 1
    assert {each["measure"]: each["change"] for each in found["measures"]}["tpot mean"] == "worse"


def test_what_was_not_asked_alike_is_refused_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    a = written(tmp_path, "a.json", run(0))
    b = written(tmp_path, "b.json", run(1, rate=5.0, input_tokens="9"))
    assert cli.main(["compare", a, b]) == 2
    text = capsys.readouterr().err
    assert "are unlike: input_tokens unsaid and 9; rate 4.0 and 5.0" in text
    assert len(text.splitlines()) == 1


def test_another_prompt_under_the_same_number_is_unlike(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one = run(0)
    other = replace(one, rows=tuple(replace(each, prompt_hash="x") for each in one.rows))
    a, b = written(tmp_path, "a.json", one), written(tmp_path, "b.json", other)
    assert cli.main(["compare", a, b]) == 2
    assert "ask another prompt" in capsys.readouterr().err


def test_runs_that_are_not_valid_or_too_short_are_exit_3(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    a = written(tmp_path, "a.json", run(0))
    lost = replace(run(1), complete=False, doubts=())
    short = replace(lost, rows=lost.rows[:5])
    tiny = replace(short.summary, window=replace(short.summary.window, end=2.0))
    b = written(tmp_path, "b.json", replace(short, summary=tiny))
    assert cli.main(["compare", a, b]) == 3
    assert "too few independent blocks" in capsys.readouterr().out
