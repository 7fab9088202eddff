"""The batching engine: many requests share every forward pass of one model.

A step applies the inbox, computes prompts chunk by chunk, each chunk a forward pass of its own, and
then decodes one token for all that run in one pass. Events leave after each pass, so the first
token of a request does not wait for the prompts behind it.

The model is behind `runner.Runner`, its tokens' spelling behind `runner.Vocabulary`, and who gets
seats and blocks is `scheduler`'s part. No torch, no clock and no thread here.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from reference_server.engine.blocks import BlockPool
from reference_server.engine.inbox import Cancel, Command, Pause, Submit, Verbs
from reference_server.engine.intake import Intake, Refusal, one_line
from reference_server.engine.interface import (
    Done,
    Event,
    Failure,
    Gauges,
    Message,
    Started,
    Work,
)
from reference_server.engine.runner import Draw, Runner, Token, Unsound, Vocabulary
from reference_server.engine.scheduler import Scheduler
from reference_server.engine.sequence import Request, echo
from reference_server.engine.sequence import Sequence as Choice

_NOT_FINITE = "its logits are no finite numbers"


@dataclass(slots=True)
class _Counts:
    """The counters of `Gauges`."""

    steps: int = 0
    tokens: int = 0
    prompt_tokens: int = 0
    computed: int = 0  # prompt tokens that went through the model, for whichever choice
    passes: int = 0  # forward passes
    submitted: int = 0
    finished: int = 0
    aborted: int = 0
    failed: int = 0
    late: int = 0


class BatchingEngine(Verbs):
    """See `interface.Engine`. `seed` decides what requests without a seed of their own draw."""

    def __init__(
        self,
        runner: Runner,
        vocabulary: Vocabulary,
        *,
        max_batch: int = 16,
        prefill_chunk: int = 256,
        prefix_sharing: bool = True,
        seed: int | None = None,
    ) -> None:
        super().__init__()
        if max_batch < 1 or prefill_chunk < 0:
            raise ValueError("max_batch must be at least 1, prefill_chunk at least 0")
        self._runner, self._vocabulary = runner, vocabulary
        self._pool = BlockPool(runner.block_count)
        self._scheduler = Scheduler(
            max_batch, self._pool, runner.block_size, prefill_chunk, prefix_sharing
        )
        cache = runner.block_count * runner.block_size
        self._intake = Intake(vocabulary, runner.context, cache)
        self._rng = random.Random(seed)
        self._requests: dict[str, Request] = {}
        self._counts = _Counts()
        self._gauges = self._measured()

    # -- any thread --------------------------------------------------------------------------

    def count_tokens(self, text: str) -> int:
        return len(self._vocabulary.encode(text))

    @property
    def context(self) -> int:
        """As much as the model takes and the cache can hold."""
        return min(self._intake.context, self._intake.cache)

    @property
    def longest(self) -> int | None:
        return self._vocabulary.longest

    @property
    def vocabulary(self) -> int:
        return self._vocabulary.size

    def token_ids(self, text: str) -> tuple[int, ...]:
        return self._vocabulary.encode(text)

    def text_of(self, ids: Sequence[int]) -> str:
        return b"".join(map(self._vocabulary.raw, ids)).decode(errors="replace")

    def chat_prompt(self, messages: Sequence[Message]) -> str:
        return self._vocabulary.chat_prompt(messages)

    @property
    def gauges(self) -> Gauges:
        return self._gauges

    # -- the step ----------------------------------------------------------------------------

    @property
    def idle(self) -> bool:
        return not self._inbox and self._scheduler.idle

    def step(self) -> Iterator[Event]:
        yield from self._apply(self._inbox.drain())
        passes = self._counts.passes
        running = self._scheduler.begin_step()  # whoever joins in this step decodes in the next
        yield from self._prefill()
        yield from self._decode(running)
        self._counts.steps += self._counts.passes > passes
        self._gauges = self._measured()

    def check_integrity(self) -> None:
        """For tests. Raises AssertionError where a seat or a block is lost or held twice."""
        self._scheduler.check_integrity()

    # -- what arrived ------------------------------------------------------------------------

    def _apply(self, commands: Iterable[Command]) -> Iterator[Event]:
        twice: str | None = None
        for command in commands:
            if isinstance(command, Submit) and command.work.id in self._requests:
                twice = command.work.id
            else:
                yield from self._obey(command)
        if twice is not None:  # after the others: none of them may be lost
            raise ValueError(f"request id {twice} is in use")

    def _obey(self, command: Command) -> Iterator[Event]:
        if isinstance(command, Submit):
            yield from self._accept(command.work)
        elif (request := self._requests.get(command.work)) is None:
            self._counts.late += 1
        elif isinstance(command, Cancel):
            self._forget(request)
            self._counts.aborted += 1
        else:
            request.paused = isinstance(command, Pause)

    def _accept(self, work: Work) -> Iterator[Event]:
        self._counts.submitted += 1
        seed = work.sampling.seed
        try:
            request = self._intake.request(
                work, self._rng.getrandbits(63) if seed is None else seed
            )
        except Refusal as refusal:
            self._counts.failed += 1
            yield Failure(work.id, str(refusal), "invalid_request_error")
            return
        self._requests[work.id] = request
        for choice in request.open:
            self._scheduler.enqueue(choice)

    # -- forward passes ----------------------------------------------------------------------

    def _prefill(self) -> Iterator[Event]:
        while (choice := self._scheduler.next_prefill()) is not None:
            request = choice.request
            if not request.started:
                request.started = True
                yield Started(request.work.id, request.prompt)
            yield from self._prefill_chunk(choice)

    def _prefill_chunk(self, choice: Choice) -> Iterator[Event]:
        chunk = self._scheduler.chunk(choice)
        self._counts.passes += 1
        try:
            if not choice.opened:
                self._open(choice)
            result = self._runner.prefill(chunk)
        except Exception as error:
            yield from self._fail([choice.request], one_line(error))
            return
        if isinstance(result.token, Unsound):
            yield from self._fail([choice.request], _NOT_FINITE)
            return
        self._counts.computed += len(chunk.tokens)
        self._scheduler.computed(choice, len(chunk.tokens))
        choice.request.scores += result.scores
        if choice.prefilled:
            yield from self._begin(choice, result.token)

    def _open(self, choice: Choice) -> None:
        assert choice.slot is not None
        request = choice.request
        draw = Draw(
            request.work.sampling, choice.index, request.seed, request.prompt, choice.forced
        )
        self._runner.open(choice.slot, draw)
        choice.opened = True

    def _begin(self, choice: Choice, token: Token | None) -> Iterator[Event]:
        """The prompt is computed: its echo if that is asked for, and the first token."""
        if choice.index == 0:
            self._counts.prompt_tokens += len(choice.request.prompt)
        if choice.request.work.echo and (delta := echo(choice, self._vocabulary)).text:
            yield delta
        yield from self._advance(choice, token)

    def _decode(self, running: Iterable[Choice]) -> Iterator[Event]:
        # A request may have failed in this step's prefills, and left.
        choices = [choice for choice in running if choice.slot is not None]
        if not choices:
            return
        self._counts.passes += 1
        try:
            tokens = self._runner.decode([self._scheduler.row(choice) for choice in choices])
            drawn = list(zip(choices, tokens, strict=True))
        except Exception as error:
            requests = {choice.request: None for choice in choices}
            yield from self._fail(requests, one_line(error))
            return
        for choice, token in drawn:
            if choice.slot is None:  # another choice of its request was unsound
                continue
            if isinstance(token, Unsound):
                yield from self._fail([choice.request], _NOT_FINITE)
                continue
            self._scheduler.computed(choice, 1)
            yield from self._advance(choice, token)

    def _advance(self, choice: Choice, token: Token | None) -> Iterator[Event]:
        """Take a token for a choice; None where it wants none at all."""
        if token is None:
            choice.finish = choice.at_limit
        else:
            choice.accept(token, self._vocabulary)
            self._counts.tokens += 1
        delta = choice.report()
        if choice.finish:
            self._release(choice)
        if delta is not None:
            yield delta
        yield from self._end(choice.request)

    # -- ends --------------------------------------------------------------------------------

    def _end(self, request: Request) -> Iterator[Event]:
        if not request.open:
            del self._requests[request.work.id]
            self._counts.finished += 1
            yield Done(request.work.id, len(request.prompt), request.generated, request.found)

    def _fail(self, requests: Iterable[Request], why: str) -> Iterator[Event]:
        """Give up all that took part in a pass that raised, or drew nothing. The others go on."""
        for request in requests:
            self._forget(request)
            self._counts.failed += 1
            yield Failure(request.work.id, f"the model failed: {why}")

    def _forget(self, request: Request) -> None:
        del self._requests[request.work.id]
        for choice in self._scheduler.forget(request):
            self._release(choice)

    def _release(self, choice: Choice) -> None:
        if choice.opened:
            assert choice.slot is not None
            self._runner.close(choice.slot)
        self._scheduler.leave(choice)
        choice.request.open.remove(choice)

    def _measured(self) -> Gauges:
        counts, requests = self._counts, self._requests.values()
        started = sum(request.started for request in requests)
        return Gauges(
            steps=counts.steps,
            tokens=counts.tokens,
            prompt_tokens=counts.prompt_tokens,
            running=started,
            waiting=len(requests) - started,
            paused=sum(request.paused for request in requests),
            submitted=counts.submitted,
            finished=counts.finished,
            aborted=counts.aborted,
            failed=counts.failed,
            late=counts.late,
            owed=sum(choice.owed for request in requests for choice in request.open),
            free_blocks=self._pool.free,
            total_blocks=self._pool.count,
            extra={
                "seats_taken": float(self._scheduler.seats_taken),
                "prompt_tokens_computed": float(counts.computed),
            },
        )
