"""Kinds of requests in one load: plain ones, shared prefixes, the parts of a mix."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from conformance.capture import End, How
from conformance.errors import SpecError, UsageError
from loadgen.lengths import Length
from loadgen.measure import Row, row_from
from loadgen.mixes import load_mix
from loadgen.outcome import Fate
from loadgen.page import parts as parts_of_page
from loadgen.parts import Part, Prefix, described, parse_prefix
from loadgen.played import Played
from loadgen.reload import loads
from loadgen.slo import Met
from loadgen.strata import strata
from loadgen.summary import Window, summarise
from loadgen.workload import Workload
from tests.conformance.attacks import says
from tests.conformance.hostile_server import JSON, Asked, Attack, framed, plain_answer
from tests.loadgen import captures
from tests.loadgen.playing import NO_CHECKS, STEP, against, against_reference, setup
from tests.loadgen.rows import row
from tests.loadgen.test_reload import text

LOAD = ("--rate", "5", "--requests", "20", "--output-tokens", "10")
PLAIN = Workload("chat", "m", 3, plain=100.0)

# -- plain requests --------------------------------------------------------------------------------


def test_a_plain_load_has_an_end_and_no_first_token() -> None:
    result = against_reference(*LOAD, "--stream", "off").result
    rows = result.rows
    assert {row.fate for row in rows} == {Fate.COMPLETE}
    assert {(row.streams, row.first_token, row.tpot, row.stall) for row in rows} == {
        (False, None, None, None)
    }
    assert all(row.completion_tokens == 10 and row.prompt_tokens for row in rows)
    e2e, ttft = (result.summary.metrics[name] for name in ("e2e", "ttft"))
    assert (e2e.n, ttft.n) == (20, 0)
    assert e2e.least is not None
    assert 8 * STEP < e2e.least < 13 * STEP
    assert result.summary.adjusted["ttft"].n == 0
    assert result.summary.adjusted["e2e"].n == 20
    assert (result.tally.judged, result.tally.broken, result.exit) == (20, set(), 0)
    assert (result.summary.rates["output-tokens"] or 0) > 40


def test_a_share_is_plain_and_stands_apart() -> None:
    result = against_reference(*LOAD, *NO_CHECKS, "--plain", "40%", "--slo", "ttft:p50<1s").result
    kinds = {each.name: each.books.sent for each in result.strata if each.kind == "answer"}
    assert set(kinds) == {"plain", "streamed"}
    assert 0 < kinds["plain"] < 13
    assert result.summary.metrics["ttft"].n == kinds["streamed"]
    assert (result.judged[0].n, result.judged[0].met) == (kinds["streamed"], Met.YES)
    assert result.summary.goodput == 1.0
    assert loads("".join(text(result)), "x")[0].strata == result.strata


def test_a_request_in_one_piece_asks_for_no_stream_and_nothing_of_one() -> None:
    body = json.loads(PLAIN.ask(0).body)
    assert body["stream"] is False
    assert "stream_options" not in body


def fate_of_plain(body: bytes, *, cut: bool = False, end: End | None = None) -> Row:
    """Of an answer to a plain request."""
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    asked = json.loads(PLAIN.ask(0).body)
    made = captures.capture([(0.5, body)], head=head % (len(body) + cut), asked=asked, end=end)
    return row_from(Played(0, 0.0, 0.0, made), PLAIN.ask(0), "chat")


WHOLE = plain_answer()


@pytest.mark.parametrize(
    ("body", "fate"),
    [
        (WHOLE, Fate.COMPLETE),
        (WHOLE.replace(b'"stop"', b"null"), Fate.UNFINISHED),
        (plain_answer(""), Fate.TOKENLESS),
        (b'{"choices": []}', Fate.EMPTY),
        (b"", Fate.EMPTY),
        (b'{"error": {"message": "no"}}', Fate.ERROR_BEFORE_TOKEN),
        (b"data: [DONE]\n\n", Fate.UNREADABLE),
        (b"[1]", Fate.UNREADABLE),
    ],
)
def test_a_plain_answer_is_whole_or_what_it_lacks(body: bytes, fate: Fate) -> None:
    found = fate_of_plain(body)
    assert (found.fate, found.last_event) == (fate, 0.5 if fate is Fate.COMPLETE else None)


@pytest.mark.parametrize(
    ("end", "fate"),
    [
        (End(How.CLOSED, 1.0), Fate.TRUNCATED),
        (End(How.RESET, 1.0), Fate.TRUNCATED),
        (End(How.CLOCK, 1.0, "progress"), Fate.STALLED),
        (End(How.LEFT, 1.0, left="fin"), Fate.LEFT),
        (End(How.BOUND, 1.0, "body"), Fate.OVER_LONG),
    ],
)
def test_a_plain_answer_that_is_cut_is_no_success(end: End, fate: Fate) -> None:
    assert fate_of_plain(WHOLE, cut=True, end=end).fate is fate


def test_what_a_plain_answer_says_is_looked_through_for_marks() -> None:
    marks: list[str] = []

    def choose(asked: Asked) -> Attack | None:
        if asked.method != "POST" or asked.body is None:
            return None
        marks.append(asked.body["messages"][0]["content"][:14])
        return says(framed(plain_answer(f"you said {marks[-2:][0]}"), JSON))

    ran = against(choose, "--rate", "5", "--requests", "3", "--stream", "off").result
    assert [(each.index, each.other) for each in ran.tally.crossed] == [(1, 0), (2, 1)]


def test_tokens_of_a_plain_answer_count_at_its_end() -> None:
    plain = row(0, 1.0, chunks=0, streams=False, completion_tokens=30, last_event=2.0)
    rates = summarise([plain], Window(0.0, 3.0)).rates
    assert rates["output-tokens"] == 10.0
    assert rates["prompt-tokens"] == pytest.approx(10 / 3)
    assert summarise([plain], Window(0.0, 1.5)).rates["output-tokens"] == 0.0


# -- shared prefixes -------------------------------------------------------------------------------


def messages(load: Workload, index: int) -> list[dict[str, str]]:
    found: list[dict[str, str]] = json.loads(load.ask(index).body)["messages"]
    return found


def test_those_of_a_group_share_a_prefix_and_the_mark_stands_behind_it() -> None:
    load = Workload("chat", "m", 3, prefix=parse_prefix("75%:50:3", "--prefix"))
    asks = [load.ask(index) for index in range(400)]
    texts: dict[int | None, set[str]] = {}
    for ask in asks:
        first, *rest = json.loads(ask.body)["messages"]
        texts.setdefault(ask.group, set()).add(first["content"] if rest else "")
        assert (first["role"], len(rest)) == (("user", 0) if ask.group is None else ("system", 1))
        own = [first, *rest][-1]["content"]
        assert own.startswith(f"[{ask.mark}]")
        assert ask.input_tokens == 128 + (0 if ask.group is None else 50)
    assert {group: len(each) for group, each in texts.items()} == {None: 1, 0: 1, 1: 1, 2: 1}
    assert 250 < sum(ask.group is not None for ask in asks) < 350
    assert len(set.union(*texts.values())) == 4


def test_a_completion_begins_with_the_prefix_too() -> None:
    load = Workload("completions", "m", 3, prefix=Prefix(100, Length("fixed", 5), 1))
    prompts = [json.loads(load.ask(index).body)["prompt"] for index in range(2)]
    assert [p.split()[:5] for p in prompts] == [prompts[0].split()[:5]] * 2
    assert prompts[0].split()[5] == f"[{load.ask(0).mark}]"


def test_the_first_of_a_group_is_told_from_those_after_it() -> None:
    result = against_reference(
        *LOAD, *NO_CHECKS, "--prefix", "100%:20:3", "--tokenizer", "words"
    ).result
    kinds = {each.name: each.books.sent for each in result.strata if each.kind == "prefix"}
    assert kinds == {"first of its prefix": 3, "later of its prefix": 17}


def test_the_first_is_the_one_that_was_sent_first() -> None:
    rows = [row(n, 9.0 - n, group=1, ttft=float(n + 1)) for n in range(3)]
    found = {each.name: each.metrics["ttft"].most for each in strata(rows, rows)}
    assert found == {"first of its prefix": 3.0, "later of its prefix": 2.0}


@pytest.mark.parametrize("spec", ["", "50%", "50%:10", "0%:10:2", "50%:0:2", "50%:10:0", "5:9:2"])
def test_any_other_prefix_is_refused_in_one_line(spec: str) -> None:
    with pytest.raises(UsageError, match=r"^--prefix .*: expected"):
        parse_prefix(spec, "--prefix")


# -- mixes -----------------------------------------------------------------------------------------

MIX = """\
- name: chat
  weight: 3
  input_tokens: 20..40
  output_tokens: 10
  turns: 1..3
- name: batch
  weight: 1
  output_tokens: 5
  stream: false
- {name: asked, prompts: prompts.txt, prefix: "50%:10:2", weight: 0.5}
"""


@pytest.fixture
def mix(tmp_path: Path) -> Path:
    (tmp_path / "prompts.txt").write_text("Why?\nWho?\n")
    file = tmp_path / "mix.yaml"
    file.write_text(MIX)
    return file


def test_every_unit_is_of_one_part_by_weight(mix: Path) -> None:
    load = Workload("chat", "m", 3, mix=load_mix(mix, "chat"))
    names = [load.drawn(unit).part.name for unit in range(900)]
    assert 540 < names.count("chat") < 660
    assert 150 < names.count("batch") < 250
    assert load.stride == 3
    batch = load.ask(3 * names.index("batch"))
    assert (batch.streams, batch.part, batch.output_tokens) == (False, "batch", 5)
    asked = messages(load, 3 * names.index("asked"))
    assert asked[-1]["content"] in ("Why?", "Who?")


def test_figures_are_told_for_each_part(mix: Path) -> None:
    words = ("--rate", "20", "--requests", "16", "--mix", str(mix), "--tokenizer", "words")
    result = against_reference(*words, *NO_CHECKS).result
    parts = {each.name: each.books for each in result.strata if each.kind == "part"}
    assert set(parts) == {"chat", "batch", "asked"}
    assert sum(each.scheduled for each in parts.values()) == result.summary.books.scheduled
    assert (result.summary.books.failed, result.exit) == (0, 0)
    assert {row.part: row.streams for row in result.rows}["batch"] is False
    assert loads("".join(text(result)), "x")[0].strata == result.strata
    page = "".join(parts_of_page([result], ["run"]))
    assert "<td>part: batch</td>" in page
    assert "prompt tokens: " in page


def test_parts_that_differ_in_their_think_time_alone_are_told_apart(tmp_path: Path) -> None:
    file, told = tmp_path / "mix.yaml", []
    for think in ("1", "2", "0"):
        file.write_text(f"- {{name: a, turns: 2, think: {think}}}")
        told.append(described(load_mix(file, "chat")[0]).get("think"))
    assert told == ["fixed:1,0", "fixed:2,0", None]


def test_a_part_may_end_in_any_digit_there_is(tmp_path: Path) -> None:
    file = tmp_path / "mix.yaml"
    names = ["phase ①", "phase ²", "phase 10", "phase 9", "phase " + "9" * 20]
    file.write_text("".join(f"- name: {name}\n" for name in names))
    words = ("--rate", "20", "--requests", "30", "--mix", str(file), "--tokenizer", "words")
    result = against_reference(*words, *NO_CHECKS).result
    assert [each.name for each in result.strata if each.name in names][:2] == [
        "phase 9",
        "phase 10",
    ]


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("[]", "expected a list of 1 to 100 parts"),
        ("- weight: 1", "expected a name"),
        ("- name: a\n- name: a", "a: expected once"),
        ("- name: a\n  tokens: 5", "tokens: expected one of name, weight"),
        ("- name: a\n  weight: 0", "expected a number above 0"),
        ("- name: a\n  stream: maybe", "expected true or false"),
        ("- name: a\n  input_tokens: few", "input_tokens few: expected a number"),
        ("- name: a\n  think: 3", "expected turns as well"),
        ("- name: a\n  turns: [1]", "expected a text or a number"),
        ("- name: a\n  turns: ''", "expected a text or a number"),
        ("- name: a\n  prompts: none.txt", "cannot be read"),
    ],
)
def test_a_wrong_part_is_named_with_its_line(tmp_path: Path, content: str, why: str) -> None:
    file = tmp_path / "mix.yaml"
    file.write_text(content)
    with pytest.raises(SpecError) as told:
        load_mix(file, "chat")
    assert why in str(told.value)
    assert str(told.value).startswith(f"{file}:")


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--mix", "m", "--turns", "2", "--stream", "off"), "--turns, --stream: with --mix each"),
        (("--stream", "off", "--plain", "5%"), "give one of them"),
        (("--plain", "5"), "--plain 5: expected a share"),
        (("--stream", "off", "--leave", "5%:events:3"), "a plain answer has no events: events"),
        (("--plain", "5%", "--read", "5%:stall:3:1"), "a plain answer has no events: stall"),
        (("--tokenizer", "usage", "--prompts", "x"), "--tokenizer is for generated prompts"),
    ],
)
def test_what_makes_no_sense_together_is_one_line(words: tuple[str, ...], why: str) -> None:
    with pytest.raises(UsageError) as told:
        setup("http://h", "--rate", "1", "--requests", "1", *words)
    assert why in str(told.value)
    assert len(str(told.value).splitlines()) == 1


def test_a_part_alone_is_the_whole_load() -> None:
    assert Workload("chat", "m", 3).parts == (Part(),)
