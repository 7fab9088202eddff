"""The batching engine over a model that checks its cache: the contract, order of delivery, counts.

A gate lets one step through at a time: what an end state hides, the steps and passes show.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from reference_server.engine.batching import BatchingEngine
from reference_server.engine.interface import (
    Delta,
    Done,
    Event,
    Failure,
    FinishReason,
    Sampling,
    Started,
    Work,
)
from reference_server.engine.runner import Row, Token, Unsound
from tests.reference_server import check_engine as contract
from tests.reference_server.fake_model import END, VOCABULARY, FakeRunner, FakeVocabulary, Pass
from tests.reference_server.step_gate import Gate, deltas, ids, kinds, text

ENGINES: Mapping[str, Callable[[int], BatchingEngine]] = {
    "plain": lambda batch: BatchingEngine(FakeRunner(), VOCABULARY, max_batch=batch, seed=1),
    "small-chunks": lambda batch: BatchingEngine(
        FakeRunner(block_size=3), VOCABULARY, max_batch=batch, prefill_chunk=24, seed=1
    ),
    "unshared": lambda batch: BatchingEngine(
        FakeRunner(block_size=16),
        VOCABULARY,
        max_batch=batch,
        prefill_chunk=0,
        prefix_sharing=False,
        seed=1,
    ),
}


@pytest.mark.parametrize("make", ENGINES.values(), ids=ENGINES)
@pytest.mark.parametrize("clause", contract.CONTRACT, ids=lambda clause: clause.__name__)
def test_the_batching_engine_keeps_the_contract(
    clause: Callable[[contract.Factory], None], make: contract.Factory
) -> None:
    clause(make)


@pytest.mark.parametrize("seed", range(8))
def test_any_schedule_keeps_the_books(seed: int) -> None:
    def make(batch: int) -> BatchingEngine:
        runner = FakeRunner(block_size=2, block_count=40)
        return BatchingEngine(runner, VOCABULARY, max_batch=batch, prefill_chunk=5, seed=seed)

    contract.any_schedule_keeps_the_books(make, seed)


class Bench(Gate):
    """A gate before a batching engine, with the fake model in reach; the books add up each step."""

    def __init__(self, runner: FakeRunner | None = None, seed: int = 0, **options: Any) -> None:
        self.runner = runner or FakeRunner()
        self.batching = BatchingEngine(self.runner, VOCABULARY, seed=seed, **options)
        super().__init__(self.batching)

    def step(self, tickets: int = 1) -> list[Event]:
        for _ in range(tickets):
            super().step()
            self.batching.check_integrity()
        return self.steps[-1]

    @property
    def is_empty(self) -> bool:
        """Nobody holds anything any more, and the runner knows it."""
        gauges = self.engine.gauges
        free = gauges.free_blocks == gauges.total_blocks and not gauges.extra["seats_taken"]
        return free and not self.runner.slots


def work(name: str, said: str | None = "one two three", /, **changes: object) -> Work:
    """A request; `changes` are of the work or its sampling. `said` None: as the model likes."""
    base = Work(name, f"Tell me about {name}, please.", Sampling(temperature=0.0), answer=said)
    mine = {key: changes.pop(key) for key in ("prompt", "n", "echo") if key in changes}
    sampling = replace(base.sampling, **changes)  # type: ignore[arg-type]
    return replace(base, sampling=sampling, **mine)  # type: ignore[arg-type]


def size(prompt: str) -> int:
    return len(VOCABULARY.encode(prompt))


# -- the order of delivery -------------------------------------------------------------------


def test_a_first_token_leaves_before_the_prompts_behind_it_are_computed() -> None:
    gate = Bench(prefill_chunk=0)
    gate.engine.submit(work("short"))
    gate.engine.submit(work("long", prompt="long " * 40))
    step = gate.engine.step()
    first = [next(step) for _ in range(2)]
    assert kinds(first) == [("Started", "short"), ("Delta", "short")]
    assert len(gate.runner.passes) == 1
    assert kinds(step) == [("Started", "long"), ("Delta", "long")]
    assert len(gate.runner.passes) == 2


def test_running_choices_get_their_tokens_while_a_long_prompt_is_computed() -> None:
    gate = Bench(prefill_chunk=16)
    gate.engine.submit(work("runs", "a b c d e f g h i j k l m n o p q r s t"))
    gate.step(2)
    gate.engine.submit(work("long", prompt="long " * 40))
    chunks = -(-size("long " * 40) // 16)
    for number in range(chunks):
        events = gate.step()
        assert gate.runner.passes[-2].prefill
        assert not gate.runner.passes[-1].prefill
        assert len(ids(events, "runs")) == 1
        assert bool(deltas(events, "long")) is (number == chunks - 1)


def test_a_choice_gets_one_token_a_step_from_its_first_on() -> None:
    gate = Bench()
    gate.engine.submit(work("w", "abcdefgh"))
    counts = [len(ids(gate.step(), "w")) for _ in range(8)]
    assert counts == [1] * 8
    assert gate.engine.gauges.steps == gate.engine.gauges.tokens == 8
    assert len(gate.runner.passes) == 8


def test_all_running_choices_share_one_pass_a_step() -> None:
    gate = Bench(max_batch=3)
    for name in "abc":
        gate.engine.submit(work(name))
    gate.step()
    assert [p.prefill for p in gate.runner.passes] == [True] * 3
    events = gate.step()
    assert gate.runner.passes[3:] == [Pass((0, 1, 2), 16, 17, False)]
    assert [event.work for event in events if isinstance(event, Delta)] == ["a", "b", "c"]


def test_thirty_two_requests_on_blocks_for_four_finish_in_order() -> None:
    one = work("w00", "12345678")  # the last token needs no place
    blocks = -(-(size(one.prompt) + 7) // 4)
    gate = Bench(FakeRunner(block_count=4 * blocks), max_batch=32, prefix_sharing=False)
    for number in range(32):
        gate.engine.submit(work(f"w{number:02}", "12345678"))
    done: list[str] = []
    while not gate.engine.idle:
        done += [event.work for event in gate.step() if isinstance(event, Done)]
        assert gate.engine.gauges.extra["seats_taken"] <= 4
    assert done == [f"w{number:02}" for number in range(32)]
    assert (gate.engine.gauges.steps, gate.engine.gauges.tokens) == (8 * 8, 32 * 8)
    assert gate.is_empty


def test_what_a_request_computes_does_not_depend_on_who_is_there() -> None:
    def stretches(*others: Work) -> list[tuple[int, int]]:
        gate = Bench(prefill_chunk=16, prefix_sharing=False)
        for each in (*others, work("w", prompt="a prompt of several stretches" * 3)):
            gate.engine.submit(each)
        gate.finish()
        long = size("a prompt of several stretches" * 3)
        last = max(n for n, p in enumerate(gate.runner.passes) if p.prefill and p.stop == long)
        slot = gate.runner.passes[last].slots
        return [(p.start, p.stop) for p in gate.runner.passes[: last + 1] if p.slots == slot]

    alone = stretches()
    assert [start for start, _ in alone] == [0, 16, 32, 48, 64, 80]
    assert (
        stretches(work("a", "A", prompt="xyz"), work("b", "B", prompt="uvwxyz" * 4))[-6:] == alone
    )


# -- verbs -----------------------------------------------------------------------------------


def test_a_cancel_in_the_middle_of_a_step_lets_at_most_one_more_token_come() -> None:
    gate = Bench()
    for name in "ab":
        gate.engine.submit(work(name, "abcdefgh"))
    gate.step(2)
    step = gate.engine.step()
    assert kinds([next(step)]) == [("Delta", "a")]
    gate.engine.cancel("b")
    before = gate.engine.gauges
    assert [len(ids([event], "b")) for event in step] == [1]
    assert gate.engine.gauges.aborted == before.aborted == 0
    events = gate.step()
    assert {event.work for event in events} == {"a"}
    assert gate.runner.passes[-1].slots == (0,)
    assert (gate.engine.gauges.aborted, gate.engine.gauges.running) == (1, 1)


def test_a_cancelled_prompt_is_not_computed_to_its_end() -> None:
    gate = Bench(prefill_chunk=8)
    gate.engine.submit(work("w", prompt="long " * 20))
    gate.step(2)
    gate.engine.cancel("w")
    assert gate.step() == []
    assert len(gate.runner.passes) == 2
    assert gate.is_empty


def test_a_waiting_request_that_is_cancelled_is_never_admitted() -> None:
    gate = Bench(max_batch=1)
    gate.engine.submit(work("runs"))
    gate.engine.submit(work("waits"))
    gate.step()
    gate.engine.cancel("waits")
    assert {event.work for event in gate.finish()} == {"runs"}
    assert (gate.engine.gauges.aborted, gate.engine.gauges.finished) == (1, 1)


def test_a_pause_in_the_middle_of_a_prompt_changes_nothing_in_the_answer() -> None:
    said = text(Bench(prefill_chunk=8).run(work("w", None, max_tokens=9)), "w")
    gate = Bench(prefill_chunk=8)
    gate.engine.submit(work("w", None, max_tokens=9))
    gate.step()
    gate.engine.pause("w")
    assert gate.finish() == []
    assert gate.step() == []
    assert (gate.engine.gauges.steps, gate.engine.gauges.paused) == (1, 1)
    gate.engine.resume("w")
    assert text(gate.finish(), "w") == said


def test_an_id_in_use_costs_no_other_verb() -> None:
    gate = Bench()
    gate.engine.submit(work("a"))
    gate.step()
    gate.engine.submit(work("a"))
    gate.engine.submit(work("b"))
    gate.engine.cancel("a")
    with pytest.raises(ValueError, match="request id a is in use"):
        gate.step()
    assert {event.work for event in gate.finish()} == {"b"}
    assert gate.engine.gauges.aborted == 1


# -- what is never started -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        (work("w", None, prompt="x" * 99), "the prompt has 100 tokens, the model's context is 64"),
        (
            work("w", None, max_tokens=30),
            "prompt and answer may need 45 tokens of cache, there are 40",
        ),
    ],
)
def test_a_request_that_can_never_fit_fails_in_one_line(asked: Work, why: str) -> None:
    gate = Bench(FakeRunner(block_count=10, context=64))
    assert gate.run(asked, work("next"))[0] == Failure("w", why, "invalid_request_error")
    gauges = gate.engine.gauges
    assert (gauges.submitted, gauges.failed, gauges.finished) == (2, 1, 1)
    assert gate.is_empty


def test_a_prompt_that_cannot_be_spelled_fails_alone() -> None:
    events = Bench().run(work("w", prompt="half a pair: \ud83e"), work("next"))
    assert isinstance(events[0], Failure)
    assert events[0].message.startswith("the prompt has no tokens: UnicodeEncodeError: 'utf-8'")
    assert text(events, "next") == "one two three"


def test_a_prompt_without_a_token_fails() -> None:
    class Bare(FakeVocabulary):
        def encode(self, prompt: str) -> tuple[int, ...]:
            return self.encode_answer(prompt)

    engine = BatchingEngine(FakeRunner(), Bare())
    engine.submit(work("w", prompt=""))
    why = "the prompt has no tokens"
    assert list(engine.step()) == [Failure("w", why, "invalid_request_error")]


def test_a_prompt_that_fills_the_context_is_answered_with_nothing() -> None:
    events = Bench(FakeRunner(context=24)).run(work("w", None, prompt="x" * 23))
    assert events[1:] == [Delta("w", 0, "", 0, finish=FinishReason.LENGTH), Done("w", 24, 0)]


def test_a_request_that_just_fits_runs() -> None:
    prompt = size(work("w").prompt)
    gate = Bench(FakeRunner(block_count=10, context=64))
    events = gate.run(work("w", None, max_tokens=41 - prompt, ignore_eos=True))
    assert len(ids(events, "w")) == 41 - prompt
    assert gate.is_empty


def test_without_a_limit_the_context_or_the_cache_ends_the_answer() -> None:
    prompt = size(work("w").prompt)
    endless = work("w", None, ignore_eos=True)
    by_context = Bench(FakeRunner(context=50)).run(endless)
    by_cache = Bench(FakeRunner(block_count=11)).run(endless)
    assert len(ids(by_context, "w")) == 50 - prompt
    assert len(ids(by_cache, "w")) == 45 - prompt
    assert deltas(by_context, "w")[-1].finish is FinishReason.LENGTH


# -- a runner that raises --------------------------------------------------------------------


def breaking(when: Callable[[Pass], bool]) -> Callable[[Pass], None]:
    def fault(done: Pass) -> None:
        if when(done):
            raise RuntimeError("out of memory\nand a second line")

    return fault


FAILED = "the model failed: RuntimeError: out of memory"


def test_a_prefill_that_raises_fails_its_own_request_alone() -> None:
    gate = Bench()
    gate.engine.submit(work("a"))
    gate.step()
    for name in "bc":
        gate.engine.submit(work(name))
    gate.runner.fault = breaking(lambda done: len(gate.runner.passes) == 2)
    events = gate.step()
    assert [event for event in events if isinstance(event, Failure)] == [Failure("b", FAILED)]
    gate.runner.fault = lambda _: None
    events += gate.finish()
    assert text(events, "c") == "one two three"
    assert {event.work for event in events if isinstance(event, Done)} == {"a", "c"}
    assert (gate.engine.gauges.failed, gate.engine.gauges.finished) == (1, 2)
    assert gate.is_empty


def test_a_decode_that_raises_fails_all_in_the_pass_and_the_engine_lives_on() -> None:
    gate = Bench(max_batch=3)
    for name in "abcd":
        gate.engine.submit(work(name))
    gate.step()
    gate.engine.pause("b")
    gate.runner.fault = breaking(lambda done: not done.prefill)
    assert gate.step() == [Failure("a", FAILED), Failure("c", FAILED)]
    gate.runner.fault = lambda _: None
    gate.engine.resume("b")
    assert {e.work for e in gate.finish() if isinstance(e, Done)} == {"b", "d"}
    assert gate.is_empty


def test_a_request_fails_once_however_many_of_its_choices_were_in_the_pass() -> None:
    gate = Bench(max_batch=2)
    gate.engine.submit(work("w", n=3))
    gate.step()
    gate.runner.fault = breaking(lambda done: not done.prefill)
    assert gate.step() == [Failure("w", FAILED)]
    assert gate.is_empty
    assert gate.engine.idle


def test_a_choice_whose_request_failed_in_this_step_does_not_decode() -> None:
    gate = Bench(max_batch=2)
    gate.engine.submit(work("w", "abcdefgh"))
    gate.engine.submit(work("n", "abc", n=2))
    gate.step(2)
    assert gate.runner.slots.keys() == {0, 1}
    gate.engine.cancel("w")
    gate.runner.fault = breaking(lambda done: done.prefill)
    assert gate.step() == [Failure("n", FAILED)]
    assert gate.runner.passes[-1].prefill
    assert gate.is_empty


def test_a_choice_that_the_runner_refuses_fails_and_is_not_closed() -> None:
    gate = Bench()
    gate.runner.refuses = True
    assert gate.run(work("w"))[1:] == [Failure("w", "the model failed: ValueError: no such bias")]
    assert gate.is_empty


class _Forgetful(FakeRunner):
    def decode(self, rows: Sequence[Row]) -> Sequence[Token | Unsound]:
        return super().decode(rows)[1:]


def test_a_runner_that_forgets_a_row_fails_all_in_the_pass() -> None:
    gate = Bench(_Forgetful())
    events = gate.run(work("a"), work("b"))
    assert {event.work for event in events if isinstance(event, Failure)} == {"a", "b"}
    assert gate.is_empty


NOT_FINITE = "the model failed: its logits are no finite numbers"


@pytest.mark.parametrize("said", [0, 2])
def test_logits_that_are_no_numbers_fail_their_request_alone(said: int) -> None:
    gate = Bench(max_batch=3)
    gate.runner.unsound = lambda draw, words: words == said and draw.prompt[-1] == ord("!")
    events = gate.run(work("a"), work("b", prompt="sick!"), work("c"))
    assert [event for event in events if isinstance(event, Failure)] == [Failure("b", NOT_FINITE)]
    assert len(ids(events, "b")) == said
    assert text(events, "a") == text(events, "c") == "one two three"
    assert {event.work for event in events if isinstance(event, Done)} == {"a", "c"}
    gauges = gate.engine.gauges
    assert (gauges.failed, gauges.finished, gauges.tokens) == (1, 2, gate.runner.drawn)
    assert gate.is_empty


@pytest.mark.parametrize("sick", [0, 1, 2])
def test_one_choice_without_numbers_ends_its_request_once(sick: int) -> None:
    gate = Bench(max_batch=4)
    gate.runner.unsound = lambda draw, words: (
        words == 1 and draw.choice == sick and draw.sampling.temperature > 0
    )
    gate.engine.submit(work("n", n=3, temperature=1.0))
    gate.engine.submit(work("a"))
    events = gate.finish()
    assert [event for event in events if isinstance(event, Failure)] == [Failure("n", NOT_FINITE)]
    assert text(events, "a") == "one two three"
    assert gate.is_empty


# -- sharing ---------------------------------------------------------------------------------


def test_choices_of_one_request_compute_their_prompt_once() -> None:
    gate = Bench(max_batch=4)
    asked = work("w", None, n=4, prompt="x" * 21, max_tokens=4, temperature=1.0)
    events = gate.run(asked)
    assert events[-1] == Done("w", 22, 4 * 4)  # the choices after the first do not count
    assert [(p.start, p.stop) for p in gate.runner.passes if p.prefill] == [
        (0, 22),
        *[(20, 22)] * 3,
    ]
    assert gate.engine.gauges.prompt_tokens == 22
    assert gate.engine.gauges.extra["prompt_tokens_computed"] == 28
    assert len({ids(events, "w", choice) for choice in range(4)}) == 4


def test_an_ended_conversation_is_found_again_by_the_next_turn() -> None:
    gate = Bench()
    first = work("first", "What I said before.")
    gate.run(first)
    gate.run(work("next", prompt=first.prompt + "What I said before. And now?"))
    start = next(p.start for p in gate.runner.passes[::-1] if p.prefill)
    assert start == (size(first.prompt + "What I said before.") - 1) // 4 * 4
    done = [event for step in gate.steps for event in step if isinstance(event, Done)]
    assert [each.cached_tokens for each in done] == [0, start]


def test_a_broken_pass_shares_nothing_it_began() -> None:
    gate = Bench(prefill_chunk=8)
    gate.runner.fault = breaking(lambda done: done.start == 8)
    gate.run(work("w", prompt="x" * 30))
    gate.runner.fault = lambda _: None
    assert text(gate.run(work("v", prompt="x" * 30)), "v") == "one two three"
    assert [p.start for p in gate.runner.passes if p.prefill] == [0, 8, 8, 16, 24]


# -- tokens and text -------------------------------------------------------------------------


def test_the_end_is_counted_and_is_no_text() -> None:
    events = Bench().run(work("w", None, prompt="Say only: hi"))
    assert text(events, "w") == "hi"
    assert ids(events, "w") == (*b"hi", END)
    assert deltas(events, "w")[-1].finish is FinishReason.STOP
    assert events[-1] == Done("w", size("Say only: hi"), 3)


def test_nothing_is_generated_after_the_end() -> None:
    gate = Bench()
    gate.run(work("w", None, prompt="Say only: hi", max_tokens=50))
    assert len(gate.runner.passes) == gate.engine.gauges.tokens == 3


def test_an_end_that_is_ignored_is_nothing_but_a_token() -> None:
    events = Bench().run(work("w", None, prompt="Say only: hi", max_tokens=5, ignore_eos=True))
    assert text(events, "w") == "hixx"
    assert ids(events, "w") == (*b"hi", END, *b"xx")
    assert deltas(events, "w")[-1].finish is FinishReason.LENGTH


def test_a_stop_token_ends_the_choice_and_is_no_text() -> None:
    events = Bench().run(work("w", None, prompt="Say only: abcd", stop_token_ids=(ord("c"),)))
    assert text(events, "w") == "ab"
    assert ids(events, "w") == tuple(b"abc")
    assert deltas(events, "w")[-1].finish is FinishReason.STOP


def test_an_ignored_end_leaves_the_stop_tokens_in_force() -> None:
    asked = work("w", None, prompt="Say only: ab", ignore_eos=True, stop_token_ids=(ord("x"),))
    assert text(Bench().run(asked), "w") == "ab"


@pytest.mark.parametrize(("least", "said"), [(0, "a"), (1, "a"), (2, "abca"), (5, "abcabcxy")])
def test_no_stop_counts_before_the_least_number_of_tokens(least: int, said: str) -> None:
    prompt = "Say only: abcabcxy"
    by_text = Bench().run(work("w", None, prompt=prompt, min_tokens=least, stop=("b",)))
    assert text(by_text, "w") == said
    by_id = Bench().run(work("w", None, prompt=prompt, min_tokens=least, stop_token_ids=(98,)))
    assert text(by_id, "w") == said


def test_no_end_counts_before_the_least_number_of_tokens() -> None:
    events = Bench().run(work("w", None, prompt="Say only: ab", min_tokens=4))
    assert ids(events, "w") == (*b"abxx", END)


def test_token_ids_are_all_that_was_generated_withheld_or_not() -> None:
    said = "漢字 🫠 and more"
    events = Bench().run(work("w", said, stop=("never", "mort")))
    assert ids(events, "w") == VOCABULARY.encode_answer(said)
    assert text(events, "w") == said
    assert any(len(delta.token_ids) > 1 for delta in deltas(events, "w"))
    assert all(delta.tokens == len(delta.token_ids) for delta in deltas(events, "w"))


def test_a_constrained_answer_goes_on_past_a_stop_token() -> None:
    events = Bench().run(work("w", "abc", stop_token_ids=(ord("b"),)))
    assert text(events, "w") == "abc"


def test_a_stop_string_that_waited_for_a_longer_one_counts_at_the_end() -> None:
    events = Bench().run(work("w", "xabc", stop=("abcd", "bc"), max_tokens=4))
    assert text(events, "w") == "xa"
    assert deltas(events, "w")[-1].finish is FinishReason.STOP


def test_an_answer_that_ends_at_the_limit_ends_by_the_limit() -> None:
    ends = {
        limit: deltas(Bench().run(work("w", "abc", max_tokens=limit)), "w")[-1].finish
        for limit in (3, 4)
    }
    assert ends == {3: FinishReason.LENGTH, 4: FinishReason.STOP}


def test_an_empty_answer_ends_with_no_token() -> None:
    gate = Bench()
    events = gate.run(work("w", ""))
    assert events[1:] == [
        Delta("w", 0, "", 0, finish=FinishReason.STOP),
        Done("w", size(work("w").prompt), 0),
    ]
    assert gate.engine.gauges.tokens == 0


def test_a_limit_of_nothing_computes_the_prompt_and_draws_nothing() -> None:
    gate = Bench()
    asked = work("w", None, max_tokens=0, echo=True)
    assert gate.run(asked) == [
        Started("w", VOCABULARY.encode(asked.prompt)),
        Delta("w", 0, asked.prompt, 0),
        Delta("w", 0, "", 0, finish=FinishReason.LENGTH),
        Done("w", size(asked.prompt), 0),
    ]
    assert len(gate.runner.passes) == 1


def test_an_echo_of_nothing_is_no_delta() -> None:
    said = deltas(Bench().run(work("w", "abc", prompt="", echo=True)), "w")
    assert [delta.text for delta in said] == ["a", "b", "c"]


def test_an_echo_has_the_scores_of_the_prompt_computed_once_for_all_choices() -> None:
    gate = Bench(prefill_chunk=16)
    asked = work("w", None, echo=True, logprobs=2, n=2, max_tokens=2, prompt="漢字 is two signs 🫠")
    events = gate.run(asked)
    for choice in range(2):
        echoed = deltas(events, "w", choice)[0]
        assert (echoed.text, echoed.tokens) == (asked.prompt, 0)
        assert b"".join(entry.raw for entry in echoed.logprobs).decode() == asked.prompt
        scores = [entry.logprob for entry in echoed.logprobs if entry.raw]
        assert None not in scores
        assert all(len(entry.top) == 2 for entry in echoed.logprobs if entry.raw)
    prefills = [(p.start, p.stop) for p in gate.runner.passes if p.prefill]
    assert prefills == [(0, 16), (16, size(asked.prompt)), (16, size(asked.prompt))]


def test_a_score_is_of_its_token_and_shown_with_its_bytes() -> None:
    events = Bench().run(work("w", "漢a", logprobs=2))
    entries = [entry for delta in deltas(events, "w") for entry in delta.logprobs]
    assert [entry.raw for entry in entries] == [b"\xe6\xbc", b"\xa2", b"a"]
    assert [entry.token for entry in entries] == ["bytes:\\xe6\\xbc", "bytes:\\xa2", "a"]
    assert [entry.top[0][1] for entry in entries] == [entry.raw for entry in entries]
    assert all(entry.logprob == entry.top[0][2] for entry in entries)


def test_no_scores_come_unasked() -> None:
    assert all(not delta.logprobs for delta in deltas(Bench().run(work("w", echo=True)), "w"))


# -- randomness ------------------------------------------------------------------------------


def seeds(gate: Bench, *asked: Work) -> list[tuple[int, int]]:
    """The seed and choice of each draw."""
    gate.run(*asked)
    return [(draw.seed, draw.choice) for draw in gate.runner.draws]


def test_a_request_s_own_seed_reaches_the_draw_of_every_choice() -> None:
    assert seeds(Bench(), work("w", n=2, seed=7)) == [(7, 0), (7, 1)]
    assert seeds(Bench(), work("w", seed=0)) == [(0, 0)]


def test_the_engine_draws_a_seed_for_each_request_from_its_own() -> None:
    first, again, other = (seeds(Bench(seed=seed), work("a", n=2), work("b")) for seed in (3, 3, 4))
    assert first == again != other
    assert first[0][0] == first[1][0] != first[2][0]


# -- gauges ----------------------------------------------------------------------------------


def test_gauges_tell_what_is_held_owed_and_counted() -> None:
    gate = Bench(FakeRunner(block_count=32), max_batch=1)
    gate.engine.submit(work("a", "abcdef", max_tokens=20))
    gate.engine.submit(work("b", None, max_tokens=10, n=2))
    gate.step(2)
    gauges = gate.engine.gauges
    blocks = -(-(size(work("a").prompt) + 5) // 4)
    assert (gauges.total_blocks, gauges.free_blocks) == (32, 32 - blocks)
    assert (gauges.running, gauges.waiting, gauges.steps, gauges.tokens) == (1, 1, 2, 2)
    assert gauges.owed == (6 - 2) + 2 * 10
    assert gauges.prompt_tokens == size(work("a").prompt)
    gate.engine.cancel("b")
    gate.engine.cancel("b")
    gate.engine.pause("nobody")
    gate.step()
    assert (gate.engine.gauges.late, gate.engine.gauges.owed) == (2, 3)


def test_gauges_stand_still_within_a_step() -> None:
    gate = Bench()
    gate.engine.submit(work("w"))
    step: Iterator[Event] = gate.engine.step()
    next(step)
    assert gate.engine.gauges.submitted == 0
    list(step)
    assert gate.engine.gauges.submitted == 1


@pytest.mark.parametrize(("batch", "chunk"), [(0, 1), (1, -1)])
def test_an_engine_without_seats_or_with_negative_stretches_is_refused(
    batch: int, chunk: int
) -> None:
    with pytest.raises(ValueError, match="at least"):
        BatchingEngine(FakeRunner(), VOCABULARY, max_batch=batch, prefill_chunk=chunk)
