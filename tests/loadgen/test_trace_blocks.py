"""Prompts of a trace share what its hash_ids say: blocks of 512 tokens, from the first on."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conformance.errors import SpecError, UsageError
from loadgen import traces
from loadgen.spelling import BY_ENDPOINT, BY_USAGE, WORDS, Spelling
from loadgen.traces import BLOCK, Arrival, parse
from loadgen.turns import blocks_of
from loadgen.workload import Workload
from tests.loadgen.playing import against, setup
from tests.loadgen.test_spelling import SEVERAL, Tokenizer, off, server


def line(tokens: int | None, ids: object, at: int = 0) -> str:
    members = {"timestamp": at, "input_length": tokens, "output_length": 4, "hash_ids": ids}
    return json.dumps(members)


def load(*rows: tuple[int, Sequence[int]], spelling: Spelling | None = None) -> Workload:
    trace = tuple(Arrival(n, tokens, 4, tuple(ids)) for n, (tokens, ids) in enumerate(rows))
    return Workload("completions", "m", 3, trace=trace, spelling=spelling or Spelling())


def words(workload: Workload, index: int) -> list[str]:
    text = json.loads(workload.ask(index).body)["prompt"]
    assert isinstance(text, str)
    return text.split()


def alike(one: Sequence[object], other: Sequence[object]) -> int:
    """How many of the first are the same."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((n for n, (a, b) in pairs if a != b), min(len(one), len(other)))


def test_a_row_brings_a_number_for_each_block() -> None:
    first, second = parse([line(513, [7, 8]), line(0, [])], "t")
    assert (first.blocks, second.blocks) == ((7, 8), ())
    assert parse(['{"timestamp": 0, "input_length": 513}'], "t")[0].blocks == ()
    ours = '{"at": 1, "input_tokens": 513, "hash_ids": [7, %s]}'
    assert parse([ours % 8], "t") == (Arrival(1.0, 513, None, (7, 8)),)
    with pytest.raises(SpecError, match=r"^t:1: hash_ids: expected 2, one for .* input_tokens"):
        parse([ours % "8, 9"], "t")


@pytest.mark.parametrize(
    ("tokens", "ids"),
    [(513, [7]), (512, [7, 8]), (0, [7]), (None, [7]), (9, "7"), (9, [7.0]), (9, [True])],
)
def test_hash_ids_that_do_not_fit_are_named_with_their_line(
    tokens: int | None, ids: object
) -> None:
    with pytest.raises(SpecError, match=r"^trace:2: hash_ids: expected "):
        parse([line(9, [7]), line(tokens, ids)], "trace")


def test_a_file_has_only_so_many_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traces, "MOST_BLOCKS", 3)
    rows = [line(600, [1, 2]), line(9, [3]), line(9, [4])]
    assert len(parse(rows[:2], "t")) == 2
    with pytest.raises(SpecError, match=r"^t:3: hash_ids: expected at most 3"):
        parse(rows, "t")


def test_prompts_share_the_leading_blocks_that_have_one_number_and_no_more() -> None:
    made = load((1600, [1, 2, 3, 4]), (1500, [1, 2, 9]), (1600, [8, 2, 3, 4]), (1100, [1, 2, 3]))
    first, second, third, fourth = (words(made, n) for n in range(4))
    # One word more or two may be alike by chance.
    assert 0 <= alike(first, second) - 2 * BLOCK < 4
    assert alike(first, third) < 4
    assert alike(first, fourth) == 1100
    assert [len(each) - 1 for each in (first, second, third, fourth)] == [1600, 1500, 1600, 1100]


def test_two_rows_of_one_prompt_differ_in_their_mark_alone() -> None:
    made = load((700, [5, 6]), (700, [5, 6]))
    first, second = words(made, 0), words(made, 1)
    assert first[:-1] == second[:-1]
    assert (first[-1], second[-1]) == (f"[{made.ask(0).mark}]", f"[{made.ask(1).mark}]")
    assert first[-1] != second[-1]


def test_blocks_hang_on_the_seed_the_side_and_their_number() -> None:
    made = load((700, [5, 6]))
    assert words(replace(made, seed=4), 0) != words(made, 0) == words(replace(made), 0)
    # Else the second endpoint would find in a cache what the first one brought.
    assert alike(words(made, 0), words(replace(made, side="b"), 0)) < 4


@given(st.integers(1, 3000), st.integers(0, 40), st.integers())
def test_lengths_come_out_whatever_words_and_template_cost(
    tokens: int, constant: int, seed: int
) -> None:
    ids = range(-(-tokens // BLOCK))
    spelling = Spelling("x", WORDS, SEVERAL, constant=constant, behind=2)
    text = words(replace(load((tokens, ids), spelling=spelling), seed=seed), 0)
    costs = dict(zip(WORDS, SEVERAL, strict=True))
    made = 1 + sum(costs[word] for word in text[1:-1]) + constant + 2
    assert made == max(tokens, 1 + constant + 2)


@pytest.mark.parametrize("per_word", [0.7, 1.0, 1.37])
def test_a_share_of_a_token_in_each_block_does_not_add_up(per_word: float) -> None:
    spelling = Spelling("x", WORDS, (), per_word)
    count = len(blocks_of("n", range(200), 200 * BLOCK, spelling).split()) - 1
    assert abs(count * per_word + 1 - 200 * BLOCK) <= per_word / 2


def trace(folder: Path) -> str:
    file = folder / "trace.jsonl"
    rows = [(40, [1]), (600, [2, 3]), (1090, [2, 3, 4]), (1065, [2, 3, 5]), (512, [2])]
    file.write_text("\n".join(line(*row, at=1000 * n) for n, row in enumerate(rows)))
    return str(file)


@pytest.mark.parametrize("how", ["ids", "count"])
def test_with_the_endpoints_tokenizer_every_length_of_a_trace_is_exact(
    how: str, tmp_path: Path
) -> None:
    ran = against(server(how), "--trace", trace(tmp_path))
    assert off(ran) == [0] * 5
    load = ran.result.load
    assert load["input_tokens_by"] == BY_ENDPOINT
    assert load["tokens_checked"] == "6 of 6 prompts counted again came out exactly"
    assert load["trace_shares"] == (
        "the text of leading blocks of 512 tokens with the same hash_ids"
    )


def test_usage_tells_what_a_mark_behind_the_words_costs(tmp_path: Path) -> None:
    ran = against(server(costs=[1] * len(WORDS)), "--trace", trace(tmp_path))
    assert (off(ran), ran.result.load["input_tokens_by"]) == ([0] * 5, BY_USAGE)


def test_the_server_sees_the_same_tokens_from_the_start(tmp_path: Path) -> None:
    ran = against(server("ids"), "--trace", trace(tmp_path))
    sent = [each.body["messages"][0]["content"] for each in ran.asked if each.streams and each.body]
    ids = [Tokenizer().ids(text) for text in sent]
    # OPENING has three tokens here.
    assert 0 <= alike(ids[2], ids[3]) - (2 * BLOCK + 2) < 20


def test_a_last_block_too_short_for_template_and_mark_takes_the_rest_from_the_one_before() -> None:
    made = load((513, [1, 2]), (1024, [1, 2]), spelling=Spelling(constant=20))
    first, second = words(made, 0), words(made, 1)
    assert len(first) - 1 == 513 - 20 == alike(first, second)


def test_a_prefix_beside_blocks_is_refused_and_prompts_of_a_file_go_without_them(
    tmp_path: Path,
) -> None:
    with pytest.raises(UsageError, match="--prefix does not go with it"):
        setup("http://h", "--trace", trace(tmp_path), "--prefix", "9%:9:9")
    file = tmp_path / "prompts"
    file.write_text("Why?")
    made = setup("http://h", "--trace", trace(tmp_path), "--prompts", str(file))
    assert json.loads(made.workload.ask(1).body)["messages"][0]["content"] == "Why?"
    assert made.described["trace_shares"] is None
