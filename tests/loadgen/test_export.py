"""What is written can be read again, says null for unknown, and starts no spreadsheet's formula."""

from __future__ import annotations

import csv
import io
import json
import math
from typing import Any

from loadgen.archive import dumps
from loadgen.export import COLUMNS, csv_lines, document, json_lines
from loadgen.formulas import METRICS
from loadgen.looking import Tally
from loadgen.measure import Row
from loadgen.outcome import Fate
from loadgen.quantiles import label
from loadgen.result import Ran, Result, Target, result_of
from loadgen.slo import parse_slo
from loadgen.summary import RATES, Window
from tests.loadgen.rows import failed, row, unsent


def result(*rows: Row, slo: str = "ttft:p99<1s") -> Result:
    ran = Ran(
        target=Target("http://h/v1", "chat", "m"),
        load={"kind": "open", "rate": 1.0},
        rows=rows,
        tally=Tally(),
        gates=(),
        window=Window(0.0, 10.0),
        lags=(0.001,),
        complete=True,
        steady=True,
    )
    return result_of(ran, [parse_slo(slo)], 0, "0")


def whole(*results: Result) -> Any:
    return json.loads("".join(dumps(results, "1")))


def test_infinity_is_null_and_says_so() -> None:
    found: Any = json.loads(
        "".join(dumps([result(row(0, 1.0), failed(1, 2.0), slo="ttft:max<1s")], "1"))
    )
    assert found["slo"][0] == {
        "objective": "ttft:max<1s",
        "met": "missed",
        "n": 2,
        "value": None,
        "infinite": True,
        "by_bounds": False,
    }
    median = found["metrics"]["ttft"]["adjusted"]["quantiles"]["p50"]
    assert (median["value"], median.get("infinite")) == (0.5, None)


def test_every_metric_and_rate_stands_there_with_its_formula() -> None:
    found: Any = document(result(row(0, 1.0)), "1")
    assert set(found["metrics"]) == set(METRICS)
    assert set(found["rates"]) == set(RATES)
    assert all(each["formula"] for each in (*found["metrics"].values(), *found["rates"].values()))


def test_what_nobody_knows_is_null_in_every_form() -> None:
    made = result(unsent(0, 1.0))
    line = json.loads(next(json_lines(made)))
    assert {line["sent"], line["tpot"], line["status"], line["completion_tokens"]} == {None}
    header, cells = csv.reader(io.StringIO("".join(csv_lines(made))))
    assert tuple(header) == COLUMNS
    assert dict(zip(header, cells, strict=True))["sent"] == ""


def test_no_cell_begins_like_a_formula() -> None:
    for start in "=+-@":
        odd = row(0, 1.0, detail=f"{start}1+cmd|' /C calc'!A0", finish='a\nb,"c"\x1b')
        _, cells = csv.reader(io.StringIO("".join(csv_lines(result(odd)))))
        told = dict(zip(COLUMNS, cells, strict=True))
        assert told["detail"].startswith(f"'{start}")
        assert told["finish"] == 'a\\nb,"c"\\x1b'


def test_quantiles_are_named_as_people_do() -> None:
    assert [label(q) for q in (0.5, 0.95, 0.99, 0.999)] == ["p50", "p95", "p99", "p99.9"]


def test_a_result_that_is_not_valid_comes_before_one_that_missed() -> None:
    missed = result(*[row(n, n / 20, ttft=2.0) for n in range(100)])
    doubtful = result(*[row(n, n / 20, ttft=0.1) for n in range(50)])
    assert (missed.exit, [d.reason for d in missed.doubts]) == (1, [])
    assert (doubtful.exit, [d.reason for d in doubtful.doubts]) == (3, ["too_few_samples"])
    assert result(*[row(n, n / 20) for n in range(100)]).exit == 0


def test_failures_that_are_alike_are_told_once() -> None:
    rows = [failed(0, 1.0), failed(1, 2.0), failed(2, 3.0, Fate.STALLED), row(3, 4.0)]
    found = [(each.fate, each.count) for each in result(*rows).failures]
    assert found == [(Fate.REFUSED, 2), (Fate.STALLED, 1)]


def test_nothing_in_a_report_is_not_a_number() -> None:
    for line in ("".join(dumps([result(failed(0, 1.0))], "1")), *json_lines(result(row(0, 1.0)))):
        value = json.loads(line, parse_constant=lambda name: math.nan)
        assert "NaN" not in json.dumps(value)
