"""Baselines: what is known does not gate, and what is known no more is red."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from datetime import date, timedelta
from pathlib import Path

import jsonschema
import pytest

from conformance import baseline_file
from conformance.baseline import Baseline, Entry, State
from conformance.baseline_command import baseline_of
from conformance.cli import main
from conformance.errors import SpecError
from conformance.findings import Finding, Level, Result, Verdict
from conformance.options import OneLineParser
from conformance.report import console, json_report, junit, markdown, story
from conformance.report.model import Gating, Report, make_report
from conformance.run_options import configure
from conformance.run_report import command_line, report_from
from conformance.run_setup import setup_from_args
from conformance.schema import load_schema
from conformance.specs import specs_dir
from reference_server.faults.table import find
from tests import fault_matrix

TODAY = date(2026, 5, 1)
CHECKS = ("sse.bom", "done.missing", "fin.missing")
CONTEXT = story.Context({})


def result(verdict: Verdict, *rules: str, id: str = "done.missing") -> Result:
    level = Level.SHOULD if verdict is Verdict.NON_STRICT else Level.MUST
    findings = tuple(Finding(rule, f"{rule} is broken", 1) for rule in rules)
    return Result(id, "A title", level, "wire", "chat", ("Z07",), verdict, findings=findings)


FAILED = result(Verdict.FAIL, "Z07")
PASSED = result(Verdict.PASS)


def entry(check: str = "done.missing", **rest: object) -> Entry:
    return Entry(check, "chat", "since 1.4", **rest)  # type: ignore[arg-type]


def judged(
    *results: Result, expected: tuple[Entry, ...] = (), flaky: tuple[Entry, ...] = (),
    strict: bool = False,
) -> Report:  # fmt: skip
    gating = Gating(strict, baseline=Baseline(expected, flaky, "known.yaml"), today=TODAY)
    return make_report(results, gating, target={})


def state(report: Report) -> State:
    assert report.baseline is not None
    (standing,) = report.baseline.standings
    return standing.state


@pytest.mark.parametrize(
    ("made", "known", "expected", "code"),
    [
        (FAILED, entry(), State.EXPECTED, 0),
        (FAILED, entry(rule="Z07"), State.EXPECTED, 0),
        (FAILED, entry(until=TODAY), State.EXPECTED, 0),
        (result(Verdict.INCONSISTENT, "Z07"), entry(), State.EXPECTED, 0),
        (PASSED, entry(), State.STALE, 1),
        (result(Verdict.INFO, "Z07"), entry(), State.STALE, 1),
        (FAILED, entry(rule="Z08"), State.STALE, 1),
        (FAILED, entry(until=TODAY - timedelta(1)), State.EXPIRED, 1),
        (PASSED, entry(until=TODAY - timedelta(1)), State.EXPIRED, 1),
        (result(Verdict.UNSUPPORTED), entry(), State.OPEN, 0),
        (result(Verdict.INCONCLUSIVE), entry(), State.OPEN, 0),
        (result(Verdict.NON_STRICT, "Z07"), entry(), State.OPEN, 0),
        (result(Verdict.PASS, id="sse.bom"), entry(), State.ABSENT, 0),
        (result(Verdict.FAIL, "F03", id="sse.bom"), entry(), State.ABSENT, 1),
    ],
)
def test_an_entry_excuses_a_failure_and_is_red_once_it_excuses_nothing(
    made: Result, known: Entry, expected: State, code: int
) -> None:
    report = judged(made, expected=(known,))
    assert (state(report), report.exit) == (expected, code)


@pytest.mark.parametrize(
    ("made", "expected"),
    [(FAILED, State.FLAKY), (PASSED, State.QUIET), (result(Verdict.INCONCLUSIVE), State.OPEN)],
)
def test_a_flaky_check_never_gates(made: Result, expected: State) -> None:
    report = judged(made, flaky=(entry(),))
    assert (state(report), report.exit) == (expected, 0)


def test_an_entry_of_one_rule_does_not_excuse_another() -> None:
    both = result(Verdict.FAIL, "Z07", "Z08")
    assert judged(both, expected=(entry(rule="Z07"),)).exit == 1
    assert judged(both, expected=(entry(rule="Z07"), entry(rule="Z08"))).exit == 0


def test_under_strict_a_should_can_be_excused_as_well() -> None:
    made = result(Verdict.NON_STRICT, "Z07")
    assert judged(made, strict=True).exit == 1
    assert judged(made, expected=(entry(),), strict=True).exit == 0


def test_other_failures_gate_beside_an_excused_one() -> None:
    report = judged(FAILED, result(Verdict.FAIL, "F03", id="sse.bom"), expected=(entry(),))
    assert report.exit == 1
    assert [each.id for each in report.results if report.gates(each)] == ["sse.bom"]


# The reports


def test_the_json_report_has_the_entries_and_reads_back() -> None:
    known = entry(rule="Z07", issue="https://example.org/1", until=date(2027, 1, 31))
    report = judged(FAILED, expected=(known,), flaky=(entry("sse.bom"),))
    written = json_report.to_json(report)
    jsonschema.validate(written, load_schema(specs_dir() / "report.schema.json"))
    assert json_report.loads(json_report.dumps(report).encode(), "x").baseline == report.baseline
    assert json.loads(json_report.dumps(report))["baseline"]["excused"] == [
        {"id": "done.missing", "api": "chat"}
    ]


def test_without_a_baseline_the_report_has_no_such_member() -> None:
    assert "baseline" not in json_report.to_json(make_report([FAILED], Gating(), target={}))


def forms(report: Report) -> dict[str, str]:
    return {
        "console": console.render(report, CONTEXT, "1 record"),
        "junit": junit.suite(report, CONTEXT),
        "markdown": markdown.render(report, CONTEXT).replace("&#58;", ":"),
    }


@pytest.mark.parametrize("form", ["console", "junit", "markdown"])
def test_every_form_lists_the_entries_with_their_reasons(form: str) -> None:
    text = forms(judged(FAILED, expected=(entry(until=date(2027, 1, 31)),)))[form]
    assert "baseline known.yaml: 1 expected" in text.replace("&#46;", ".")
    assert "expected done.missing (chat): since 1.4, until 2027-01-31" in text


def test_in_junit_an_excused_failure_is_skipped_and_in_the_console_no_fail() -> None:
    report = judged(FAILED, expected=(entry(),))
    suite = ElementTree.fromstring(forms(report)["junit"])
    assert (suite.get("failures"), suite.get("skipped")) == ("0", "1")
    assert suite.find("testcase/skipped") is not None
    assert "FAIL" not in forms(report)["console"]


def test_a_stale_entry_is_named_as_the_problem() -> None:
    report = judged(PASSED, expected=(entry(),))
    assert report.problems == (
        "baseline: done.missing (chat) does not fail any more: remove the stale entry",
    )


# The file


def load(tmp_path: Path, text: str) -> Baseline:
    path = tmp_path / "known.yaml"
    path.write_text(text)
    return baseline_file.load(path, CHECKS)


@pytest.mark.parametrize("form", ["yaml", "json"])
def test_what_is_written_reads_back(tmp_path: Path, form: str) -> None:
    words = 'a "quoted" \\ reason: with # marks, naïve 😀'
    known = Entry("done.missing", "chat", words, "Z07", "https://example.org/1", date(2027, 1, 31))
    made = Baseline((known, entry("fin.missing")), (entry("sse.bom"),))
    read = load(tmp_path, baseline_file.dumps(made, form))
    assert (read.expected, read.flaky) == (made.expected, made.flaky)


def test_an_empty_baseline_reads_back(tmp_path: Path) -> None:
    read = load(tmp_path, baseline_file.dumps(Baseline(), "yaml"))
    assert (read.expected, read.flaky) == ((), ())


ENTRY = "{check: done.missing, api: chat, reason: r"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("baseline: 2", ":1: baseline: expected at most 1"),
        ("expected: []", "baseline: expected this field"),
        (
            "baseline: 1\nexcepted: []",
            ":2: excepted: expected no such field (did you mean expected",
        ),
        (f"baseline: 1\nflaky:\n- {ENTRY}, rules: x}}", "flaky[0].rules: expected no such field"),
        ("baseline: 1\nexpected:\n- {check: done.missing, api: chat}", "expected[0].reason"),
        (
            "baseline: 1\nexpected:\n- {check: done.mising, api: chat, reason: r}",
            ":3: expected[0].check: expected a known check (did you mean done.missing?)",
        ),
        (f"baseline: 1\nexpected:\n- {ENTRY}, until: 2026-02-30}}", "expected a day that exists"),
        (f"baseline: 1\nexpected:\n- {ENTRY}, until: soon}}", "a day such as 2027-01-31"),
        (
            f"baseline: 1\nexpected:\n- {ENTRY}}}\nflaky:\n- {ENTRY}}}",
            ":5: flaky[0]: expected each entry once, done.missing (chat) stands in line 3",
        ),
    ],
)
def test_a_wrong_file_is_refused_with_its_place(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(SpecError) as caught:
        load(tmp_path, text)
    assert words in str(caught.value)


# The commands

BROKEN = (
    b'data: {"id":"c","object":"chat.completion.chunk","created":1700000000,"model":"m",'
    b'"choices":[{"index":0,"delta":{"role":"assistant","content":"Hi"},"finish_reason":"stop"}]}'
    b"\n\n"
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("broken").write_bytes(BROKEN)
    Path("good").write_bytes(BROKEN + b"data: [DONE]\n\n")
    assert main(["judge", "broken", "--json", "report.json"]) == 1
    return tmp_path


@pytest.mark.parametrize("name", ["known.yaml", "known.json"])
def test_todays_failures_are_excused_tomorrow_and_stale_once_repaired(
    folder: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["baseline", "report.json", "--reason", "known since 1.4", "-o", name]) == 0
    assert main(["judge", "broken", "--baseline", name]) == 0
    assert "baseline expected: known since 1.4" in capsys.readouterr().out
    assert main(["judge", "good", "--baseline", name]) == 1
    assert "done.missing (chat) does not fail any more" in capsys.readouterr().out


def test_a_baseline_made_again_keeps_the_words_of_old_entries(folder: Path) -> None:
    known = entry(issue="https://example.org/1")
    report = judged(FAILED, result(Verdict.FAIL, "F03", id="sse.bom"), expected=(known,))
    made = baseline_of(report, "new today", None, None)
    assert made.expected == (known, Entry("sse.bom", "chat", "new today"))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["absent.json", "--reason", "r"], "absent.json: No such file"),
        (["broken", "--reason", "r"], "expected a report as `--json` writes it"),
        (["report.json", "--reason", " "], "--reason: expected one line of printable text"),
        (["report.json", "--reason", "r", "--until", "2001-01-01"], "that one is over"),
        (["report.json", "--reason", "r", "-o", "absent/x"], "absent/x: cannot be written"),
    ],
)
def test_what_cannot_be_is_told_in_one_line(
    folder: Path, words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    assert main(["baseline", *words]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1


def test_samples_refuse_a_baseline(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    samples = Path(__file__).parents[1] / "data" / "wire-samples.jsonl"
    Path("known.yaml").write_text("baseline: 1\n")
    assert main(["judge", str(samples), "--baseline", "known.yaml"]) == 2
    assert "samples have a report each" in capsys.readouterr().err


def test_a_run_takes_a_baseline_and_says_so_in_the_command_that_runs_it_again(
    folder: Path,
) -> None:
    Path("known.yaml").write_text(
        "baseline: 1\nexpected:\n- {check: done.missing, api: chat, reason: known}\n"
    )
    words = ["--quick", "--api", "chat", "--select", "done.*"]
    excused = ran(*words, "--baseline", "known.yaml")
    assert (ran(*words).exit, excused.exit) == (1, 0)
    assert [each.id for each in excused.results if excused.excuses(each)] == ["done.missing"]


def ran(*words: str) -> Report:
    parser = OneLineParser()
    configure(parser)
    args = parser.parse_args(["http://127.0.0.1:1", *words])
    recorded = fault_matrix.run([find("done.missing")], *words)
    assert ("--baseline" in command_line(args)) == ("--baseline" in words)
    return report_from(setup_from_args(args, {}), recorded)
