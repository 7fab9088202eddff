"""`diff`: what changed between two reports, and what of it is for the worse."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from conformance.cli import main
from conformance.findings import Finding, Level, Result, Verdict
from conformance.report import json_report
from conformance.report.difference import Change, Kind, between
from conformance.report.model import Gating, Report, make_report


def result(verdict: Verdict, *rules: str, id: str = "done.missing") -> Result:
    findings = tuple(Finding(rule, f"{rule} is broken", 1) for rule in rules)
    level = Level.SHOULD if verdict is Verdict.NON_STRICT else Level.MUST
    return Result(
        id, "A title", level, "wire", "chat", ("Z07",), verdict, "a reason", findings=findings
    )


def report(*results: Result, strict: bool = False, complete: bool = True) -> Report:
    return make_report(results, Gating(strict), target={}, complete=complete)


def only(old: Report, new: Report) -> Change:
    (change,) = between(old, new).changes
    return change


PASS, FAIL = result(Verdict.PASS), result(Verdict.FAIL, "Z07")


@pytest.mark.parametrize(
    ("before", "after", "kind", "worse"),
    [
        (PASS, FAIL, Kind.NEW_FAILURE, True),
        (result(Verdict.INCONCLUSIVE), FAIL, Kind.NEW_FAILURE, True),
        (FAIL, result(Verdict.FAIL, "Z07", "Z08"), Kind.NEW_FAILURE, True),
        (FAIL, PASS, Kind.FIXED, False),
        (FAIL, result(Verdict.NON_STRICT, "Z07"), Kind.FIXED, False),
        (FAIL, result(Verdict.INCONCLUSIVE), Kind.VERDICT, False),
        (PASS, result(Verdict.INCONCLUSIVE), Kind.VERDICT, True),
        (PASS, result(Verdict.NON_STRICT, "Z07"), Kind.VERDICT, True),
        (PASS, result(Verdict.HARNESS_ERROR), Kind.VERDICT, True),
        (result(Verdict.INCONCLUSIVE), PASS, Kind.VERDICT, False),
        (FAIL, result(Verdict.INCONSISTENT, "Z07"), Kind.VERDICT, False),
    ],
)
def test_a_change_has_a_kind_and_says_if_it_is_for_the_worse(
    before: Result, after: Result, kind: Kind, worse: bool
) -> None:
    change = only(report(before), report(after))
    assert (change.kind, change.worse) == (kind, worse)
    assert between(report(before), report(after)).is_worse is worse


@pytest.mark.parametrize("same", [PASS, FAIL, result(Verdict.INCONCLUSIVE)])
def test_equal_reports_differ_in_nothing(same: Result) -> None:
    assert between(report(same), report(same)).changes == ()


@pytest.mark.parametrize(
    ("old", "new", "kind", "worse"),
    [
        ([], [PASS], Kind.APPEARED, False),
        ([], [FAIL], Kind.APPEARED, True),
        ([PASS], [], Kind.DISAPPEARED, True),
        ([result(Verdict.INCONCLUSIVE)], [], Kind.DISAPPEARED, False),
    ],
)
def test_checks_come_and_go(old: list[Result], new: list[Result], kind: Kind, worse: bool) -> None:
    change = only(report(*old), report(*new))
    assert (change.kind, change.worse) == (kind, worse)


def test_under_strict_a_should_is_a_new_failure() -> None:
    broken = result(Verdict.NON_STRICT, "Z07")
    assert only(report(PASS), report(broken, strict=True)).kind is Kind.NEW_FAILURE


def test_an_interrupted_report_is_worse_than_a_whole_one() -> None:
    found = between(report(PASS), report(PASS, complete=False))
    assert found.is_worse
    assert "interrupted" in found.problems[0]


def test_what_is_worse_stands_first() -> None:
    old = report(result(Verdict.FAIL, "F03", id="a.fixed"), PASS)
    new = report(result(Verdict.PASS, id="a.fixed"), FAIL)
    assert [each.id for each in between(old, new).changes] == ["done.missing", "a.fixed"]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("old.json").write_text(json_report.dumps(report(PASS)))
    Path("new.json").write_text(json_report.dumps(report(FAIL)))
    return tmp_path


@pytest.mark.parametrize(
    ("words", "code"),
    [(["old.json", "new.json"], 1), (["new.json", "old.json"], 0), (["old.json", "old.json"], 0)],
)
def test_the_exit_code_is_1_if_anything_got_worse(
    folder: Path, words: list[str], code: int
) -> None:
    assert main(["diff", *words]) == code


def test_the_console_has_a_line_for_each_change(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["diff", "old.json", "new.json"])
    first, last = capsys.readouterr().out.splitlines()
    assert first.split() == [
        "worse", "new-failure", "done.missing", "(chat)", "pass", "→", "fail:",
        "Z07", "is", "broken",
    ]  # fmt: skip
    assert last == "1 change, 1 for the worse · exit 0 before, 1 now"


def test_json_goes_to_a_file_or_to_stdout_alone(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["diff", "old.json", "new.json", "--json", "-", "--json", "diff.json"]) == 1
    shown = json.loads(capsys.readouterr().out)
    assert shown == json.loads(Path("diff.json").read_text())
    assert shown["changes"][0]["before"] == "pass"
    assert shown["worse"] is True


@pytest.mark.parametrize("content", [None, b"", b"{}", b"[1]", b"\xff", b'{"schema": 1}'])
def test_an_unreadable_report_is_told_in_one_line(
    folder: Path, content: bytes | None, capsys: pytest.CaptureFixture[str]
) -> None:
    if content is not None:
        Path("bad.json").write_bytes(content)
    assert main(["diff", "old.json", "bad.json"]) == 2
    error = capsys.readouterr().err
    assert error.startswith("conformance: bad.json: ")
    assert error.count("\n") == 1
