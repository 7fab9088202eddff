"""The report record: order, exit code, JSON there and back."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conformance.errors import RecordError
from conformance.findings import Finding, Level, Result, Verdict, fails
from conformance.report.json_report import dumps, loads, to_json
from conformance.report.model import (
    Gating,
    Report,
    conclusive_percent,
    make_report,
    summary,
)
from conformance.schema import load_schema
from conformance.specs import specs_dir

SCHEMA = load_schema(specs_dir() / "report.schema.json")


def result(
    id: str = "sse.bom",
    verdict: Verdict = Verdict.PASS,
    level: Level = Level.MUST,
    findings: tuple[Finding, ...] = (),
    api: str | None = "chat",
) -> Result:
    return Result(id, "A title", level, "wire", api, ("F03",), verdict, findings=findings)


def report(*results: Result, gating: Gating | None = None, **rest: Any) -> Report:
    return make_report(results, gating or Gating(), target={"files": ["x"]}, **rest)


BAD = result("a.bad", Verdict.FAIL, findings=(Finding("a.bad", "m", 3, 1, b"\xff\x00|"),))


def test_results_are_ordered_by_id_and_api_and_findings_by_place() -> None:
    late, early = Finding("x", "m", 9), Finding("x", "m", 2)
    mixed = report(
        result("b.x"), result("a.x", api="completions"), result("a.x", findings=(late, early))
    )
    assert [(each.id, each.api) for each in mixed.results] == [
        ("a.x", "chat"), ("a.x", "completions"), ("b.x", "chat"),
    ]  # fmt: skip
    assert mixed.results[0].findings == (early, late)


def test_the_order_of_judging_never_shows() -> None:
    results = [result("b.x"), BAD, result("a.x", Verdict.INFO, Level.MAY)]
    assert dumps(report(*results)) == dumps(report(*reversed(results)))


def test_json_has_exactly_the_fields_of_the_contract_and_those_of_the_schema() -> None:
    written = json.loads(dumps(report(BAD, result())))
    jsonschema.Draft202012Validator(SCHEMA).validate(written)
    contract = {"schema", "tool", "target", "profile", "seed", "complete", "summary", "exit"}
    assert contract | {"results"} <= written.keys()
    assert written["tool"].keys() == {"name", "version"}
    of_result = {"id", "title", "level", "gate", "api", "rules", "verdict", "reason", "trials"}
    assert written["results"][0].keys() == of_result | {"findings"}
    of_finding = {"rule", "message", "offset", "event", "excerpt", "dossier", "harms"}
    assert of_finding <= written["results"][0]["findings"][0].keys()
    assert written["results"][0]["findings"][0]["excerpt"] == "\\xff\\x00|"


def test_the_summary_names_every_verdict_even_with_none_of_it() -> None:
    assert summary([BAD]) == {
        "pass": 0, "fail": 1, "non-strict": 0, "info": 0, "unsupported": 0, "inconclusive": 0,
        "inconsistent": 0, "blocked": 0, "harness-error": 0,
    }  # fmt: skip
    assert set(summary([])) == {verdict.value for verdict in Verdict}


def test_a_sample_has_its_id_and_one_line() -> None:
    text = dumps(report(BAD, sample="W001"), line=True)
    assert text.count("\n") == 1
    assert json.loads(text)["sample"] == "W001"
    assert "sample" not in to_json(report(BAD))


FINDINGS = st.builds(
    Finding,
    rule=st.text(max_size=9),
    message=st.text(max_size=9),
    offset=st.none() | st.integers(0, 9),
    event=st.none() | st.integers(0, 9),
    excerpt=st.binary(max_size=40),
    level=st.sampled_from(Level),
    harms=st.lists(st.text(max_size=5), max_size=2).map(tuple),
    take=st.integers(0, 3),
    dossier=st.text(max_size=5),
)
RESULTS = st.builds(
    Result,
    id=st.text(max_size=9),
    title=st.text(max_size=9),
    level=st.sampled_from(Level),
    gate=st.sampled_from(["wire", "shape", "behaviour"]),
    api=st.sampled_from(["chat", "completions", None]),
    rules=st.just(("F03",)),
    verdict=st.sampled_from(Verdict),
    reason=st.none() | st.text(max_size=9),
    trials=st.lists(st.sampled_from(Verdict), max_size=3).map(tuple),
    findings=st.lists(FINDINGS, max_size=3).map(tuple),
)


@settings(max_examples=100, deadline=None)
@given(st.lists(RESULTS, max_size=4), st.booleans(), st.none() | st.integers())
def test_a_report_survives_json_there_and_back(
    results: list[Result], complete: bool, seed: int | None
) -> None:
    written = report(*results, complete=complete, seed=seed)
    jsonschema.Draft202012Validator(SCHEMA).validate(to_json(written))
    assert loads(dumps(written).encode(), "x") == written


@pytest.mark.parametrize(
    "data",
    [b"", b"[]", b"{}", b"\xff", b"[" * 100_000, b'{"schema": 2}', b"1" * 5000],
)
def test_what_is_no_report_is_refused_in_one_line(data: bytes) -> None:
    with pytest.raises(RecordError, match=r"^x: expected a report as `--json` writes it"):
        loads(data, "x")


def test_an_excerpt_with_a_made_up_escape_is_refused() -> None:
    damaged = dumps(report(BAD)).replace("\\\\xff", "\\\\q")
    with pytest.raises(RecordError, match="expected a report"):
        loads(damaged.encode(), "x")


# Exit codes: 0 nothing unexpected, 1 a failure or too little decided, 2 could not run.

M, S = Level.MUST, Level.SHOULD


@pytest.mark.parametrize(
    ("verdict", "level", "strict", "code"),
    [
        (Verdict.PASS, M, True, 0),
        (Verdict.FAIL, M, False, 1),
        (Verdict.NON_STRICT, S, False, 0),
        (Verdict.NON_STRICT, S, True, 1),
        (Verdict.INFO, Level.MAY, True, 0),
        (Verdict.UNSUPPORTED, M, True, 0),
        (Verdict.INCONCLUSIVE, M, True, 0),
        (Verdict.INCONSISTENT, M, False, 1),
        (Verdict.INCONSISTENT, S, False, 0),
        (Verdict.INCONSISTENT, S, True, 1),
        (Verdict.BLOCKED, M, True, 0),
        (Verdict.HARNESS_ERROR, M, False, 2),
    ],
)
def test_each_verdict_has_its_exit_code(
    verdict: Verdict, level: Level, strict: bool, code: int
) -> None:
    one = result(verdict=verdict, level=level)
    assert report(one, gating=Gating(strict=strict)).exit == code
    assert fails(one, strict) is (code == 1)


def test_a_failure_counts_more_than_a_harness_error() -> None:
    assert report(BAD, result("b.x", Verdict.HARNESS_ERROR)).exit == 1


def test_an_interrupted_or_untested_run_is_neither_red_nor_green() -> None:
    assert report(BAD, complete=False).exit == 2
    assert report(BAD, tested=False).exit == 2
    assert report(result(), tested=False).problems[0].startswith("not tested")


def test_too_few_conclusive_musts_are_a_failure_and_say_so() -> None:
    results = [
        result("a.a"), result("a.b", Verdict.INCONCLUSIVE), result("a.c", Verdict.BLOCKED),
        result("a.d", Verdict.UNSUPPORTED), result("a.e", Verdict.INCONCLUSIVE, S),
    ]  # fmt: skip
    assert conclusive_percent(results) == pytest.approx(100 / 3)
    assert report(*results, gating=Gating(min_conclusive=33)).exit == 0
    low = report(*results, gating=Gating(min_conclusive=34))
    assert low.exit == 1
    assert "33 % of the must checks" in low.problems[0]


def test_without_a_must_check_there_is_no_share_to_miss() -> None:
    assert conclusive_percent([result(level=S)]) is None
    assert report(result(level=S), gating=Gating(min_conclusive=100)).exit == 0


def test_a_capability_that_the_profile_requires_may_not_be_unsupported() -> None:
    needs = {"usage.sum": ("usage",), "tool.x": ("tools",)}
    lacking = [result("usage.sum", Verdict.UNSUPPORTED), result("tool.x", Verdict.UNSUPPORTED)]
    assert report(*lacking, needs=needs).exit == 0
    red = report(*lacking, needs=needs, gating=Gating(required=("usage",)))
    assert (red.exit, red.problems) == (
        1, ("the profile requires usage, which is unsupported",),
    )  # fmt: skip


def test_a_finding_without_a_level_has_that_of_its_result() -> None:
    written: Any = to_json(report(replace(BAD, level=S)))
    assert written["results"][0]["findings"][0]["level"] == "should"
