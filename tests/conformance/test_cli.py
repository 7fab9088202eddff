"""`conformance` from its command line: judge, list, show, and every way to call it wrongly."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from conformance import cli, list_command
from conformance.cli import build_parser, main
from conformance.report.json_report import loads
from conformance.schema import load_schema
from conformance.specs import Case, known_cases, load_profile, specs_dir

SAMPLES = Path(__file__).parents[1] / "data" / "wire-samples.jsonl"
CHUNK = (
    b'data: {"id":"c","object":"chat.completion.chunk","created":1700000000,"model":"m",'
    b'"choices":[{"index":0,"delta":{"role":"assistant","content":"Hi"},"finish_reason":null}]}\n\n'
    b'data: {"id":"c","object":"chat.completion.chunk","created":1700000000,"model":"m",'
    b'"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n'
)
GOOD = CHUNK + b"data: [DONE]\n\n"
BOM = b"\xef\xbb\xbf" + GOOD
BROKEN = CHUNK + b"Internal Server Error\n\n"


@dataclass(frozen=True)
class Done:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


class Command:
    """Runs `conformance` in this process, in a folder of its own."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *words: str) -> Done:
        self._capsys.readouterr()
        try:
            code = main(list(words))
        except SystemExit as stop:
            code = stop.code if isinstance(stop.code, int) else 1
        captured = self._capsys.readouterr()
        return Done(code, captured.out, captured.err)


@pytest.fixture
def run(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Command:
    monkeypatch.chdir(tmp_path)
    for name, body in (("good", GOOD), ("bom", BOM), ("broken", BROKEN)):
        Path(name).write_bytes(body)
    Path("nothing").mkdir()
    return Command(capsys)


# Verdicts and exit codes


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["good"], 0),
        (["bom"], 0),
        (["bom", "--strict"], 1),
        (["bom", "--clients", "httpx-sse"], 1),
        (["bom", "--clients", "httpx-sse", "--skip", "sse.bom"], 0),
        (["broken"], 1),
        (["broken", "--select", "sse.bom"], 0),
        (["good", "broken"], 1),
        (["good", "--min-conclusive", "100"], 1),
        (["good", "--select", "sse.bom", "--min-conclusive", "100%"], 0),
    ],
)
def test_the_exit_code_says_whether_anything_failed(
    run: Command, words: list[str], code: int
) -> None:
    done = run("judge", *words)
    assert (done.code, done.err) == (code, "")
    assert done.out.rstrip().endswith(f"exit {code}")


def test_a_failure_on_the_console_shows_its_bytes_and_how_to_run_it_again(run: Command) -> None:
    out = run("judge", "broken", "--strict").out
    assert "FAIL  sse.unprefixed-line" in out
    assert "Internal Server Error" in out
    again = "conformance judge --strict broken --select sse.unprefixed-line"
    assert again in out
    assert run(*again.split()[1:]).code == 1


def test_the_request_and_the_plain_text_come_from_files(run: Command) -> None:
    Path("request.json").write_text('{"messages": [], "stream": true}')
    Path("plain.txt").write_text("Hi")
    done = run(
        "judge", "good", "--request", "request.json", "--plain", "plain.txt", "--status", "201",
        "--content-type", "text/event-stream", "--json", "-",
    )  # fmt: skip
    failed = [each["id"] for each in done.json["results"] if each["verdict"] == "fail"]
    assert failed == ["http.status"]
    assert {each["api"] for each in done.json["results"]} == {"chat"}


def test_two_judgements_of_one_file_are_equal_bytes(run: Command) -> None:
    assert run("judge", "broken", "--json", "-") == run("judge", "broken", "--json", "-")


# Report files


def test_each_report_goes_to_its_file_and_the_console_stays(run: Command) -> None:
    done = run("judge", "broken", "--json", "a", "--json", "b", "--junit", "c", "--markdown", "d")
    assert "FAIL  sse.unprefixed-line" in done.out
    assert Path("a").read_text() == Path("b").read_text()
    written = json.loads(Path("a").read_text())
    jsonschema.validate(written, load_schema(specs_dir() / "report.schema.json"))
    assert (written["exit"], written["target"]) == (1, {"files": ["broken"]})
    assert ElementTree.parse("c").getroot()[0].get("tests") == str(len(written["results"]))
    assert "sse.unprefixed-line" in Path("d").read_text()


@pytest.mark.parametrize("form", ["json", "junit", "markdown"])
def test_a_dash_writes_that_report_alone_to_stdout(run: Command, form: str) -> None:
    done = run("judge", "broken", f"--{form}", "-")
    assert done.code == 1
    assert done.out[0] == {"json": "{", "junit": "<", "markdown": "#"}[form]
    assert "again" not in done.out or form != "json"


def test_every_selected_id_is_in_the_report(run: Command) -> None:
    done = run("judge", "good", "--json", "-")
    chat = {case.id for case in known_cases() if "chat" in case.api}
    assert {each["id"] for each in done.json["results"]} == chat


@pytest.mark.parametrize(
    ("words", "ids"),
    [
        (["--select", "sse.b*"], {"sse.bare-cr", "sse.bom"}),
        (["--select", "sse.b*", "--select", "done.missing", "--skip", "*.bom"],
         {"sse.bare-cr", "done.missing"}),
        (["--select", "sse.b*", "--gate", "wire,shape"], {"sse.bare-cr", "sse.bom"}),
    ],
)  # fmt: skip
def test_globs_and_gates_choose_the_checks(run: Command, words: list[str], ids: set[str]) -> None:
    done = run("judge", "good", *words, "--json", "-")
    assert {each["id"] for each in done.json["results"]} == ids


def test_a_profile_chooses_its_ids_and_is_named_in_the_report(run: Command) -> None:
    done = run("judge", "good", "--profile", "must-chat", "--json", "-")
    assert done.json["profile"] == "must-chat"
    assert [each["id"] for each in done.json["results"]] == list(load_profile("must-chat").ids)


def test_cases_of_ones_own_are_judged_with_the_others(run: Command) -> None:
    Path("mine").mkdir()
    Path("mine/x.yaml").write_text(
        "- id: acme.signature\n  title: No signature here\n  level: must\n  gate: wire\n"
        "  rules: [F03]\n  sources: [{standard: Acme, section: '1'}]\n  api: [chat]\n"
        "  provoke: {scenario: stream}\n  expect: {on: stream, check: sse.bom}\n  advice: Do.\n"
    )
    done = run("judge", "bom", "--specs", "mine", "--select", "acme.*", "--json", "-")
    assert done.code == 1
    assert done.json["results"][0]["id"] == "acme.signature"


# JSON lines of samples


def test_each_sample_has_a_report_of_its_own_in_every_form(run: Command) -> None:
    done = run("judge", str(SAMPLES), "--json", "a", "--junit", "b", "--markdown", "c")
    expected = [json.loads(line)["id"] for line in SAMPLES.read_text().splitlines()]
    assert done.code == 1
    lines = Path("a").read_bytes().splitlines()
    reports = [loads(line, "a") for line in lines]
    assert [report.sample for report in reports] == expected
    assert {report.exit for report in reports} == {0, 1}
    for line in lines[:3]:
        jsonschema.validate(json.loads(line), load_schema(specs_dir() / "report.schema.json"))
    suites = ElementTree.parse("b").getroot()
    assert [suite.get("name") for suite in suites] == expected
    assert Path("c").read_text().count("\n## Every check\n") == len(expected)
    assert [line.split()[0] for line in done.out.splitlines()] == expected
    assert {line.split()[1] for line in done.out.splitlines()} == {"ok", "fail"}


def test_one_sample_that_was_asked_for_is_shown_in_full(run: Command) -> None:
    only = ("judge", str(SAMPLES), "--sample", "W007", "--select", "stream.truncated")
    full = run(*only).out
    assert "FAIL  stream.truncated" in full
    assert f"again    {' '.join(('conformance', *only))}" in full


# Errors: one line on stderr that says what to do, exit code 2


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["judge"], "conformance judge: the following arguments are required: FILE"),
        (["judge", "absent"], "conformance: absent: No such file or directory"),
        (["judge", "nothing"], "conformance: nothing: expected dossier or capture files"),
        (["judge", "good", "--select", "sse.bomm"],
         "conformance: --select sse.bomm: no check matches (did you mean sse.bom?)"),
        (["judge", "good", "--skip", "zzz*"], "conformance: --skip zzz*: no check matches"),
        (["judge", "good", "--gate", "wires"],
         "conformance: --gate wires: not known (did you mean wire?)"),
        (["judge", "good", "--select", "sse.*", "--gate", "shape"],
         "conformance: no check is left to run"),
        (["judge", "good", "--clients", "openai-pyton"],
         "conformance: --clients openai-pyton: not known (did you mean openai-python?)"),
        (["judge", "good", "--dialect", "azur"],
         "conformance: --dialect azur: not known (did you mean azure?)"),
        (["judge", "good", "--profile", "nope"], "conformance: --profile nope: not known; known"),
        (["judge", "good", "--specs", "nothing"], "conformance: nothing:1: folder: expected"),
        (["judge", "good", "--json", "no/such/file"],
         "conformance: no/such/file: cannot be written: No such file or directory"),
        (["judge", "good", "--json", "-", "--junit", "-"], "conformance: only one report can go"),
        (["judge", "good", "--status", "abc"],
         "conformance judge: argument --status: expected an HTTP status such as 200; got 'abc'"),
        (["judge", "good", "--min-conclusive", "101"],
         "conformance judge: argument --min-conclusive: expected a percentage"),
        (["judge", "good", "--gate", "wire,"], "conformance judge: argument --gate: expected NAME"),
        (["judge", "good", "--sample", "W1"], "conformance: --sample W1: no such sample"),
        (["judge", "good", "--request", "good"], "conformance: good: expected a JSON object"),
        (["judge", "good", "--nonsense"], "conformance: unrecognized arguments: --nonsense"),
        (["show", "sse.bomm"], "conformance: sse.bomm: no such check (did you mean sse.bom?)"),
        (["lst"], "conformance: argument COMMAND: invalid choice: 'lst'"),
        ([], "conformance: the following arguments are required: COMMAND"),
    ],
)  # fmt: skip
def test_a_wrong_call_is_one_line_that_says_what_to_do(
    run: Command, words: list[str], message: str
) -> None:
    done = run(*words)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(message)
    assert done.err.count("\n") == 1


def test_a_hostile_name_in_an_error_cannot_move_the_cursor(run: Command) -> None:
    done = run("judge", "\x1b[2J\nabsent")
    assert done.err == "conformance: \\x1b[2J\\nabsent: No such file or directory\n"


def test_a_mistake_of_our_own_is_one_line_unless_debug_asks_for_more(
    run: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_: object) -> int:
        raise ZeroDivisionError("ours")

    monkeypatch.setattr(list_command, "list_cases", broken)
    done = run("list")
    assert (done.code, done.err) == (2, "conformance: internal error: ZeroDivisionError: ours\n")
    with pytest.raises(ZeroDivisionError):
        run("list", "--debug")


def test_an_interrupt_is_exit_code_two(run: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(_: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(list_command, "list_cases", interrupted)
    assert run("list") == Done(2, "", "conformance: interrupted\n")


# list and show


def test_the_list_names_every_check_in_every_form(run: Command) -> None:
    ids = [case.id for case in known_cases()]
    table = run("list").out.splitlines()
    assert [line.split()[0] for line in table[2:-1]] == ids
    assert table[-1] == f"{len(ids)} checks"
    assert [case["id"] for case in run("list", "--json").json] == ids
    rows = run("list", "--markdown").out.splitlines()
    assert [row.split("`")[1] for row in rows[2:]] == ids
    assert {row.replace("\\|", "").count("|") for row in rows} == {6}


def test_show_prints_the_whole_story_of_one_check(run: Command) -> None:
    case = next(case for case in known_cases() if case.id == "sse.bom")
    assert run("show", "sse.bom").out.splitlines() == list_command.story(case)


@pytest.mark.parametrize("case", known_cases(), ids=lambda case: case.id)
def test_the_story_of_a_check_leaves_nothing_of_it_out(case: Case) -> None:
    text = " ".join(" ".join(list_command.story(case)).split())
    for part in (
        case.title, case.level.value, case.gate, *case.rules, *case.api, case.scenario,
        case.advice, *case.inconclusive_when, *case.after, *case.needs,
        *(source.quote or "" for source in case.sources),
        *(report for source in case.sources for report in source.reports),
        *(harm.how for harm in case.harms),
    ):  # fmt: skip
        assert " ".join(part.split()) in text


# Starting, leaving


def test_building_the_whole_parser_loads_no_heavy_library() -> None:
    program = (
        "import sys; from conformance.cli import build_parser; build_parser();"
        "print(*sorted({'trio', 'httpx', 'yaml', 'jsonschema', 'tabulate', 'ssl', 'h11', 'torch'}"
        " & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stdout.strip()) == (0, "")


@pytest.mark.parametrize("command", [[], ["run"], ["judge"], ["list"], ["show"]])
def test_every_help_has_an_example(run: Command, command: list[str]) -> None:
    done = run(*command, "--help")
    assert done.code == 0
    assert f"example: {cli.EXAMPLES[command[0] if command else 'conformance'][:20]}" in " ".join(
        done.out.split()
    )


def test_the_examples_are_calls_that_parse() -> None:
    for line in cli.EXAMPLES.values():
        words = line.rpartition("; ")[2].split()
        assert words[0] == "conformance"
        assert build_parser().parse_args(words[1:])


def conformance(*words: str, **options: Any) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "conformance", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        **options,
    )


def test_a_reader_who_goes_away_changes_no_verdict(tmp_path: Path) -> None:
    (tmp_path / "broken").write_bytes(BROKEN)
    for words, code in ((("judge", "broken"), 1), (("list",), 0)):
        reading, writing = os.pipe()
        os.close(reading)
        done = subprocess.run(
            [sys.executable, "-m", "conformance", *words],
            stdout=writing,
            stderr=subprocess.PIPE,
            cwd=tmp_path,
        )
        os.close(writing)
        assert (done.returncode, done.stderr) == (code, b"")


def test_a_terminal_without_unicode_still_gets_the_report(tmp_path: Path) -> None:
    environment = os.environ | {"PYTHONIOENCODING": "ascii"}
    process = conformance("show", "sse.bom", cwd=tmp_path, env=environment)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (0, b"")
    assert out.isascii()
    assert b"\\u201c" in out
