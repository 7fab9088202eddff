"""The same requests alone and in company, over real sockets, and where what they get differs.

Company is who shares the steps: the other requests, half of which join when the first have three
tokens, and passers-by who hang up in mid-answer or before they had a place.
"""

from __future__ import annotations

import json
import random
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

import h11
import torch
import trio

from reference_server.engine.batching import BatchingEngine
from reference_server.engine.runner import Draw, Token
from tests.reference_server.client import (
    CHAT,
    COMPLETIONS,
    Client,
    Running,
    run_in_real_time,
    until,
)
from tests.reference_server.decisions import Decision
from tests.reference_server.loopback import listening

TOKENS = 24
SEATS = 60  # for 32 and all who pass by
_STRANGERS = 10**6  # their seeds begin here
KINDS: tuple[dict[str, Any], ...] = (
    {"temperature": 0},
    {"temperature": 1.0},
    {"temperature": 0.8, "top_p": 0.9},
    {"temperature": 0, "repetition_penalty": 1.3},
    {"temperature": 1.2, "top_k": 40},
    {"temperature": 1.0, "presence_penalty": 0.8, "frequency_penalty": 0.5},
    {"temperature": 0, "logit_bias": {"100": 3, "7": -5}},
    {"temperature": 1.0, "min_p": 0.05},
)


@dataclass(frozen=True, slots=True)
class Ask:
    """One request. Its seed names it: no two have the same."""

    path: str
    body: Mapping[str, Any]

    @property
    def seed(self) -> int:
        return int(self.body["seed"])


def ask(seed: int, prompt: str, chat: bool, **members: Any) -> Ask:
    asked = {"messages": [{"role": "user", "content": prompt}]} if chat else {"prompt": prompt}
    body = {"model": "scripted", "stream": True, "return_token_ids": True, "ignore_eos": True}
    path = CHAT if chat else COMPLETIONS
    return Ask(path, {**body, "max_tokens": TOKENS, "seed": seed, **asked, **members})


@dataclass(slots=True)
class Heard:
    """What one request got: ids over the wire, and the logits that it was drawn from."""

    prompt: list[int]
    tokens: list[int]
    logits: list[Any] = field(default_factory=list)


class Watched:
    """A sampler, and what goes through it: the logits of each draw, the widest batch."""

    def __init__(self, sampler: Any) -> None:
        self._sampler = sampler
        self._seeds: dict[int, int] = {}
        self.logits: dict[int, list[Any]] = defaultdict(list)
        self.widest = 0

    def open(self, slot: int, draw: Draw) -> None:
        self._seeds[slot] = draw.seed
        self._sampler.open(slot, draw)

    def close(self, slot: int) -> None:
        self._sampler.close(slot)

    def sample(self, logits: Any, slots: Sequence[int]) -> list[Token]:
        seeds = [self._seeds[slot] for slot in slots]
        self.widest = max(self.widest, sum(seed < _STRANGERS for seed in seeds))
        for row, seed in zip(logits.cpu(), seeds, strict=True):
            self.logits[seed].append(row.clone())
        drawn: list[Token] = self._sampler.sample(logits, slots)
        return drawn

    def scores(self, logits: Any, ids: Sequence[int], top: int) -> list[Token]:
        scored: list[Token] = self._sampler.scores(logits, ids, top)
        return scored


def watched(engine: BatchingEngine) -> Watched:
    """From now on its sampler is."""
    runner: Any = engine._runner
    runner._sampler = Watched(runner._sampler)
    made: Watched = runner._sampler
    return made


# -- alone and together --------------------------------------------------------------------------


def alone(engine: BatchingEngine, asks: Iterable[Ask], seconds: float = 300) -> dict[int, Heard]:
    """Each after the one before it. What it got, by seed."""
    notes, heard = watched(engine), {}

    async def main() -> None:
        async with listening(engine) as (_, connect):
            for one in asks:
                client, _ = await connect()
                heard[one.seed] = await _listen(client, one)

    run_in_real_time(main, seconds)
    assert notes.widest == 1
    return _with_logits(heard, notes)


@dataclass(slots=True)
class Together:
    heard: dict[int, Heard]
    widest: int
    left: int  # passers-by who hung up


def together(engine: BatchingEngine, asks: Sequence[Ask], seconds: float = 120) -> Together:
    """All at once: half of them from the beginning, the others when three steps are done."""
    notes, heard = watched(engine), {}
    before = engine.gauges.aborted

    async def main() -> None:
        async with listening(engine) as (running, connect), trio.open_nursery() as nursery:
            strangers = passers_by(asks)

            async def one(each: Ask) -> None:
                client, _ = await connect()
                heard[each.seed] = await _listen(client, each)

            async def pass_by(each: Ask, tokens: int) -> None:
                client, _ = await connect()
                await client.send(each.path, each.body)
                await _hear(client, tokens)
                await client.hang_up()

            running.server.bridge.allow(0)
            for number in range(len(asks) // 2 + 1):
                nursery.start_soon(pass_by, next(strangers), number % 5 + 1)
            for each in asks[::2]:
                nursery.start_soon(one, each)
            await _let_in(running, len(asks) // 2 + 1 + len(asks[::2]), 3)
            for each in asks[1::2]:
                nursery.start_soon(one, each)
            gone = [(await connect())[0] for _ in range(len(asks) // 4 + 1)]
            for client in gone:
                stranger = next(strangers)
                await client.send(stranger.path, stranger.body)
            await _let_in(running, len(asks[1::2]) + len(gone), 0)
            for client in gone:
                await client.hang_up()
            running.server.bridge.allow(10**6)
            await until(lambda: len(heard) == len(asks) and not running.server.bridge.busy)

    run_in_real_time(main, seconds)
    engine.check_integrity()
    assert engine.gauges.free_blocks == engine.gauges.total_blocks
    return Together(_with_logits(heard, notes), notes.widest, engine.gauges.aborted - before)


async def _let_in(running: Running, waiting: int, steps: int) -> None:
    """When so many have come, let them do so many steps."""
    bridge, before = running.server.bridge, running.engine.gauges.steps
    await until(lambda: bridge.waiting >= waiting)
    bridge.allow(steps)
    await until(lambda: running.engine.gauges.steps >= before + steps)


def passers_by(asks: Sequence[Ask]) -> Iterator[Ask]:
    """Others who ask like them, from the same beginnings."""
    rng = random.Random(len(asks))
    for number in range(10**6):
        like = rng.choice(asks)
        seed = _STRANGERS + number
        yield Ask(like.path, {**like.body, **rng.choice(KINDS), "seed": seed})


async def _listen(client: Client, one: Ask) -> Heard:
    reply = await client.post(one.path, one.body)
    assert reply.status == 200, reply.body
    heard = Heard([], [])
    for chunk in reply.chunks:
        heard.prompt += chunk.get("prompt_token_ids") or []
        for choice in chunk["choices"]:
            heard.prompt += choice.get("prompt_token_ids") or []
            heard.tokens += choice.get("token_ids") or []
    assert len(heard.tokens) == TOKENS, one
    return heard


async def _hear(client: Client, tokens: int) -> None:
    """Until so many tokens have come, or the end."""
    raw = b""
    async with aclosing(client.events()) as events:
        async for event in events:
            raw += bytes(event.data) if isinstance(event, h11.Data) else b""
            if _tokens(raw) >= tokens:
                return


def _tokens(raw: bytes) -> int:
    """In the whole events of what has come so far."""
    blocks = raw.decode(errors="replace").split("\n\n")[:-1]
    chunks = [json.loads(block[6:]) for block in blocks if not block.endswith("[DONE]")]
    choices = [choice for chunk in chunks for choice in chunk["choices"]]
    return sum(len(choice.get("token_ids") or ()) for choice in choices)


def _with_logits(heard: dict[int, Heard], notes: Watched) -> dict[int, Heard]:
    for seed, one in heard.items():
        one.logits = notes.logits[seed]
        assert len(one.logits) == len(one.tokens)
    return heard


# -- what differs --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Parting:
    """A stream that is not as it is alone, from `place` on. `margin`: of the decision there."""

    width: int
    body: Mapping[str, Any]
    place: int
    margin: float

    def __str__(self) -> str:
        where = f"width {self.width}, seed {self.body['seed']}, token {self.place}"
        how = "drawn" if self.body["temperature"] else "greedy"
        return f"{where}, {how}: margin {self.margin:.1e}"


@dataclass(slots=True)
class Account:
    """Of all streams of a run."""

    streams: int = 0
    same: int = 0  # token ids
    bitwise: int = 0  # logits of all decisions
    apart: float = 0.0  # the largest difference of a logit, up to where the tokens differ
    left: int = 0
    partings: list[Parting] = field(default_factory=list)

    def add(
        self,
        asks: Sequence[Ask],
        solo: Mapping[int, Heard],
        made: Mapping[int, Sequence[Decision]],
        got: Together,
    ) -> None:
        """`made` are the decisions of the reference, the answers being those of `solo`."""
        self.left += got.left
        for one in asks:
            first, second = solo[one.seed], got.heard[one.seed]
            assert first.prompt == second.prompt
            self.streams += 1
            place = _place(first.tokens, second.tokens)
            self.same += place is None
            pairs = _pairs(first, second)
            self.bitwise += all(torch.equal(a, b) for a, b in pairs)
            self.apart = max(self.apart, apart(first, second))
            if place is not None:
                margin = made[one.seed][place].margin
                self.partings.append(Parting(len(asks), one.body, place, margin))

    def lines(self, title: str) -> Iterator[str]:
        yield (
            f"{title}: identical to solo: {self.same} of {self.streams}"
            f" (logits bitwise: {self.bitwise}; largest difference {self.apart:.1e};"
            f" {self.left} others hung up)"
        )
        for each in self.partings:
            yield f"  exception: {each}"


def apart(first: Heard, second: Heard) -> float:
    """The largest difference of a logit, up to where the tokens differ."""
    return max(float((a - b).abs().max()) for a, b in _pairs(first, second))


def _pairs(first: Heard, second: Heard) -> list[tuple[Any, Any]]:
    """Logits of decisions after one and the same beginning."""
    place = _place(first.tokens, second.tokens)
    return list(zip(first.logits, second.logits, strict=True))[: _end(place)]


def _place(first: Sequence[int], second: Sequence[int]) -> int | None:
    pairs = enumerate(zip(first, second, strict=True))
    return next((place for place, (a, b) in pairs if a != b), None)


def _end(place: int | None) -> int | None:
    return None if place is None else place + 1
