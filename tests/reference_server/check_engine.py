"""`check_engine`: the contract of `reference_server.engine.interface`, for any engine.

Each function takes a factory `make(max_batch)` and raises AssertionError where the engine breaks
the contract. `check_engine` runs them all; an engine's own test file calls it and nothing else.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

import pytest

from reference_server.engine.interface import (
    Delta,
    Done,
    Engine,
    Event,
    Failure,
    FinishReason,
    Message,
    Sampling,
    Started,
    Work,
)

Factory = Callable[[int], Engine]
GREEDY = Sampling(max_tokens=24, temperature=0.0)
MOST_STEPS = 20_000


@dataclass(slots=True)
class Seen:
    """Everything that came for one work."""

    text: dict[int, str] = field(default_factory=lambda: defaultdict(str))
    tokens: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    raw: dict[int, bytes] = field(default_factory=lambda: defaultdict(bytes))
    finish: dict[int, FinishReason] = field(default_factory=dict)
    started: bool = False
    done: Done | None = None


class Watcher:
    """Takes an engine's events and objects at once to what may never happen."""

    def __init__(self, works: Iterable[Work]) -> None:
        self.works = {work.id: work for work in works}
        self.seen: dict[str, Seen] = defaultdict(Seen)
        self.cancelled: set[str] = set()

    def take(self, events: Iterable[Event]) -> None:
        for event in events:
            assert event.work in self.works, f"an event for {event.work}, which nobody submitted"
            assert event.work not in self.cancelled, f"an event for {event.work} after its cancel"
            assert self.seen[event.work].done is None, f"an event for {event.work} after its Done"
            assert not isinstance(event, Failure), event
            if isinstance(event, Started):
                self._started(event)
            elif isinstance(event, Delta):
                self._delta(event)
            else:
                self._done(event)

    def _started(self, started: Started) -> None:
        seen = self.seen[started.work]
        assert not seen.started, f"{started} comes twice"
        seen.started = True

    def _delta(self, delta: Delta) -> None:
        seen = self.seen[delta.work]
        assert seen.started, f"{delta} comes before its Started"
        assert 0 <= delta.choice < self.works[delta.work].n
        assert delta.choice not in seen.finish, f"{delta} comes after the choice's finish"
        assert delta.text or delta.finish, f"{delta} carries nothing"
        assert delta.tokens >= 0
        delta.text.encode()  # no lone surrogate
        seen.text[delta.choice] += delta.text
        seen.tokens[delta.choice] += delta.tokens
        seen.raw[delta.choice] += b"".join(entry.raw for entry in delta.logprobs)
        if delta.finish:
            seen.finish[delta.choice] = delta.finish

    def _done(self, done: Done) -> None:
        seen, work = self.seen[done.work], self.works[done.work]
        seen.done = done
        assert set(seen.finish) == set(range(work.n)), f"{done} before every choice finished"
        assert done.completion_tokens == sum(seen.tokens.values())


def run(engine: Engine, *works: Work) -> dict[str, Seen]:
    """Submit all, step until all are done."""
    watcher = Watcher(works)
    for work in works:
        engine.submit(work)
    for _ in range(MOST_STEPS):
        watcher.take(engine.step())
        if all(watcher.seen[work.id].done for work in works):
            return watcher.seen
    raise AssertionError(f"not done after {MOST_STEPS} steps")


def work(name: str, **changes: object) -> Work:
    base = Work(name, f"Tell me about {name} 漢字 🫠.", GREEDY)
    return replace(base, **changes)  # type: ignore[arg-type]


def every_choice_finishes_once_and_the_counts_are_right(make: Factory) -> None:
    engine = make(4)
    seen = run(engine, work("a", n=3), work("b"))
    assert set(seen["a"].finish) == {0, 1, 2}
    done = seen["b"].done
    assert done is not None
    assert done.prompt_tokens == engine.count_tokens(work("b").prompt)
    gauges = engine.gauges
    assert (gauges.submitted, gauges.finished, gauges.aborted) == (2, 2, 0)
    assert (gauges.running, gauges.waiting) == (0, 0)
    assert gauges.tokens == sum(sum(one.tokens.values()) for one in seen.values())


def a_limit_ends_a_choice_at_exactly_that_many_tokens(make: Factory) -> None:
    for limit in (1, 2, 7):
        long = work("w", prompt="Count from 1 to 300.", sampling=replace(GREEDY, max_tokens=limit))
        seen = run(make(1), long)["w"]
        assert seen.finish[0] is FinishReason.LENGTH
        assert seen.tokens[0] == limit


def a_limit_never_leaves_half_a_character(make: Factory) -> None:
    whole = run(make(1), work("w", answer="龜🫠👩\u200d👧 น้ำ"))["w"].text[0]
    for limit in range(1, 20):
        sampling = replace(GREEDY, max_tokens=limit)
        text = run(make(1), work("w", answer="龜🫠👩\u200d👧 น้ำ", sampling=sampling))["w"].text[0]
        assert whole.startswith(text)
        assert "\ufffd" not in text


def an_answer_constraint_is_obeyed_to_the_letter(make: Factory) -> None:
    answer = '{"city":"東京 🫠","n":[1,2]}'
    sampling = replace(GREEDY, max_tokens=None)
    seen = run(make(2), work("w", answer=answer, n=2, sampling=sampling))["w"]
    assert set(seen.text.values()) == {answer}
    assert set(seen.finish.values()) == {FinishReason.STOP}


def a_stop_string_is_never_shown_and_cuts_at_its_first_place(make: Factory) -> None:
    whole = run(make(1), work("w"))["w"].text[0]
    for start in range(0, len(whole) - 3, 2):
        stop = whole[start : start + 3]
        sampling = replace(GREEDY, stop=(stop,))
        seen = run(make(1), work("w", sampling=sampling))["w"]
        assert seen.text[0] == whole[: whole.find(stop)], f"stop {stop!r}"
        assert seen.finish[0] is FinishReason.STOP


def a_near_miss_loses_nothing(make: Factory) -> None:
    whole = run(make(1), work("w"))["w"]
    sampling = replace(GREEDY, stop=(whole.text[0][-4:] + "\u0000",))
    assert run(make(1), work("w", sampling=sampling))["w"] == whole


def logprobs_spell_the_text(make: Factory) -> None:
    for limit in range(1, 24, 3):
        sampling = replace(GREEDY, max_tokens=limit, logprobs=3)
        seen = run(make(1), work("w", sampling=sampling))["w"]
        assert seen.raw[0].decode() == seen.text[0]


def echo_gives_the_prompt_first(make: Factory) -> None:
    plain = run(make(1), work("w"))["w"].text[0]
    asked = work("w", echo=True)
    assert run(make(1), asked)["w"].text[0] == asked.prompt + plain


def greedy_answers_do_not_depend_on_neighbours(make: Factory) -> None:
    names = [f"w{number}" for number in range(9)]
    crowd = run(make(3), *(work(name) for name in names))
    for name in names:
        assert run(make(1), work(name))[name].text == crowd[name].text


def a_seed_makes_a_draw_reproducible(make: Factory) -> None:
    drawn = replace(GREEDY, temperature=1.0, seed=5)
    first = run(make(2), work("w", sampling=drawn, n=2))["w"]
    assert run(make(1), work("w", sampling=drawn, n=2))["w"].text == first.text
    assert first.text[0] != first.text[1]


def at_most_the_batch_runs_and_first_come_is_first_served(make: Factory) -> None:
    engine = make(2)
    works = [work(f"w{number}", answer="1, 2, 3, 4") for number in range(5)]
    watcher = Watcher(works)
    for each in works:
        engine.submit(each)
    appeared: dict[str, None] = {}
    for _ in range(MOST_STEPS):
        before = engine.gauges.tokens
        events = list(engine.step())
        assert engine.gauges.tokens - before <= 2
        watcher.take(events)
        appeared.update(dict.fromkeys(event.work for event in events))
        if all(watcher.seen[each.id].done for each in works):
            break
    assert list(appeared) == [each.id for each in works]


def a_verb_takes_effect_at_the_next_step(make: Factory) -> None:
    engine = make(1)
    assert _idle(engine)
    engine.submit(work("w"))
    assert not _idle(engine)
    assert engine.gauges.submitted == 0
    steps(engine, 1)
    assert (engine.gauges.submitted, engine.gauges.running) == (1, 1)
    engine.cancel("w")
    assert engine.gauges.running == 1
    assert not _idle(engine)
    assert steps(engine, 1) == []
    assert (engine.gauges.running, engine.gauges.aborted) == (0, 1)
    assert _idle(engine)


def a_cancel_frees_its_seat_for_the_next_step(make: Factory) -> None:
    engine = make(1)
    engine.submit(work("first"))
    engine.submit(work("second"))
    steps(engine, 1)
    assert (engine.gauges.running, engine.gauges.waiting) == (1, 1)
    engine.cancel("first")
    before = engine.gauges.tokens
    assert {event.work for event in steps(engine, 1)} == {"second"}
    assert engine.gauges.tokens == before + 1
    assert (engine.gauges.running, engine.gauges.waiting, engine.gauges.aborted) == (1, 0, 1)


def cancel_is_idempotent(make: Factory) -> None:
    engine = make(1)
    engine.submit(work("w"))
    for name in ("w", "w", "never heard of"):
        engine.cancel(name)
    assert steps(engine, 1) == []
    assert (engine.gauges.aborted, engine.gauges.late) == (1, 2)
    engine.submit(work("w"))
    assert steps(engine, 1)


def a_cancel_that_comes_with_its_submit_never_runs(make: Factory) -> None:
    engine = make(1)
    engine.submit(work("w"))
    engine.cancel("w")
    steps(engine, 3)
    gauges = engine.gauges
    assert (gauges.tokens, gauges.submitted, gauges.aborted) == (0, 1, 1)


def a_paused_request_keeps_its_seat_and_stands_still(make: Factory) -> None:
    engine = make(1)
    watcher = Watcher([work("w"), work("next")])
    engine.submit(work("w"))
    engine.submit(work("next"))
    watcher.take(steps(engine, 2))
    for _ in range(2):
        engine.pause("w")
    tokens = engine.gauges.tokens
    assert steps(engine, 4) == []
    gauges = engine.gauges
    assert (gauges.tokens, gauges.paused, gauges.running, gauges.waiting) == (tokens, 1, 1, 1)
    assert _idle(engine)
    for _ in range(2):
        engine.resume("w")
    assert not _idle(engine)
    while not watcher.seen["next"].done:
        watcher.take(engine.step())
    assert watcher.seen["w"].text == run(make(1), work("w"))["w"].text
    assert engine.gauges.paused == 0


def neighbours_of_a_paused_request_go_on(make: Factory) -> None:
    engine = make(2)
    watcher = Watcher([work("w"), work("next")])
    engine.submit(work("w"))
    engine.submit(work("next"))
    watcher.take(steps(engine, 2))
    engine.pause("w")
    while not watcher.seen["next"].done:
        watcher.take(engine.step())
    assert watcher.seen["w"].done is None
    assert watcher.seen["next"].text == run(make(1), work("next"))["next"].text
    engine.cancel("w")
    steps(engine, 1)
    assert (engine.gauges.running, engine.gauges.paused) == (0, 0)


def what_is_owed_falls_to_nothing(make: Factory) -> None:
    engine = make(1)
    engine.submit(work("a", sampling=replace(GREEDY, max_tokens=5)))
    engine.submit(work("b", sampling=replace(GREEDY, max_tokens=5)))
    owed = []
    while not engine.idle:
        steps(engine, 1)
        owed.append(engine.gauges.owed)
    assert 0 < owed[0] <= 10
    assert owed == sorted(owed, reverse=True)
    assert owed[-1] == 0


def a_start_tells_the_ids_of_its_prompt(make: Factory) -> None:
    engine = make(1)
    prompt = work("w").prompt
    engine.submit(work("w"))
    (started,) = (event for event in steps(engine, 1) if isinstance(event, Started))
    ids = engine.token_ids(prompt)
    assert started.prompt_ids == (ids or ())
    assert (ids is None) is (engine.vocabulary is None)
    if engine.longest is not None:
        assert len(prompt.encode()) <= engine.longest * engine.count_tokens(prompt)
    if ids is not None:
        assert engine.vocabulary
        assert max(ids) < engine.vocabulary
        assert len(ids) == engine.count_tokens(prompt)
        text = engine.text_of(ids)
        assert text is not None
        assert text.endswith(prompt)  # a beginning that the model expects may stand before it


def an_id_in_use_is_refused(make: Factory) -> None:
    engine = make(1)
    engine.submit(work("w"))
    engine.submit(work("w"))
    with pytest.raises(ValueError, match="w"):
        steps(engine, 1)


def a_chat_prompt_holds_what_was_said(make: Factory) -> None:
    said = (Message("system", "Be brief."), Message("user", "Where is 東京?"))
    prompt = make(1).chat_prompt(said)
    assert prompt.index("Be brief.") < prompt.index("Where is 東京?")


def an_idle_step_does_nothing(make: Factory) -> None:
    engine = make(1)
    assert steps(engine, 1) == []
    assert engine.gauges.steps == 0


def _idle(engine: Engine) -> bool:
    return engine.idle


def steps(engine: Engine, count: int) -> list[Event]:
    """What so many steps give."""
    return [event for _ in range(count) for event in engine.step()]


def any_schedule_keeps_the_books(make: Factory, seed: int) -> None:
    """Random submits, cancels, pauses and steps; the sums hold after each of them."""
    rng = random.Random(seed)
    batch = rng.randint(1, 4)
    engine = make(batch)
    watcher = Watcher(())
    for turn in range(250):
        if rng.random() < 0.25:
            sampling = replace(GREEDY, max_tokens=rng.randint(0, 9))
            fresh = work(f"w{turn}", n=rng.randint(1, 3), sampling=sampling)
            watcher.works[fresh.id] = fresh
            engine.submit(fresh)
        if watcher.works and rng.random() < 0.15:
            name = rng.choice(list(watcher.works))
            engine.cancel(name)
            if not watcher.seen[name].done:
                watcher.cancelled.add(name)
        if watcher.works and rng.random() < 0.3:
            rng.choice((engine.pause, engine.resume, engine.resume))(rng.choice([*watcher.works]))
        _step(engine, watcher, batch)
        gauges = engine.gauges
        parts = gauges.running + gauges.waiting + gauges.finished + gauges.aborted
        assert gauges.submitted == parts, f"seed {seed}, turn {turn}: {gauges}"
        assert gauges.aborted == len(watcher.cancelled), f"seed {seed}, turn {turn}"
    for name in watcher.works:
        engine.resume(name)
    while not engine.idle:
        _step(engine, watcher, batch)
    left = [w for w in watcher.works if w not in watcher.cancelled and not watcher.seen[w].done]
    assert left == [], f"seed {seed}"
    assert engine.gauges.running + engine.gauges.waiting + engine.gauges.paused == 0


def _step(engine: Engine, watcher: Watcher, batch: int) -> None:
    before = engine.gauges
    watcher.take(engine.step())
    after = engine.gauges
    assert 0 <= after.tokens - before.tokens <= batch
    assert after.steps - before.steps in (0, 1)


CONTRACT: tuple[Callable[[Factory], None], ...] = (
    every_choice_finishes_once_and_the_counts_are_right,
    a_limit_ends_a_choice_at_exactly_that_many_tokens,
    a_limit_never_leaves_half_a_character,
    an_answer_constraint_is_obeyed_to_the_letter,
    a_stop_string_is_never_shown_and_cuts_at_its_first_place,
    a_near_miss_loses_nothing,
    logprobs_spell_the_text,
    echo_gives_the_prompt_first,
    greedy_answers_do_not_depend_on_neighbours,
    a_seed_makes_a_draw_reproducible,
    at_most_the_batch_runs_and_first_come_is_first_served,
    a_verb_takes_effect_at_the_next_step,
    a_cancel_frees_its_seat_for_the_next_step,
    a_cancel_that_comes_with_its_submit_never_runs,
    cancel_is_idempotent,
    a_paused_request_keeps_its_seat_and_stands_still,
    neighbours_of_a_paused_request_go_on,
    what_is_owed_falls_to_nothing,
    a_chat_prompt_holds_what_was_said,
    a_start_tells_the_ids_of_its_prompt,
    an_id_in_use_is_refused,
    an_idle_step_does_nothing,
)


def check_engine(make: Factory, seeds: Iterable[int] = range(20)) -> None:
    """Every clause of the contract, then random schedules. Raises AssertionError."""
    for clause in CONTRACT:
        clause(make)
    for seed in seeds:
        any_schedule_keeps_the_books(make, seed)
