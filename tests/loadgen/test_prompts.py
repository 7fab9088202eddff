"""Conversations of a file: what is asked, turn by turn, and how long an answer may be."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from conformance.errors import SpecError, UsageError
from loadgen.parts import parse_turns
from loadgen.prompts import Conversation, load_prompts, parse_prompts
from loadgen.workload import Workload
from tests.loadgen.playing import against, setup


def says(*pairs: tuple[str, str]) -> dict[str, Any]:
    return {"id": "x", "conversations": [{"from": who, "value": what} for who, what in pairs]}


TALK = says(("system", "Be brief."), ("human", "Why?"), ("gpt", "one two three"), ("human", "And?"))
SHORT = says(("gpt", "left over"), ("user", "Who?"), ("assistant", "it is me"))
EMPTY = says(("gpt", "nobody asked"))


@pytest.mark.parametrize("form", ["array", "lines"])
def test_conversations_come_as_an_array_or_line_by_line(tmp_path: Path, form: str) -> None:
    file = tmp_path / "talk.json"
    each = [TALK, SHORT, EMPTY]
    text = json.dumps(each) if form == "array" else "\n".join(map(json.dumps, each))
    file.write_text(text)
    assert load_prompts(file, "chat") == (
        Conversation(("Why?", "And?"), (3, None), "Be brief."),
        Conversation(("Who?",), (3,)),
    )


def load(turns: str | None = None, **more: Any) -> Workload:
    prompts = parse_prompts([json.dumps(TALK), json.dumps(SHORT)], "chat", "f")
    length = None if turns is None else parse_turns(turns, "--turns")
    return Workload("chat", "m", 3, prompts=prompts, turns=length, by_answers=True, **more)


def asked(workload: Workload, index: int, *said: str) -> Any:
    return json.loads(workload.ask(index, said).body)["messages"]


def test_without_turns_the_first_question_is_the_prompt() -> None:
    assert asked(load(), 0) == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Why?"},
    ]
    assert asked(load(), 1) == [{"role": "user", "content": "Who?"}]
    assert asked(load(), 2) == asked(load(), 0)


def test_with_turns_its_questions_are_those_of_the_session_and_no_more() -> None:
    workload = load("5")
    assert [workload.indices(unit) for unit in range(2)] == [[0, 1], [5]]
    roles = [each["role"] for each in asked(workload, 1, "because")]
    assert roles == ["system", "user", "assistant", "user"]
    assert asked(workload, 1, "because")[2]["content"] == "because"


def test_an_answer_may_be_as_long_as_that_of_the_file() -> None:
    """Three words are four tokens; where the file has no answer the option's own length stands."""
    workload = load("5")
    assert [workload.ask(index).output_tokens for index in (0, 1)] == [4, 64]


def test_what_was_said_of_lengths_goes_first(tmp_path: Path) -> None:
    file = tmp_path / "talk.json"
    file.write_text(json.dumps([TALK]))
    base = ("http://h", "--rate", "1", "--requests", "1", "--prompts", str(file))
    told, given = setup(*base), setup(*base, "--output-tokens", "7")
    assert (told.workload.by_answers, given.workload.by_answers) == (True, False)
    assert told.described["output_tokens"] == "words of the answers in the file × 4/3"
    assert given.workload.ask(0).output_tokens == 7


def test_texts_of_a_file_are_a_sessions_turns_one_after_another() -> None:
    prompts = parse_prompts(
        ["a", "b", '{"messages": [{"role": "user", "content": "c"}]}'], "chat", "f"
    )
    workload = Workload("chat", "m", 3, prompts=prompts, turns=parse_turns("2", "--turns"))
    texts = [each["content"] for each in asked(workload, 1, "said")]
    assert texts == ["a", "said", "b"]
    assert [each["content"] for each in asked(workload, 5, "said")] == ["c", "said", "c"]


def test_a_conversation_is_played_to_its_end(tmp_path: Path) -> None:
    file = tmp_path / "talk.jsonl"
    file.write_text(json.dumps(TALK) + "\n" + json.dumps(SHORT))
    words = ("--concurrency", "1", "--requests", "2", "--prompts", str(file), "--turns", "9")
    ran = against(lambda asked: None, *words)
    assert [len(each.body["messages"]) for each in ran.asked if each.body] == [2, 4, 1]
    assert ran.outcomes == {"complete": 3}


@pytest.mark.parametrize(
    "value", [5, [5], [{"from": "human"}], [{"from": 1, "value": "x"}], {"from": "human"}]
)
def test_what_is_no_conversation_is_named_with_its_line(value: Any) -> None:
    with pytest.raises(SpecError, match=r"^f:2: conversations: expected a list of objects"):
        parse_prompts(["fine", json.dumps({"conversations": value})], "chat", "f")


def test_a_broken_array_is_no_text_and_a_text_in_brackets_is_one(tmp_path: Path) -> None:
    broken, text = tmp_path / "broken.json", tmp_path / "text.txt"
    broken.write_text('[{"conversations": [')
    text.write_text("[INST] Why? [/INST]\n")
    with pytest.raises(SpecError, match="expected a JSON array"):
        load_prompts(broken, "chat")
    assert load_prompts(text, "chat") == ("[INST] Why? [/INST]",)


def test_a_file_in_which_nobody_asks_is_refused() -> None:
    with pytest.raises(UsageError, match="expected 1 to"):
        parse_prompts([json.dumps(EMPTY)], "chat", "f")
