"""What a run stored is the run: every report renders again as it was."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from conformance.errors import UsageError
from conformance.findings import Level, Verdict
from loadgen import archive, cli, console, export, together
from loadgen.looking import Breach, Tally, Told
from loadgen.outcome import Fate
from loadgen.reload import loads
from loadgen.result import Ran, Result, Target, result_of
from loadgen.slo import parse_slo
from loadgen.summary import Window
from tests.loadgen.rows import failed, row, unsent


def result() -> Result:
    rows = [
        *(row(n, n / 10, ttft=0.1 + n / 100, chunks=3) for n in range(40)),
        failed(40, 4.0, Fate.REFUSED),
        row(41, 4.1, fate=Fate.STALLED, told=b"\x1b[31m\xff\x00=1", token_times=(), finish="stop"),
        unsent(42, 4.2),
    ]
    breach = Breach("done.missing", Level.MUST, Verdict.FAIL, "no sentinel")
    ran = Ran(
        target=Target("http://h/v1", "chat", "m"),
        load={"kind": "open", "rate": 10.0, "arrivals": "constant", "seed": 7},
        rows=rows,
        tally=Tally(41, 1, {3, 5}, {"done.missing": Told(breach, 3, 2)}),
        gates=("wire",),
        window=Window(0.5, 4.5),
        lags=(0.2,),
        complete=False,
        steady=True,
    )
    return result_of(ran, [parse_slo("ttft:p50<1s"), parse_slo("goodput:share>99%")], 1, "1")


def text(*results: Result) -> str:
    return "".join(archive.dumps(results, "1"))


def test_a_run_comes_back_as_it_was() -> None:
    made = result()
    (back,) = loads(text(made), "run.json")
    assert back == made
    assert console.render(back) == console.render(made)
    assert list(export.csv_lines(back)) == list(export.csv_lines(made))


def test_several_runs_come_back_in_order() -> None:
    made = result()
    back = loads(text(made, made, made), "run.json")
    assert back == (made, made, made)
    assert together.render(back) == together.render([made] * 3)


def test_the_report_command_renders_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, table = tmp_path / "run.json", tmp_path / "run.csv"
    file.write_text(text(result()))
    assert cli.main(["report", str(file), "--csv", str(table)]) == 0
    assert capsys.readouterr().out == console.render(result())
    assert table.read_text() == "".join(export.csv_lines(result()))


ROW = {"index": 0, "intended": 0, "fate": "complete", "prompt_hash": ""}
RECOVERY = dict.fromkeys(
    ("gauges_before", "gauges_after", "took", "within", "probe_before", "probe_after")
)


def test_what_stands_in_a_report_cannot_move_the_cursor() -> None:
    stored = json.loads(text(result()))
    stored["target"]["api"] = stored["checks"]["gates"][0] = "\x1b]0;owned\x07"
    (back,) = loads(json.dumps(stored), "x.json")
    assert "\x1b" not in console.render(back)


def flawed(**members: Any) -> str:
    return json.dumps({**json.loads(text(result())), **members})


@pytest.mark.parametrize(
    "given",
    [
        "",
        "[]",
        "null",
        "{",
        "[" * 100_000,
        '{"tool": {"name": "other"}, "command": "run"}',
        flawed(command="sweep"),
        flawed(schema=99),
        flawed(rows=None),
        flawed(rows=[{"index": 0}]),
        flawed(rows=[{"index": "x", "intended": 0, "fate": "complete", "prompt_hash": ""}]),
        flawed(rows=[{"index": 0, "intended": 1e999, "fate": "complete", "prompt_hash": ""}]),
        flawed(rows=[{"index": 0, "intended": 0, "fate": "fine", "prompt_hash": ""}]),
        flawed(slo=[{"objective": "fast"}]),
        flawed(window={"start": "a", "end": 1}),
        flawed(repeat=1, runs=[]),
        flawed(checks={}),
        flawed(reasons=[{"reason": "\x1b[31mx", "detail": "x"}]),
        flawed(failed={"count": 1e999, "met": True, "allowed": "0"}),
        flawed(load={"rate": float("nan")}),
        flawed(load={"rate": 10**400}),
        flawed(window={"start": 10**400, "end": 1}),
        flawed(workers={"each": [], "starts_apart": []}),
        flawed(rows=[{**ROW, "turn": []}]),
        flawed(rows=[{**ROW, "client": []}]),
        flawed(rows=[{**ROW, "token_times": ["x"]}]),
        flawed(recovery={**RECOVERY, "probe_before": "x"}),
    ],
)
def test_what_is_no_report_is_one_line(given: str) -> None:
    with pytest.raises(UsageError) as error:
        loads(given, "x.json")
    assert len(str(error.value).splitlines()) == 1


def test_members_that_a_later_version_adds_are_passed_over() -> None:
    stored = json.loads(text(result()))
    for each in stored["rows"]:
        each["colour"] = "green"
    assert loads(json.dumps(stored), "x.json") == (result(),)
