"""What is asked is a function of the seed and the request's number."""

from __future__ import annotations

import json
import math
import statistics
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conformance.errors import SpecError, UsageError
from loadgen.lengths import Length, parse_length
from loadgen.parts import Prefix
from loadgen.prompts import load_prompts, parse_prompts
from loadgen.traces import Arrival
from loadgen.workload import Workload

CHAT_LOAD = Workload("chat", "m", seed=3)


def drawn(text: str, n: int = 20_000) -> list[int]:
    rng = Random("5:lengths")
    length = parse_length(text, "--input-tokens")
    return [length.draw(rng) for _ in range(n)]


def test_a_fixed_length_is_that_length() -> None:
    assert set(drawn("128", 50)) == {128}


def test_a_range_is_uniform_with_both_its_ends() -> None:
    found = drawn("4..7")
    counts = [found.count(n) for n in range(4, 8)]
    assert sum(counts) == len(found)
    assert all(abs(c / len(found) - 0.25) < 0.02 for c in counts)


@pytest.mark.parametrize("kind", ["normal", "lognormal"])
def test_mean_and_deviation_are_those_of_the_lengths_themselves(kind: str) -> None:
    found = drawn(f"{kind}:400,80")
    assert abs(statistics.fmean(found) - 400) < 4 * 80 / math.sqrt(len(found))
    assert abs(statistics.stdev(found) / 80 - 1) < 0.05


@given(st.sampled_from(["normal:1,500", "lognormal:2,9000", "1", "1..3"]), st.integers())
def test_a_length_is_never_less_than_one_token(text: str, seed: int) -> None:
    assert parse_length(text, "--x").draw(Random(seed)) >= 1


@pytest.mark.parametrize("text", ["128", "64..256", "normal:200,50", "lognormal:200,80.5"])
def test_a_length_is_written_as_it_is_read(text: str) -> None:
    assert str(parse_length(text, "--x")) == text


@pytest.mark.parametrize(
    "text", ["", "0", "-1", "9..3", "0..4", "normal:5", "normal:0,1", "gauss:1,2", "1e3", "9999999"]
)
def test_any_other_length_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(UsageError, match=r"^--input-tokens .*: expected"):
        parse_length(text, "--input-tokens")


def test_a_chat_request_holds_the_standard_members_and_no_other() -> None:
    body = json.loads(CHAT_LOAD.ask(0).body)
    assert set(body) == {"model", "messages", "max_tokens", "stream", "stream_options"}
    assert (body["stream"], body["stream_options"]) == (True, {"include_usage": True})
    assert (body["model"], body["max_tokens"]) == ("m", 64)


def test_a_generated_prompt_has_a_word_for_each_token_and_its_mark_first() -> None:
    ask = Workload("completions", "m", 3, Length("fixed", 200)).ask(7)
    first, *words = json.loads(ask.body)["prompt"].split()
    assert (first, len(words), ask.input_tokens) == (f"[{ask.mark}]", 200, 200)


def test_every_request_has_a_mark_and_a_hash_of_its_own() -> None:
    asks = [CHAT_LOAD.ask(index) for index in range(500)]
    assert len({ask.mark for ask in asks}) == len({ask.prompt_hash for ask in asks}) == 500


@given(st.integers(0, 10**9), st.integers(0, 10**6))
def test_a_request_comes_again_wherever_it_is_made(seed: int, index: int) -> None:
    load = Workload("chat", "m", seed, Length("uniform", 1, 50), Length("normal", 30, 10))
    first = load.ask(index)
    load.ask(index + 1)
    assert replace(load).ask(index) == first


def test_another_seed_asks_something_else() -> None:
    assert CHAT_LOAD.ask(0).body != Workload("chat", "m", seed=4).ask(0).body


def test_a_trace_says_the_lengths_and_what_it_leaves_out_is_drawn() -> None:
    trace = (Arrival(0, 5, 9), Arrival(1, None, 0), Arrival(2))
    load = Workload("chat", "m", 3, Length("fixed", 33), Length("fixed", 44), trace=trace)
    asked = [(a.input_tokens, a.output_tokens) for a in map(load.ask, range(4))]
    assert asked == [(5, 9), (33, 1), (33, 44), (5, 9)]


def test_prompts_of_a_file_are_used_in_turn_and_as_they_stand() -> None:
    prompts = parse_prompts(["Why?", "", '{"messages": [{"role": "system"}]}\r'], "chat", "f")
    load = Workload("chat", "m", 3, prompts=prompts)
    sent = [json.loads(load.ask(i).body)["messages"] for i in range(3)]
    assert sent[0] == sent[2] == [{"role": "user", "content": "Why?"}]
    assert sent[1] == [{"role": "system"}]
    assert load.ask(0).prompt_hash == load.ask(2).prompt_hash
    assert (load.ask(0).mark, load.ask(0).input_tokens) == (None, None)


@pytest.mark.parametrize(
    ("line", "api"),
    [
        ("{", "chat"),
        ('{"prompt": 5}', "chat"),
        ('{"prompt": ""}', "chat"),
        ('{"messages": []}', "chat"),
        ('{"messages": [{"role": "user"}]}', "completions"),
        ("{" * 50_000, "chat"),
        ('{"messages": [{"temperature": 1e999}]}', "chat"),
        ('{"messages": [{"x": [-1e999]}]}', "chat"),
        ('{"messages": [NaN]}', "chat"),
        (f'{{"messages": [{"[" * 300}{"]" * 300}]}}', "chat"),
    ],
)
def test_a_wrong_prompt_is_named_with_its_line(line: str, api: str) -> None:
    with pytest.raises(SpecError, match=r"^file:2: .*expected"):
        parse_prompts(["fine", line], api, "file")


def test_a_number_that_json_cannot_say_is_nobodys_affair_where_it_is_not_sent() -> None:
    assert parse_prompts(['{"prompt": "Why?", "score": NaN}'], "chat", "f") == ("Why?",)


def test_a_file_without_a_prompt_or_without_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("\n\n")
    with pytest.raises(UsageError, match="expected 1 to"):
        load_prompts(tmp_path / "empty", "chat")
    with pytest.raises(UsageError, match="cannot be read"):
        load_prompts(tmp_path / "none", "chat")


def test_two_sides_ask_the_same_but_for_the_mark() -> None:
    """A cache that has seen one side's prompt knows nothing of the other's."""
    one = Workload("chat", "m", 7)
    other = replace(one, side="b")
    for index in range(20):
        first, second = one.ask(index), other.ask(index)
        assert first.mark is not None
        assert second.mark is not None
        assert first.mark != second.mark
        assert first.body.replace(first.mark.encode(), second.mark.encode()) == second.body


def test_two_sides_share_prefixes_of_one_length_in_words_of_their_own() -> None:
    one = Workload("chat", "m", 7, prefix=Prefix(100.0, Length("uniform", 50, 90), 4))
    other = replace(one, side="b")
    for index in range(8):
        first, second = (
            json.loads(each.ask(index).body)["messages"][0]["content"].split()
            for each in (one, other)
        )
        assert len(first) == len(second)
        assert sum(a == b for a, b in zip(first, second, strict=True)) < 10
        assert one.ask(index).group == other.ask(index).group
