"""Prompts of so many tokens: whoever knows the costs of words, the lengths come out."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from conformance.capture import Json
from conformance.errors import TargetError, UsageError
from loadgen import tokenizer_file
from loadgen.asked import lengths
from loadgen.counting import _counted, costs_by_counts, costs_by_ids
from loadgen.likeness import unlike
from loadgen.spelling import (
    _APART,
    _MARKS,
    BY_ENDPOINT,
    BY_USAGE,
    WORDS,
    Spelling,
    costs_from,
    learnt,
    mark_of,
)
from tests.conformance.attacks import says
from tests.conformance.hostile_server import (
    EVENTS,
    JSON,
    Asked,
    Attack,
    chunk,
    framed,
    head,
)
from tests.loadgen.playing import Ran, against
from tests.loadgen.rows import failed, row

LOAD = ("--rate", "5", "--requests", "20", "--input-tokens", "40..200")
SEVERAL = tuple(len(word) - 2 for word in WORDS)  # tokens of each: 1 to 8
TEMPLATE, SYSTEM = 9, 4


def test_marks_are_told_apart_for_ever() -> None:
    assert math.gcd(_APART, _MARKS) == 1
    assert len({mark_of(7, unit) for unit in range(5000)}) == 5000
    mark = mark_of(7, 3)
    assert all(c.isdigit() for c in mark[::2])
    assert all(c in "abcdef" for c in mark[1::2])


@given(st.integers(0, 400), st.integers())
def test_words_of_several_tokens_are_chosen_so_that_the_sum_is_right(n: int, seed: int) -> None:
    costs = dict(zip(WORDS, SEVERAL, strict=True))
    text = Spelling("x", WORDS, SEVERAL).text(Random(seed), n)
    assert sum(costs[word] for word in text.split()) == n


def test_what_words_cannot_sum_to_is_left_out() -> None:
    assert Spelling("x", ("aa", "bb"), (4, 6)).text(Random(1), 9).split() == ["aa", "aa"]


def test_words_of_one_token_are_taken_alone_where_there_are_enough() -> None:
    found = learnt("x", [max(1, cost - 1) for cost in SEVERAL])
    assert set(found.words) == {word for word in WORDS if len(word) < 5}
    assert (found.costs, found.per_word) == ((), 1.0)
    few = learnt("x", [2] * (len(WORDS) - 1) + [1])
    assert (few.words, few.costs[-1]) == (WORDS, 1)


@pytest.mark.parametrize(
    ("ids", "costs"),
    [((9, 5, 9, 5, 6, 9), (1, 2)), ((9, 5, 9), None), ((9, 9, 5, 9), None), ((), None)],
)
def test_costs_stand_between_the_separators(ids: Sequence[int], costs: Any) -> None:
    assert costs_from(ids, 9, 2) == costs


class Tokenizer:
    """A word has as many tokens as `costs` say, any other character is one."""

    def __init__(self, costs: Sequence[int] = SEVERAL) -> None:
        self.costs = dict(zip(WORDS, costs, strict=True))

    def ids(self, text: str) -> list[int]:
        found: list[int] = []
        for piece in text.split(" "):
            if piece in self.costs:
                first = 1000 + 10 * WORDS.index(piece)
                found += range(first, first + self.costs[piece])
            else:
                found += [ord(each) for each in piece]
        return found

    def count(self, body: Mapping[str, Any]) -> int:
        """As a template would have it."""
        if "messages" not in body:
            return len(self.ids(body["prompt"]))
        total = TEMPLATE
        for each in body["messages"]:
            total += len(self.ids(each["content"])) + (SYSTEM if each["role"] == "system" else 0)
        return total


def test_two_questions_tell_what_every_word_costs() -> None:
    asked: list[str] = []

    async def ids(text: str) -> Sequence[int]:
        asked.append(text)
        return Tokenizer().ids(text)

    assert trio.run(costs_by_ids, ids) == SEVERAL
    assert len(asked) <= 5  # words of several tokens are no good between others


def test_who_only_counts_is_asked_for_each_word() -> None:
    async def count(members: Mapping[str, Json]) -> int:
        return Tokenizer().count(members)

    assert trio.run(costs_by_counts, count) == SEVERAL


def server(tokenize: str | None = None, usage: bool = True, costs: Sequence[int] = SEVERAL) -> Any:
    """Counts in /tokenize ("ids", "count" or not at all) and in its usage."""
    tokenizer = Tokenizer(costs)

    def choose(asked: Asked) -> Attack | None:
        if asked.body is None:
            return None
        count = tokenizer.count(asked.body)
        if asked.target == "/tokenize" and tokenize:
            prompt = asked.body.get("prompt")
            ids = tokenizer.ids(prompt) if tokenize == "ids" and prompt is not None else None
            return says(framed(json.dumps({"count": count, "tokens": ids}).encode(), JSON))
        if not asked.streams:
            return says(framed(b"{}", status=b"404 Not Found"))
        told = {"prompt_tokens": count, "completion_tokens": 1, "total_tokens": count + 1}
        body = chunk({"role": "assistant", "content": "x"}) + chunk({}, "stop")
        body += chunk({}, None, usage=told, choices=[]) if usage else b""
        return says(head(EVENTS, b"Connection: close") + body + b"data: [DONE]\n\n")

    return choose


def off(ran: Ran) -> list[int]:
    rows = ran.result.rows
    return [(r.prompt_tokens or 0) - (r.input_asked or 0) for r in rows]


@pytest.mark.parametrize("how", ["ids", "count"])
def test_with_the_endpoints_tokenizer_every_length_is_exact(how: str) -> None:
    ran = against(server(how), *LOAD, "--prefix", "50%:30:2")
    assert off(ran) == [0] * 20
    assert len({row.group for row in ran.result.rows}) > 1
    load = ran.result.load
    assert load["input_tokens_by"] == BY_ENDPOINT
    assert load["tokens_of_template_and_mark"] == TEMPLATE + 14
    assert load["tokens_checked"] == "6 of 6 prompts counted again came out exactly"
    generations = [asked for asked in ran.asked if asked.streams]
    assert len(generations) == 20


def test_without_it_usage_says_what_a_word_costs_on_the_average() -> None:
    ran = against(server(), *LOAD, "--prefix", "50%:30:2")
    load = ran.result.load
    assert load["input_tokens_by"] == BY_USAGE
    assert load["tokens_a_word"] == round(sum(SEVERAL) / len(SEVERAL), 4)
    found = ran.result.lengths
    assert found is not None
    assert (found.n, abs(found.median) < 8, found.most < 40) == (20, True, True)


def test_where_every_word_is_a_token_usage_is_enough_to_be_exact() -> None:
    ran = against(server(costs=[1] * len(WORDS)), *LOAD, "--prefix", "50%:30:2")
    assert off(ran) == [0] * 20
    assert {row.group for row in ran.result.rows} == {None, 0, 1}
    assert ran.result.load["input_tokens_by"] == BY_USAGE


def test_who_never_answers_tokenize_is_asked_once() -> None:
    usual = server()

    async def silent(stream: trio.SocketStream) -> None:
        await trio.sleep(99)

    def choose(asked: Asked) -> Attack | None:
        attack: Attack | None = usual(asked)
        return silent if "tokenize" in asked.target else attack

    ran = against(choose, *LOAD)
    assert ran.result.load["input_tokens_by"] == BY_USAGE
    assert sum("tokenize" in asked.target for asked in ran.asked) == 1


def test_without_usage_a_word_is_a_token_and_the_report_says_so() -> None:
    ran = against(server(usage=False), *LOAD)
    assert ran.result.load["input_tokens_by"] == "one English word a token"
    assert ran.result.lengths is None


@pytest.mark.parametrize("count", [-1, 10**400, "7", True])
def test_what_no_prompt_has_is_no_count_whatever_tokenize_says(count: Json) -> None:
    assert _counted({"count": count}) is None
    assert _counted({"count": 7}) == 7


def test_nobody_is_asked_where_no_length_was() -> None:
    ran = against(server("ids"), "--rate", "5", "--requests", "3")
    assert len(ran.asked) == 3


@pytest.mark.parametrize("how", ["endpoint", "usage"])
def test_what_was_asked_for_by_name_and_cannot_be_is_an_error(how: str) -> None:
    why = r"has no /tokenize|tells no usage"
    with pytest.RaisesGroup(pytest.RaisesExc(TargetError, match=why), flatten_subgroups=True):
        against(server(usage=False), *LOAD, "--tokenizer", how)


def test_prompts_hang_on_seed_index_and_what_was_learnt_alone() -> None:
    first, second = (against(server("ids"), *LOAD) for _ in range(2))
    assert [r.prompt_hash for r in first.result.rows] == [r.prompt_hash for r in second.result.rows]
    assert unlike([first.result], [second.result]) is None


def test_another_tokenizer_has_other_words_for_as_many_tokens() -> None:
    """Which is no reason not to compare two models."""
    first = against(server("ids"), *LOAD)
    second = against(server("ids"), *LOAD)
    told = dict(second.result.load) | {"tokens_of_template_and_mark": 3}
    rows = tuple(row(r.index, r.intended, prompt_hash="other") for r in second.result.rows)
    assert unlike([first.result], [replace(second.result, load=told, rows=rows)]) is None


def test_how_far_asked_and_told_are_apart() -> None:
    rows = [row(n, n, input_asked=100, prompt_tokens=100 + n) for n in range(20)]
    rows += [row(20, 20, input_asked=5, prompt_tokens=500, turn=1), failed(21, 21)]
    found = lengths(rows)
    assert found is not None
    assert (found.n, found.exact, found.median, found.p95, found.most) == (20, 1, 9.5, 18, 19)
    assert lengths([row(0, 0)]) is None


# -- a file ----------------------------------------------------------------------------------------


def test_a_file_without_the_library_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "tokenizer.json"
    file.write_text("{}")
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(UsageError, match=r"needs the library tokenizers: pip install tokenizers$"):
        tokenizer_file.load(tmp_path)
    with pytest.raises(UsageError, match=r"expected auto, endpoint, usage, words, a FILE"):
        tokenizer_file.load(tmp_path / "none")


@pytest.mark.torch
def test_a_local_file_knows_the_words_and_one_request_the_template(tmp_path: Path) -> None:
    tokenizers = pytest.importorskip("tokenizers")
    vocabulary = {word: n for n, word in enumerate(["[UNK]", *WORDS, "The"])}
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="[UNK]"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    made.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "broken.json").write_text("{")
    with pytest.raises(UsageError, match="cannot be read"):
        tokenizer_file.load(tmp_path / "broken.json")
    made.enable_padding(length=512)
    made.enable_truncation(2)
    made.save(str(tmp_path / "tokenizer.json"))
    assert len(tokenizer_file.ids(tokenizer_file.load(tmp_path), "The time year")) == 3
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel({"a": 0}, unk_token="[UNK]"))
    with pytest.raises(UsageError, match=r"a prompt cannot be encoded: .*UNK"):
        tokenizer_file.ids(made, "b")
    ran = against(server(), *LOAD, "--tokenizer", str(tmp_path))
    assert ran.result.load["tokens_a_word"] == 1.0
    assert ran.result.load["tokens_of_template_and_mark"] == TEMPLATE + 14
