"""Who computes next: first come, first served, while seats and blocks last.

The queue is of choices. A choice leaves it when the prefill of the step reaches it, and takes with
it a seat (its *slot*, a number that the runner knows it by) and every block it can ever need. So
nobody who runs is ever stopped for want of memory. Nobody overtakes: a large request at the head
waits, and those behind it wait with it. Only a paused one lets the others pass.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Iterator

from reference_server.engine.blocks import BlockPool, needed
from reference_server.engine.runner import Chunk, Row
from reference_server.engine.sequence import Request, Sequence


class Scheduler:
    """`prefill_chunk`: prompt tokens of one forward pass, and of one step; 0 sets no bound."""

    def __init__(
        self,
        slots: int,
        pool: BlockPool,
        block_size: int,
        prefill_chunk: int = 256,
        prefix_sharing: bool = True,
    ) -> None:
        self._slots, self._free_slots = slots, list(range(slots))
        self._pool, self._block_size = pool, block_size
        self._prefill_chunk, self._prefix_sharing = prefill_chunk, prefix_sharing
        self._waiting: deque[Sequence] = deque()
        self._seated: dict[int, Sequence] = {}  # by slot, in the order of admission
        # What is left of this step: seats to give away, and prompt tokens.
        self._admissions, self._budget = 0, 0.0

    # -- who is there ------------------------------------------------------------------------

    @property
    def seats_taken(self) -> int:
        return len(self._seated)

    @property
    def idle(self) -> bool:
        """Nobody who is seated may go on, and nobody who waits may be seated."""
        moving = any(not each.request.paused for each in self._seated.values())
        return not moving and not (self._free_slots and self._next_waiting())

    def enqueue(self, sequence: Sequence) -> None:
        self._waiting.append(sequence)

    # -- a step ------------------------------------------------------------------------------

    def begin_step(self) -> list[Sequence]:
        """The choices that decode in this step: those that have a newest token to go on from.

        A seat serves one choice a step: one that becomes free meanwhile is given away in the next.
        """
        self._admissions = len(self._free_slots)
        self._budget = self._prefill_chunk or math.inf
        seated = self._seated.values()
        return [each for each in seated if each.prefilled and not each.request.paused]

    def next_prefill(self) -> Sequence | None:
        """The oldest seated choice with prompt left to compute, else the next from the queue.

        None where there is nobody, or where its stretch is more than what the step has left.
        """
        for sequence in self._seated.values():
            if not sequence.prefilled and not sequence.request.paused:
                return sequence if self._affords(sequence, sequence.computed) else None
        return self._admit() if self._admissions else None

    def chunk(self, sequence: Sequence) -> Chunk:
        """The next stretch of its prompt, paid from the step's budget."""
        assert sequence.slot is not None
        prompt, start = sequence.request.prompt, sequence.computed
        stop = self._stretch(sequence, start)
        self._budget -= stop - start
        last = stop == len(prompt) and sequence.limit > 0
        return Chunk(
            sequence.slot, start, prompt[start:stop], sequence.table, last, sequence.scored
        )

    def _stretch(self, sequence: Sequence, start: int) -> int:
        """Where the stretch that begins at `start` ends: at a multiple of `prefill_chunk`.

        However much of the budget is left: what a model computes must not depend on who else is
        there, and the last bits of its numbers depend on where the stretches end.
        """
        whole, size = len(sequence.request.prompt), self._prefill_chunk
        return min(whole, (start // size + 1) * size) if size else whole

    def _affords(self, sequence: Sequence, start: int) -> bool:
        return self._stretch(sequence, start) - start <= self._budget

    def row(self, sequence: Sequence) -> Row:
        """Its newest token, for the next decode step."""
        assert sequence.slot is not None
        return Row(sequence.slot, sequence.generated[-1], sequence.computed, sequence.table)

    def computed(self, sequence: Sequence, tokens: int) -> None:
        """That many more of its tokens are in the cache; full blocks may be shared from now on."""
        before = sequence.computed // self._block_size
        sequence.computed += tokens
        if self._prefix_sharing:
            for place in range(before, sequence.computed // self._block_size):
                name = sequence.name(place, self._block_size)
                self._pool.publish(sequence.table[place], name)

    # -- coming and going --------------------------------------------------------------------

    def leave(self, sequence: Sequence) -> None:
        """Take back its seat and its blocks, exactly once: a second time raises RuntimeError."""
        if sequence.slot is None or self._seated.pop(sequence.slot, None) is not sequence:
            raise RuntimeError(f"choice {sequence.key} holds no seat to release")
        heapq.heappush(self._free_slots, sequence.slot)
        self._pool.release(sequence.key)
        sequence.slot, sequence.table = None, []

    def forget(self, request: Request) -> list[Sequence]:
        """Drop what waits of a request. The choices that still hold something, to `leave`."""
        self._waiting = deque(each for each in self._waiting if each.request is not request)
        return [each for each in self._seated.values() if each.request is request]

    def _admit(self) -> Sequence | None:
        """Seat the next of the queue, if it can begin in this step."""
        if (sequence := self._next_waiting()) is None:
            return None
        shared, fresh = self._demand(sequence)
        found = len(shared) * self._block_size
        if not self._affords(sequence, found):
            return None
        self._waiting.remove(sequence)
        sequence.table = self._pool.claim(sequence.key, shared, fresh)
        sequence.computed = found
        if sequence.index == 0:
            sequence.request.found = found
        sequence.slot = heapq.heappop(self._free_slots)
        self._seated[sequence.slot] = sequence
        self._admissions -= 1
        return sequence

    def _next_waiting(self) -> Sequence | None:
        """The head of the queue, if its blocks are free."""
        head = next((each for each in self._waiting if not each.request.paused), None)
        return head if head is not None and self._pool.fits(*self._demand(head)) else None

    def _demand(self, sequence: Sequence) -> tuple[list[int], int]:
        """Blocks that it finds in the cache, and how many it needs beside them.

        At least one token of the prompt is always computed: the first draw needs its numbers. Who
        wants the scores of the whole prompt computes the whole prompt.
        """
        total = needed(sequence.most, self._block_size)
        shared = [] if sequence.scored else self._pool.find(self._prompt_names(sequence))
        return shared, total - len(shared)

    def _prompt_names(self, sequence: Sequence) -> Iterator[bytes]:
        if self._prefix_sharing:
            for place in range((len(sequence.request.prompt) - 1) // self._block_size):
                yield sequence.name(place, self._block_size)

    def check_integrity(self) -> None:
        """Raises AssertionError where a seat or a block is lost, or held twice."""
        self._pool.check_integrity()
        assert {each.key for each in self._seated.values()} == self._pool.owners
        taken = [*self._free_slots, *self._seated]
        assert sorted(taken) == list(range(self._slots)), "free + taken seats is not all"
        for slot, sequence in self._seated.items():
            assert sequence.slot == slot
            assert sequence.table == self._pool.table(sequence.key)
