"""The scheduler: who is seated, what is reserved, which stretch of a prompt is computed next."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from reference_server.engine.blocks import BlockPool
from reference_server.engine.interface import FinishReason, Sampling, Work
from reference_server.engine.runner import Chunk
from reference_server.engine.scheduler import Scheduler
from reference_server.engine.sequence import Request, Sequence
from reference_server.engine.text import TextPath

BLOCK = 4


@dataclass
class Desk:
    """A scheduler over `blocks` blocks of four tokens, driven without a model."""

    slots: int = 2
    blocks: int = 16
    prefill_chunk: int = 0
    prefix_sharing: bool = True

    def __post_init__(self) -> None:
        self.pool = BlockPool(self.blocks)
        self.scheduler = Scheduler(
            self.slots, self.pool, BLOCK, self.prefill_chunk, self.prefix_sharing
        )

    def queue(self, name: str, prompt: int | tuple[int, ...] = 4, limit: int = 1) -> Sequence:
        """A request of one choice; a number stands for a prompt of its own of that many tokens."""
        if isinstance(prompt, int):
            prompt = tuple(1000 * sum(name.encode()) + n for n in range(prompt))
        request = Request(Work(name, "", Sampling()), prompt, 0)
        choice = Sequence(request, 0, TextPath(), limit, FinishReason.LENGTH)
        self.scheduler.enqueue(choice)
        return choice

    def prefill(self) -> list[tuple[str, int, int]]:
        """A step's prefills: who, and from where to where."""
        self.scheduler.begin_step()
        done = []
        while (choice := self.scheduler.next_prefill()) is not None:
            chunk = self.chunk(choice)
            done.append((choice.key[0], chunk.start, chunk.start + len(chunk.tokens)))
            self.scheduler.check_integrity()
        return done

    def idle(self) -> bool:
        return self.scheduler.idle

    def chunk(self, choice: Sequence) -> Chunk:
        chunk = self.scheduler.chunk(choice)
        self.scheduler.computed(choice, len(chunk.tokens))
        return chunk


def test_first_come_is_first_seated() -> None:
    desk = Desk(slots=2)
    for name in "abc":
        desk.queue(name)
    assert desk.prefill() == [("a", 0, 4), ("b", 0, 4)]


def test_a_large_request_at_the_head_is_not_overtaken() -> None:
    desk = Desk(blocks=5)
    first = desk.queue("first", 8)
    desk.queue("large", 20)
    desk.queue("small", 4)
    assert desk.prefill() == [("first", 0, 8)]
    assert desk.prefill() == []
    desk.scheduler.leave(first)
    assert desk.prefill() == [("large", 0, 20)]


def test_a_paused_request_lets_others_pass_and_keeps_its_place() -> None:
    desk = Desk(slots=1)
    paused, second = desk.queue("paused"), desk.queue("second")
    desk.queue("third")
    paused.request.paused = True
    assert desk.prefill() == [("second", 0, 4)]
    paused.request.paused = False
    desk.scheduler.leave(second)
    assert desk.prefill() == [("paused", 0, 4)]


def test_a_paused_prompt_is_not_computed_and_lets_others_pass() -> None:
    desk = Desk(prefill_chunk=4)
    paused = desk.queue("paused", 8)
    desk.prefill()
    paused.request.paused = True
    desk.queue("other")
    assert desk.prefill() == [("other", 0, 4)]
    paused.request.paused = False
    assert desk.prefill() == [("paused", 4, 8)]


def test_a_seat_serves_one_choice_a_step() -> None:
    desk = Desk(slots=1)
    desk.queue("a")
    desk.queue("b")
    desk.scheduler.begin_step()
    first = desk.scheduler.next_prefill()
    assert first is not None
    desk.chunk(first)
    desk.scheduler.leave(first)
    assert desk.scheduler.next_prefill() is None
    assert desk.prefill() == [("b", 0, 4)]


@pytest.mark.parametrize(
    ("prompt", "limit", "blocks"),
    [(5, 0, 2), (4, 1, 1), (4, 2, 2), (5, 4, 2), (5, 5, 3), (1, 4, 1), (1, 5, 2), (8, 1, 2)],
)
def test_prompt_and_answer_are_reserved_but_for_the_last_token(
    prompt: int, limit: int, blocks: int
) -> None:
    desk = Desk()
    choice = desk.queue("a", prompt, limit)
    desk.prefill()
    assert len(choice.table) == blocks
    assert desk.pool.free == desk.blocks - blocks


def test_stretches_of_a_prompt_end_at_the_same_places_whoever_is_there() -> None:
    desk = Desk(slots=4, prefill_chunk=8)
    desk.queue("a", 11)
    desk.queue("b", 19)
    assert desk.prefill() == [("a", 0, 8)]
    assert desk.prefill() == [("a", 8, 11)]  # five are left of the step, not the eight of b
    assert desk.prefill() == [("b", 0, 8)]
    assert desk.prefill() == [("b", 8, 16)]
    assert desk.prefill() == [("b", 16, 19)]


def test_stretches_end_at_the_same_places_after_a_found_beginning_too() -> None:
    desk = Desk(prefill_chunk=8)
    desk.queue("first", (1, 2, 3, 4, 5))
    desk.queue("second", (1, 2, 3, 4, *range(50, 60)))
    assert desk.prefill() == [("first", 0, 5)]
    assert desk.prefill() == [("second", 4, 8)]
    assert desk.prefill() == [("second", 8, 14)]


def test_several_short_prompts_share_the_budget_of_a_step() -> None:
    desk = Desk(slots=4, prefill_chunk=8)
    for name, size in (("a", 3), ("b", 5), ("c", 1)):
        desk.queue(name, size)
    assert desk.prefill() == [("a", 0, 3), ("b", 0, 5)]
    assert desk.scheduler.seats_taken == 2
    assert desk.prefill() == [("c", 0, 1)]


def test_without_a_bound_every_prompt_is_one_stretch() -> None:
    desk = Desk(slots=4, blocks=64)
    desk.queue("a", 100)
    desk.queue("b", 100)
    assert desk.prefill() == [("a", 0, 100), ("b", 0, 100)]


def test_a_stretch_says_whether_a_token_is_drawn_after_it() -> None:
    desk = Desk(prefill_chunk=4, slots=3)
    drawn, none = desk.queue("drawn", 8), desk.queue("none", 4, limit=0)
    desk.scheduler.begin_step()
    assert desk.scheduler.next_prefill() is drawn
    assert not desk.chunk(drawn).last
    desk.scheduler.begin_step()
    assert desk.chunk(drawn).last
    desk.scheduler.begin_step()
    assert desk.scheduler.next_prefill() is none
    assert not desk.chunk(none).last


def test_a_beginning_is_shared_once_it_is_computed() -> None:
    desk = Desk(slots=3, prefill_chunk=8)
    first = desk.queue("first", tuple(range(12)))
    second = desk.queue("second", (*range(8), 99, 98))
    assert desk.prefill() == [("first", 0, 8)]
    assert desk.prefill() == [("first", 8, 12), ("second", 8, 10)]
    assert second.table[:2] == first.table[:2]
    assert second.table[2] not in first.table


def test_at_least_one_token_of_the_prompt_is_computed() -> None:
    desk = Desk(slots=3)
    desk.queue("first", tuple(range(8)))
    desk.queue("same", tuple(range(8)))
    desk.queue("longer", tuple(range(9)))
    assert desk.prefill() == [("first", 0, 8), ("same", 4, 8), ("longer", 8, 9)]


def test_without_sharing_everything_is_computed() -> None:
    desk = Desk(prefix_sharing=False)
    first = desk.queue("first", tuple(range(8)))
    desk.queue("same", tuple(range(8)))
    assert desk.prefill() == [("first", 0, 8), ("same", 0, 8)]
    assert first.names == []  # and nothing is named


def test_who_wants_scores_computes_the_whole_prompt() -> None:
    desk = Desk()
    desk.queue("first", tuple(range(9)))
    scored = desk.queue("scored", tuple(range(9)))
    scored.request.work = replace(scored.request.work, echo=True, sampling=Sampling(logprobs=0))
    assert desk.prefill() == [("first", 0, 9), ("scored", 0, 9)]


def test_a_beginning_found_in_the_cache_needs_no_room_of_its_own() -> None:
    desk = Desk(blocks=4)
    desk.queue("first", tuple(range(12)))
    desk.queue("second", (*range(8), 50))
    assert desk.prefill() == [("first", 0, 12), ("second", 8, 9)]
    assert desk.pool.free == 0


def test_generated_tokens_are_shared_too() -> None:
    desk = Desk()
    first = desk.queue("first", (1, 2, 3), limit=9)
    desk.prefill()
    for token in (4, 5, 6, 7, 8):
        first.generated.append(token)
        assert desk.scheduler.row(first).token == token
        desk.scheduler.computed(first, 1)
    desk.queue("second", (1, 2, 3, 4, 5, 6, 7, 8, 9))
    assert desk.prefill() == [("second", 8, 9)]


def test_a_seat_given_back_twice_raises() -> None:
    desk = Desk()
    choice = desk.queue("a")
    desk.prefill()
    desk.scheduler.leave(choice)
    with pytest.raises(RuntimeError, match="holds no seat to release"):
        desk.scheduler.leave(choice)
    assert (desk.scheduler.seats_taken, desk.pool.free) == (0, desk.blocks)


def test_a_forgotten_request_never_leaves_the_queue_and_tells_what_it_holds() -> None:
    desk = Desk(slots=1)
    seated, waiting = desk.queue("seated"), desk.queue("waiting")
    desk.prefill()
    assert desk.scheduler.forget(seated.request) == [seated]
    assert desk.scheduler.forget(waiting.request) == []
    desk.scheduler.leave(seated)
    assert desk.prefill() == []


def test_only_choices_with_a_newest_token_decode() -> None:
    desk = Desk(slots=4, prefill_chunk=4)
    ready, paused, half = desk.queue("r", 2), desk.queue("p", 2), desk.queue("h", 8)
    desk.prefill()
    desk.prefill()
    paused.request.paused = True
    assert not half.prefilled
    assert desk.scheduler.begin_step() == [ready]


def test_idle_is_when_nobody_may_go_on() -> None:
    desk = Desk(slots=1)
    assert desk.idle()
    seated, waiting = desk.queue("seated"), desk.queue("waiting")
    assert not desk.idle()
    desk.prefill()
    assert not desk.idle()
    seated.request.paused = True
    assert desk.idle()  # the seat is taken
    desk.scheduler.leave(seated)
    assert not desk.idle()
    waiting.request.paused = True
    assert desk.idle()


def test_the_integrity_check_sees_a_lost_seat_and_a_foreign_table() -> None:
    desk = Desk()
    choice = desk.queue("a")
    desk.prefill()
    choice.table = [5]
    with pytest.raises(AssertionError):
        desk.scheduler.check_integrity()
    choice.table = [0]
    desk.scheduler.check_integrity()
    desk.scheduler._free_slots.clear()
    with pytest.raises(AssertionError, match="seats"):
        desk.scheduler.check_integrity()
