"""The scripted engine: continuous batching without a model.

Each step gives every running choice one token of its script. At most `max_batch` choices run; the
others wait, first come, first served. Same prompt, seed and temperature: same tokens.
"""

from __future__ import annotations

import math
import random
import zlib
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from reference_server.engine import script, tokens
from reference_server.engine.inbox import Cancel, Command, Pause, Submit, Verbs
from reference_server.engine.interface import (
    Delta,
    Done,
    Event,
    FinishReason,
    Gauges,
    Message,
    Started,
    TokenLogprob,
    Work,
)
from reference_server.engine.text import TextPath, spelled

CONTEXT = 4096  # tokens
# What else a token might have been: enough for 20 alternatives, none of them equal.
_ALTERNATIVES = tuple(b" w%d" % number for number in range(21))


@dataclass(slots=True, eq=False)
class _Choice:
    """One sequence. `path` turns its tokens into text."""

    work: Work
    index: int
    tokens: tuple[bytes, ...]
    path: TextPath
    position: int = 0
    unreported: int = 0  # tokens since the last Delta
    echoed: bool = False

    @property
    def owed(self) -> int:
        """Tokens it may still generate."""
        if self.path.stopped:
            return 0
        limit = self.work.sampling.max_tokens
        end = len(self.tokens) if limit is None else min(limit, len(self.tokens))
        return max(0, end - self.position)


@dataclass(slots=True)
class _Request:
    work: Work
    prompt_tokens: int
    unfinished: int
    generated: int = 0
    started: bool = False
    paused: bool = False
    choices: list[_Choice] = field(default_factory=list)


@dataclass(slots=True)
class _Counts:
    """The counters of `Gauges`."""

    steps: int = 0
    tokens: int = 0
    prompt_tokens: int = 0
    submitted: int = 0
    finished: int = 0
    aborted: int = 0
    late: int = 0


class Seats:
    """The places of the running batch. A seat is released exactly once."""

    def __init__(self, count: int) -> None:
        self._free = count
        self._taken: dict[tuple[str, int], _Choice] = {}

    def take(self, choice: _Choice) -> bool:
        """False when every seat is taken."""
        if not self._free:
            return False
        self._free -= 1
        self._taken[choice.work.id, choice.index] = choice
        return True

    def release(self, work: str, index: int) -> None:
        """Raises RuntimeError when that choice holds no seat: a second release is our bug."""
        if self._taken.pop((work, index), None) is None:
            raise RuntimeError(f"choice {index} of {work} holds no seat to release")
        self._free += 1

    @property
    def free(self) -> int:
        return self._free

    def holds(self, work: str, index: int) -> bool:
        return (work, index) in self._taken

    def __iter__(self) -> Iterator[_Choice]:
        return iter(tuple(self._taken.values()))

    def __len__(self) -> int:
        return len(self._taken)


class ScriptedEngine(Verbs):
    """See `interface.Engine`. `seed` decides what requests without a seed of their own draw."""

    def __init__(
        self, max_batch: int = 16, seed: int | None = None, context: int = CONTEXT
    ) -> None:
        super().__init__()
        if max_batch < 1:
            raise ValueError("max_batch must be at least 1")
        self.context = context
        self._rng = random.Random(seed)
        self._requests: dict[str, _Request] = {}
        self._waiting: deque[_Choice] = deque()
        self._seats = Seats(max_batch)
        self._counts = _Counts()
        self._gauges = Gauges(extra={"seats_taken": 0.0})

    # -- any thread --------------------------------------------------------------------------

    longest = tokens.LONGEST
    vocabulary = None

    def count_tokens(self, text: str) -> int:
        return len(tokens.cut(text))

    def token_ids(self, text: str) -> None:
        """Its tokens are bytes and have no numbers."""

    def text_of(self, ids: Sequence[int]) -> None: ...

    def chat_prompt(self, messages: Sequence[Message]) -> str:
        return script.chat_prompt(messages)

    @property
    def gauges(self) -> Gauges:
        return self._gauges

    # -- the step ----------------------------------------------------------------------------

    @property
    def idle(self) -> bool:
        admissible = self._waiting and self._seats.free
        return not (self._inbox or admissible or any(self._running()))

    def step(self) -> Iterator[Event]:
        for command in self._inbox.drain():
            self._apply(command)
        yield from self._admit()
        running = tuple(self._running())
        self._counts.steps += bool(running)
        for choice in running:
            yield from self._advance(choice)
        self._gauges = self._measured()

    def _running(self) -> Iterator[_Choice]:
        """The seated choices, but for those that are paused."""
        return (choice for choice in self._seats if not self._requests[choice.work.id].paused)

    def _apply(self, command: Command) -> None:
        if isinstance(command, Submit):
            self._accept(command.work)
        elif (request := self._requests.get(command.work)) is None:
            self._counts.late += 1
        elif isinstance(command, Cancel):
            self._forget(command.work)
        else:
            request.paused = isinstance(command, Pause)

    def _accept(self, work: Work) -> None:
        if work.id in self._requests:
            raise ValueError(f"request id {work.id} is in use")
        request = _Request(work, self.count_tokens(work.prompt), work.n)
        request.choices = [self._choice(work, index) for index in range(work.n)]
        self._requests[work.id] = request
        self._waiting.extend(request.choices)
        self._counts.submitted += 1

    def _forget(self, work: str) -> None:
        del self._requests[work]
        self._waiting = deque(choice for choice in self._waiting if choice.work.id != work)
        for choice in self._seats:
            if choice.work.id == work:
                self._seats.release(work, choice.index)
        self._counts.aborted += 1

    def _admit(self) -> Iterator[Event]:
        while self._waiting and self._seats.take(self._waiting[0]):
            request = self._requests[self._waiting.popleft().work.id]
            if not request.started:
                request.started = True
                self._counts.prompt_tokens += request.prompt_tokens
                yield Started(request.work.id)

    def _measured(self) -> Gauges:
        requests = self._requests.values()
        started = sum(request.started for request in requests)
        counts = self._counts
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
            late=counts.late,
            owed=sum(choice.owed for request in requests for choice in request.choices),
            extra={"seats_taken": float(len(self._seats))},
        )

    # -- one choice --------------------------------------------------------------------------

    def _choice(self, work: Work, index: int) -> _Choice:
        text = work.answer
        if text is None:
            text = script.answer(work.prompt, self._random(work, index))
        path = TextPath(work.sampling.stop, aligned=work.sampling.logprobs is not None)
        return _Choice(work, index, tokens.cut(text), path, echoed=not work.echo)

    def _random(self, work: Work, index: int) -> random.Random:
        """Temperature 0: the prompt alone decides. A seed: the same again, choice by choice."""
        sampling = work.sampling
        if sampling.temperature == 0:
            return random.Random(f"greedy\0{work.prompt}")
        if sampling.seed is not None:
            return random.Random(f"{sampling.seed}\0{index}\0{work.prompt}")
        return random.Random(self._rng.random())

    def _advance(self, choice: _Choice) -> Iterator[Event]:
        """One token for one running choice."""
        if not choice.echoed:
            choice.echoed = True
            yield _echo(choice.work, choice.index)
        if not _over(choice):
            self._generate(choice)
        finish = _over(choice)
        text, entries = choice.path.take()
        if finish:
            rest, last = choice.path.close()
            if choice.path.stopped:
                finish = FinishReason.STOP
            text, entries = text + rest, entries + last
        if text or finish:
            yield Delta(choice.work.id, choice.index, text, choice.unreported, entries, finish)
            choice.unreported = 0
        if finish:
            yield from self._leave(choice)

    def _generate(self, choice: _Choice) -> None:
        raw = choice.tokens[choice.position]
        wanted = choice.work.sampling.logprobs
        entry = None if wanted is None else _logprob(raw, choice.position, wanted)
        choice.path.feed(raw, entry)
        choice.position += 1
        choice.unreported += 1
        self._counts.tokens += 1
        self._requests[choice.work.id].generated += 1

    def _leave(self, choice: _Choice) -> Iterator[Event]:
        self._seats.release(choice.work.id, choice.index)
        request = self._requests[choice.work.id]
        request.choices.remove(choice)
        request.unfinished -= 1
        if not request.unfinished:
            del self._requests[choice.work.id]
            self._counts.finished += 1
            yield Done(choice.work.id, request.prompt_tokens, request.generated)


def _over(choice: _Choice) -> FinishReason | None:
    if choice.path.stopped:
        return FinishReason.STOP
    limit = choice.work.sampling.max_tokens
    if limit is not None and choice.position >= limit:
        return FinishReason.LENGTH
    return FinishReason.STOP if choice.position >= len(choice.tokens) else None


def _echo(work: Work, index: int) -> Delta:
    wanted = work.sampling.logprobs
    entries: tuple[TokenLogprob, ...] = ()
    if wanted is not None:
        pieces = enumerate(tokens.cut(work.prompt))
        entries = tuple(_logprob(raw, place, wanted) for place, raw in pieces)
    return Delta(work.id, index, work.prompt, 0, entries)


def _logprob(raw: bytes, position: int, wanted: int) -> TokenLogprob:
    """Probabilities made up from the token and its place: the chosen one is the likeliest."""
    draw = random.Random(zlib.crc32(raw) + position)
    share = draw.uniform(0.5, 0.97)
    others = [other for other in _ALTERNATIVES if other != raw]
    draw.shuffle(others)
    ranked = [(raw, share)]
    for other in others[: max(0, wanted - 1)]:
        share = (1 - sum(chance for _, chance in ranked)) * 0.5
        ranked.append((other, share))
    top = tuple((spelled(one), one, round(math.log(chance), 6)) for one, chance in ranked[:wanted])
    return TokenLogprob(spelled(raw), raw, round(math.log(ranked[0][1]), 6), top)
