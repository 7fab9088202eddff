"""The report as console text, JUnit and Markdown: what a person must find in each."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from dataclasses import replace

import pytest

from conformance.findings import Finding, Level, Result, Verdict
from conformance.report import console, junit, markdown, story
from conformance.report.model import Gating, Report, make_report
from conformance.specs import Case, Harm, Source

CASE = Case(
    id="sse.bom",
    title="The body starts without a byte-order mark",
    level=Level.SHOULD,
    gate="wire",
    rules=("F03",),
    sources=(Source("WHATWG HTML", "9.2.6", "strips one leading BOM"),),
    api=("chat",),
    scenario="stream",
    on="stream",
    advice="Write no signature.",
    check="sse.bom",
    harms=(Harm("openai-python", "loses the first event"),),
)
AGAIN = ("conformance", "judge", "my dump")
CONTEXT = story.Context({CASE.id: CASE}, AGAIN)
HOSTILE = "\x1b[2J</failure>]]>\u202e|`<script>\x00\n# head"


def result(verdict: Verdict, *findings: Finding, id: str = "sse.bom") -> Result:
    level = Level.SHOULD if verdict is Verdict.NON_STRICT else Level.MUST
    return Result(
        id, CASE.title, level, "wire", "chat", ("F03",), verdict, "1 of 1", findings=findings
    )


FOUND = Finding(
    "sse.bom", "a byte-order mark", 17, 2, b"\xef\xbb\xbfdata",
    harms=("openai-python", "httpx-sse"), dossier="runs/d1.capture",
)  # fmt: skip
FAILED = result(Verdict.FAIL, FOUND)


def report(*results: Result, strict: bool = False) -> Report:
    return make_report(results, Gating(strict=strict), target={})


def suite(*results: Result, strict: bool = False) -> ElementTree.Element:
    text = junit.HEAD + junit.suite(report(*results, strict=strict), CONTEXT) + junit.TAIL
    return ElementTree.fromstring(text.encode())[0]


def all_forms(*results: Result) -> dict[str, str]:
    one = report(*results)
    return {
        "console": console.render(one, CONTEXT, "1 record"),
        "junit": "".join(suite(*results).itertext()),
        "markdown": markdown.render(one, CONTEXT),
    }


@pytest.mark.parametrize("form", ["console", "junit", "markdown"])
def test_a_failure_tells_all_that_is_needed_to_believe_and_to_repair_it(form: str) -> None:
    text = all_forms(FAILED)[form].replace("&#58;", ":")
    for part in (
        "must",
        "a byte-order mark",
        "byte 17, event 2 of stream",
        "1 of 1",
        "\\u{feff}data",
        "WHATWG HTML 9.2.6",
        "strips one leading BOM",
        "openai-python (loses the first event), httpx-sse",
        "Write no signature.",
        "runs/d1.capture",
        "conformance judge 'my dump' --select sse.bom",
    ):
        assert part in text, part


@pytest.mark.parametrize("verdict", Verdict)
def test_every_selected_id_appears_in_every_form_whatever_its_verdict(verdict: Verdict) -> None:
    one = result(verdict, id="sse.bom")
    forms = all_forms(one)
    assert "sse.bom" in forms["console"]
    assert "`sse.bom`" in forms["markdown"]
    assert [case.get("name") for case in suite(one).iter("testcase")] == ["sse.bom"]


def test_the_console_ends_with_one_line_of_counts_and_the_exit_code() -> None:
    text = console.render(report(FAILED, result(Verdict.PASS, id="a.b")), CONTEXT, "1 record")
    last = text.splitlines()[-1]
    assert last == "1 record: 1 pass, 1 fail · 100 % of the musts conclusive · exit 1"


def test_failures_stand_before_what_is_only_noted() -> None:
    noted = result(Verdict.NON_STRICT, FOUND, id="a.first")
    text = console.render(report(noted, FAILED), CONTEXT, "x")
    assert text.index("FAIL  sse.bom") < text.index("non-strict  a.first")


def test_many_findings_of_one_check_are_counted_not_listed() -> None:
    many = result(Verdict.FAIL, *(replace(FOUND, offset=n) for n in range(10)))
    text = console.render(report(many), CONTEXT, "x")
    assert text.count("  found  ") == 3
    assert "and 7 more places" in text


@pytest.mark.parametrize(
    ("verdict", "strict", "tag"),
    [
        (Verdict.PASS, False, None),
        (Verdict.FAIL, False, "failure"),
        (Verdict.NON_STRICT, False, "system-out"),
        (Verdict.NON_STRICT, True, "failure"),
        (Verdict.INFO, True, "system-out"),
        (Verdict.INCONCLUSIVE, False, "skipped"),
        (Verdict.UNSUPPORTED, False, "skipped"),
        (Verdict.BLOCKED, False, "skipped"),
        (Verdict.INCONSISTENT, False, "failure"),
        (Verdict.HARNESS_ERROR, False, "error"),
    ],
)
def test_junit_says_with_its_own_words_what_a_verdict_means(
    verdict: Verdict, strict: bool, tag: str | None
) -> None:
    shows = verdict in (Verdict.FAIL, Verdict.NON_STRICT, Verdict.INFO, Verdict.INCONSISTENT)
    one = suite(result(verdict, *([FOUND] if shows else [])), strict=strict)
    assert [child.tag for child in one[0]] == ([tag] if tag else [])
    counted = {"failure": "failures", "error": "errors", "skipped": "skipped"}
    for name, attribute in counted.items():
        assert one.get(attribute) == str(int(tag == name))
    assert one.get("tests") == "1"


EVIL = Finding(
    rule=HOSTILE,
    message=HOSTILE,
    excerpt=HOSTILE.encode(),
    harms=(HOSTILE,),
    role=HOSTILE,
    dossier=HOSTILE,
)


def test_hostile_content_cannot_move_the_cursor() -> None:
    text = console.render(report(result(Verdict.FAIL, EVIL)), CONTEXT, HOSTILE)
    assert all(line.isprintable() for line in text.split("\n"))


def test_hostile_content_cannot_leave_its_place_in_xml() -> None:
    one = suite(result(Verdict.FAIL, EVIL))
    assert [child.tag for child in one.iter()] == ["testsuite", "testcase", "failure"]
    assert "<script>" in (one[0][0].text or "")


def test_hostile_content_cannot_break_a_markdown_table_or_bring_markup() -> None:
    bad = replace(result(Verdict.FAIL, EVIL), reason=HOSTILE)
    text = markdown.render(report(bad), CONTEXT)
    rows = [line for line in text.splitlines() if line.startswith("| `")]
    assert len(rows) == 1
    assert rows[0].replace("\\|", "").count("|") == 6
    assert "\n# head" not in text
    outside_code = re.sub(r"(?<!`)(`+)(?!`).*?(?<!`)\1(?!`)", "", text)
    assert "<script>" in text
    assert "<" not in outside_code
    assert "`" not in outside_code


def test_the_command_line_is_safe_to_paste() -> None:
    context = story.Context({}, ("conformance", "judge", "$(rm -rf ~)"))
    assert story.command(FAILED, context) == "conformance judge '$(rm -rf ~)' --select sse.bom"


def test_the_list_of_checks_shows_each_with_its_title() -> None:
    text = console.case_table([CASE])
    assert text.splitlines()[-1].split("  ")[0] == "sse.bom"
    assert CASE.title in text
