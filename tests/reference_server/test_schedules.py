"""Random schedules over the batching engine: thousands of verbs, what must hold after each step.

A simulation draws an engine and then, turn by turn, verbs and a step; some verbs come while the
step runs. `FakeRunner` watches the cache, `Simulation` all that can be seen from outside.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from functools import lru_cache

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
from tests.reference_server.fake_model import VOCABULARY, Broken, FakeRunner, Pass

SEEDS = 40
TURNS = 150
CONTEXT = 64
STEMS = ("", "Say: ", "You are a patient helper. ", "You are a patient help", "Count from 1 to 9. ")
TAILS = ("", "a", "ab", "Say: 漢字 🫠 done", "Repeat: abcabcabc", "why?", "x" * 30)
POOLS = ((3, 12), (2, 30), (4, 14), (1, 64), (16, 5), (4, 100))  # (block size, blocks)


@dataclass(slots=True)
class Seen:
    """What came for one choice."""

    text: str = ""
    ids: tuple[int, ...] = ()
    raw: bytes = b""
    finish: FinishReason | None = None

    def add(self, delta: Delta) -> None:
        assert self.finish is None, f"{delta} comes after the finish"
        assert delta.text or delta.finish, f"{delta} carries nothing"
        assert delta.tokens == len(delta.token_ids)
        self.text += delta.text
        self.ids += delta.token_ids
        self.raw += b"".join(entry.raw for entry in delta.logprobs)
        self.finish = delta.finish

    def is_beginning_of(self, whole: Seen) -> bool:
        texts = whole.text.startswith(self.text) and whole.raw.startswith(self.raw)
        return texts and whole.ids[: len(self.ids)] == self.ids


def alone(work: Work, capacity: int) -> list[Seen]:
    """What a request gives that has a whole engine to itself."""
    runner = FakeRunner(block_size=1, block_count=capacity, context=CONTEXT)
    engine = BatchingEngine(runner, VOCABULARY, max_batch=1, prefix_sharing=False)
    engine.submit(work)
    seen = [Seen() for _ in range(work.n)]
    while not engine.idle:
        for event in engine.step():
            if isinstance(event, Delta):
                seen[event.choice].add(event)
    return seen


@dataclass
class Simulation:
    """One engine, its requests as an outsider knows them, and the sums that must hold."""

    seed: int
    works: dict[str, Work] = field(default_factory=dict)
    live: dict[str, None] = field(default_factory=dict)  # in the order of their arrival
    started: set[str] = field(default_factory=set)
    paused: set[str] = field(default_factory=set)
    ended: dict[str, str] = field(default_factory=dict)
    seen: dict[str, list[Seen]] = field(default_factory=dict)
    pending: list[tuple[str, str]] = field(default_factory=list)  # verbs the engine has not applied
    broken: dict[str, bool] = field(default_factory=dict)  # failed in this step → in a prefill
    late: int = 0
    drawn: int = 0
    told: int = 0  # verbs

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)
        self.runner = FakeRunner(*self.rng.choice(POOLS), context=CONTEXT)
        self.capacity = self.runner.block_size * self.runner.block_count
        self.batch, self.chunk = self.rng.randint(1, 6), self.rng.choice((0, 1, 5, 16))
        self.engine = BatchingEngine(
            self.runner,
            VOCABULARY,
            max_batch=self.batch,
            prefill_chunk=self.chunk,
            prefix_sharing=self.rng.random() < 0.8,
        )
        self.faults = self.rng.choice((0.0, 0.0, 0.03))
        self.runner.fault = self.fault

    def fault(self, done: Pass) -> None:
        if self.rng.random() < self.faults:
            for slot in done.slots:
                self.broken[self.owner(slot)] = done.prefill
            raise RuntimeError("the machine is broken")

    def owner(self, slot: int) -> str:
        """Each request has a seed of its own, so the draw tells whose it is."""
        return f"w{self.runner.slots[slot].draw.seed}"

    # -- verbs -------------------------------------------------------------------------------

    def submit(self) -> None:
        rng, number = self.rng, len(self.works)
        sampling = Sampling(
            max_tokens=rng.choice((None, 0, 1, 2, 5, 9, 9)),
            temperature=float(rng.random() < 0.7),
            seed=number,
            stop=rng.choice(((), (), ("b",), ("ca", "cat"), ("🫠 d",))),
            logprobs=rng.choice((None, None, 0, 2)),
            min_tokens=rng.choice((0, 0, 0, 3)),
            ignore_eos=rng.random() < 0.2,
            stop_token_ids=rng.choice(((), (), (ord("a"), ord(" ")))),
        )
        prompt = rng.choice(STEMS) + rng.choice(TAILS)
        answer = rng.choice((None, None, None, "", "abc 漢字 🫠"))
        n, is_echo = rng.choice((1, 1, 1, 2, 3)), rng.random() < 0.2
        work = Work(f"w{number}", prompt, sampling, n, is_echo, answer)
        self.works[work.id] = work
        self.seen[work.id] = [Seen() for _ in range(work.n)]
        self.engine.submit(work)
        self.pending.append(("submit", work.id))

    def tell(self, name: str, *kinds: str) -> None:
        kind = self.rng.choice(kinds)
        getattr(self.engine, kind)(name)
        self.told += 1
        self.pending.append((kind, name))

    def tell_somebody(self) -> None:
        """Mostly one who is there, sometimes one who ended."""
        names = [*self.live, *list(self.works)[-2:]]
        self.tell(self.rng.choice(names), *("cancel", "pause", "pause"), *("resume",) * 5)

    def apply(self) -> None:
        """What the engine has to do first."""
        for kind, name in self.pending:
            if kind == "submit":
                self.live[name] = None
            elif name not in self.live:
                self.late += 1
            elif kind == "cancel":
                self.end(name, "cancelled")
            else:
                (self.paused.add if kind == "pause" else self.paused.discard)(name)
            if kind == "submit" and not self.could_run(self.works[name]):
                self.end(name, "refused")
        self.pending = []

    def could_run(self, work: Work) -> bool:
        prompt = len(VOCABULARY.encode(work.prompt))
        limit = work.sampling.max_tokens
        limit = min(self.capacity if limit is None else limit, CONTEXT - prompt)
        if work.answer is not None:
            limit = min(limit, len(VOCABULARY.encode_answer(work.answer)))
        if work.sampling.max_tokens is None:
            limit = 0  # it takes what there is
        return prompt + max(0, limit - 1) <= self.capacity

    def end(self, name: str, how: str) -> None:
        del self.live[name]
        self.ended[name] = how
        self.started.discard(name)
        self.paused.discard(name)

    # -- a step ------------------------------------------------------------------------------

    def turn(self) -> None:
        if self.rng.random() < 0.3:
            self.submit()
        while self.works and self.rng.random() < 0.25:
            self.tell_somebody()
        self.step(meanwhile=0.03)

    def step(self, meanwhile: float = 0.0) -> None:
        """One step; with that probability somebody says something after an event."""
        is_idle, is_quiet = self.engine.idle, not self.pending
        ready = self.ready()
        self.apply()
        steps, drawn, passes = self.engine.gauges.steps, self.runner.drawn, len(self.runner.passes)
        self.broken = {}
        for event in self.engine.step():
            self.take(event)
            if self.works and self.rng.random() < meanwhile:
                self.tell_somebody()
        new = self.runner.passes[passes:]
        assert not (is_quiet and is_idle is bool(new)), "idle is not what it says"
        assert self.engine.gauges.steps == steps + bool(new)
        self.drawn += self.runner.drawn - drawn
        self.check_passes(new, ready)
        self.check_books()

    def ready(self) -> dict[int, str]:
        """Slots of choices that have a token to go on from, and whose they are."""
        slots = self.runner.slots.items()
        ready = [slot for slot, held in slots if len(held.cells) >= len(held.draw.prompt)]
        return {slot: self.owner(slot) for slot in ready}

    def take(self, event: Event) -> None:
        name = event.work
        if isinstance(event, Failure):
            is_refusal = event.kind == "invalid_request_error"
            assert self.ended.get(name) == "refused" if is_refusal else name in self.broken
            if not is_refusal:
                self.end(name, "failed")
            return
        assert name in self.live, f"{event} for one that is {self.ended.get(name)}"
        assert name not in self.paused, f"{event} for one that is paused"
        if isinstance(event, Started):
            self.first_come_first_served(name)
        elif isinstance(event, Delta):
            assert name in self.started
            self.seen[name][event.choice].add(event)
        else:
            self.done(event)

    def first_come_first_served(self, name: str) -> None:
        assert name not in self.started
        before = list(self.live)[: list(self.live).index(name)]
        assert set(before) <= self.started | self.paused, f"{name} overtook one of {before}"
        self.started.add(name)

    def done(self, done: Done) -> None:
        seen = self.seen[done.work]
        assert all(choice.finish for choice in seen)
        assert done.completion_tokens == sum(len(choice.ids) for choice in seen)
        self.end(done.work, "done")

    # -- what must hold ----------------------------------------------------------------------

    def check_passes(self, new: list[Pass], ready: dict[int, str]) -> None:
        """Prompts within the budget, then one pass with every choice that can go on."""
        prefills = [done for done in new if done.prefill]
        assert new[: len(prefills)] == prefills
        assert not self.chunk or sum(p.stop - p.start for p in prefills) <= self.chunk
        failed = {name for name, in_prefill in self.broken.items() if in_prefill}
        cancelled = {name for name, how in self.ended.items() if how == "cancelled"}
        still = self.paused | failed | cancelled
        due = {slot for slot, name in ready.items() if name not in still}
        assert [set(done.slots) for done in new[len(prefills) :]] == ([due] if due else [])

    def check_books(self) -> None:
        self.engine.check_integrity()
        gauges, hows = self.engine.gauges, list(self.ended.values())
        assert gauges.extra["seats_taken"] == len(self.runner.slots) <= self.batch
        assert (gauges.running, gauges.running + gauges.waiting) == (
            len(self.started),
            len(self.live),
        )
        assert gauges.finished == hows.count("done")
        assert gauges.aborted == hows.count("cancelled")
        assert gauges.failed == hows.count("failed") + hows.count("refused")
        assert (gauges.paused, gauges.late) == (len(self.paused), self.late)
        assert gauges.tokens == self.drawn
        assert self.runner.slots or gauges.free_blocks == gauges.total_blocks

    def finish(self) -> None:
        """Everybody may go on, nobody is added: all end, and hold nothing."""
        for name in self.works:
            self.tell(name, "resume")
        for _ in range(100_000):
            self.step()
            if not self.live:
                break
        assert not self.live, "somebody starved"
        assert not self.runner.slots
        for name, how in self.ended.items():
            whole = alone(self.works[name], self.capacity) if how != "refused" else self.seen[name]
            if how == "done":
                assert self.seen[name] == whole, f"{self.works[name]} gave something else alone"
            pairs = zip(self.seen[name], whole, strict=True)
            assert all(seen.is_beginning_of(choice) for seen, choice in pairs)


@lru_cache(maxsize=SEEDS)
def played(seed: int) -> Simulation:
    simulation = Simulation(seed)
    try:
        for _ in range(TURNS):
            simulation.turn()
        simulation.finish()
    except (Exception, Broken) as error:
        steps = simulation.engine.gauges.steps
        raise AssertionError(f"seed {seed}, after {steps} steps: {error}") from error
    return simulation


@pytest.mark.parametrize("seed", range(SEEDS))
def test_any_schedule(seed: int) -> None:
    assert not played(seed).live


def test_the_schedules_meet_what_they_are_for() -> None:
    """Every way to end, often; late verbs; beginnings found in the cache."""
    all_of_them = [played(seed) for seed in range(SEEDS)]
    ends = Counter(how for each in all_of_them for how in each.ended.values())
    assert min(ends["done"], ends["cancelled"]) > 200, ends
    assert min(ends["failed"], ends["refused"]) > 30, ends
    assert sum(each.late for each in all_of_them) > 200
    assert sum(each.told for each in all_of_them) > 2000
    gauges = [each.engine.gauges for each in all_of_them]
    found = [each.extra["prompt_tokens_computed"] < each.prompt_tokens for each in gauges]
    assert sum(found) > SEEDS // 4
