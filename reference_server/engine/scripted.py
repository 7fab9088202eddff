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
from reference_server.engine.interface import (
    Delta,
    Done,
    Event,
    FinishReason,
    Gauges,
    TokenLogprob,
    Work,
)
from reference_server.engine.text import TextPath, spelled

# What else a token might have been: enough for 20 alternatives, none of them equal.
_ALTERNATIVES = tuple(b" w%d" % number for number in range(21))


@dataclass(slots=True)
class _Choice:
    """One sequence. `path` turns its tokens into text."""

    work: Work
    index: int
    tokens: tuple[bytes, ...]
    path: TextPath
    position: int = 0
    unreported: int = 0  # tokens since the last Delta
    echoed: bool = False


@dataclass(slots=True)
class _Request:
    work: Work
    prompt_tokens: int
    unfinished: int
    generated: int = 0
    started: bool = False
    choices: list[_Choice] = field(default_factory=list)


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

    def holds(self, work: str, index: int) -> bool:
        return (work, index) in self._taken

    def __iter__(self) -> Iterator[_Choice]:
        return iter(tuple(self._taken.values()))

    def __len__(self) -> int:
        return len(self._taken)


class ScriptedEngine:
    """See `interface.Engine`. `seed` decides what requests without a seed of their own draw."""

    def __init__(self, max_batch: int = 16, seed: int | None = None) -> None:
        if max_batch < 1:
            raise ValueError("max_batch must be at least 1")
        self._rng = random.Random(seed)
        self._requests: dict[str, _Request] = {}
        self._waiting: deque[_Choice] = deque()
        self._seats = Seats(max_batch)
        self._steps = self._tokens = self._submitted = self._finished = self._aborted = 0

    def submit(self, work: Work) -> None:
        if work.id in self._requests:
            raise ValueError(f"request id {work.id} is in use")
        request = _Request(work, self.count_tokens(work.prompt), work.n)
        request.choices = [self._choice(work, index) for index in range(work.n)]
        self._requests[work.id] = request
        self._waiting.extend(request.choices)
        self._submitted += 1

    def cancel(self, work: str) -> bool:
        if self._requests.pop(work, None) is None:
            return False
        self._waiting = deque(choice for choice in self._waiting if choice.work.id != work)
        for choice in self._seats:
            if choice.work.id == work:
                self._seats.release(work, choice.index)
        self._aborted += 1
        return True

    def step(self) -> Sequence[Event]:
        while self._waiting and self._seats.take(self._waiting[0]):
            self._requests[self._waiting.popleft().work.id].started = True
        if not len(self._seats):
            return ()
        self._steps += 1
        return [event for choice in self._seats for event in self._advance(choice)]

    def count_tokens(self, text: str) -> int:
        return len(tokens.cut(text))

    @property
    def gauges(self) -> Gauges:
        started = sum(request.started for request in self._requests.values())
        return Gauges(
            steps=self._steps,
            tokens=self._tokens,
            running=started,
            waiting=len(self._requests) - started,
            submitted=self._submitted,
            finished=self._finished,
            aborted=self._aborted,
            extra={"seats_taken": float(len(self._seats))},
        )

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
        self._tokens += 1
        self._requests[choice.work.id].generated += 1

    def _leave(self, choice: _Choice) -> Iterator[Event]:
        self._seats.release(choice.work.id, choice.index)
        request = self._requests[choice.work.id]
        request.unfinished -= 1
        if not request.unfinished:
            del self._requests[choice.work.id]
            self._finished += 1
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
