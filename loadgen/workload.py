"""What each request asks: request number i is a function of the seed and i alone. Pure.

Only fields of the published API are sent: strict servers refuse others. How a prompt comes to its
tokens is `spelling`'s; what it really cost is what the server's usage says.

What is played in one place, one request after another, is a unit: a request with its retries, or a
session with its turns and theirs. Every unit has the same number of indices, whether it uses them
or not: unit u begins with index u · stride.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random

from conformance.capture import Json
from conformance.dossier import CHAT
from loadgen.clients import NOBODY, ORDINARY, Client, Clients, Draw
from loadgen.lengths import Length
from loadgen.parts import INPUT, NO_WAIT, OUTPUT, Part, Prefix, Retry
from loadgen.prompts import Conversation, Prompt
from loadgen.spelling import PLAIN_WORDS, Spelling, mark_of
from loadgen.traces import Arrival
from loadgen.turns import Turn, blocks_of, given, prefix_of, talk


@dataclass(frozen=True, slots=True)
class Ask:
    """One request. Tokens are what was meant, None where nothing was said.

    `mark`: text that stands in no other unit's prompt. `body`: the JSON as it is sent.
    `prompt_hash`: the first 16 hex digits of SHA-256 over the prompt's JSON, answers left out.
    `input_tokens`: of a later turn what it is at most, with answers as long as they may be.
    `turn`: from 0 on, None where it is no session's. `group`: of the shared prefix. `attempt`: 0,
    then 1, 2, … for retries.
    """

    index: int
    body: bytes
    prompt_hash: str
    input_tokens: int | None = None
    output_tokens: int | None = None
    mark: str | None = None
    client: Client = ORDINARY
    streams: bool = True
    part: str | None = None
    turn: int | None = None
    group: int | None = None
    attempt: int = 0


@dataclass(frozen=True, slots=True)
class Place:
    """Where an index stands: which unit, which of its turns, which attempt at it."""

    unit: int
    turn: int = 0
    attempt: int = 0


@dataclass(frozen=True, slots=True)
class Unit:
    """One request or session as it was drawn."""

    number: int
    part: Part
    turns: int = 1
    group: int | None = None
    streams: bool = True


@dataclass(frozen=True, slots=True)
class Workload:
    """What to ask. `prompts`: as a file gave them, used in turn; empty: generated ones.

    `greedy`: at temperature 0, so that an endpoint may repeat itself. `turns`, `prefix`, `plain`:
    as for a Part. `mix`: parts in place of what is said here of lengths, prompts, prefix, turns.
    `side`: of two endpoints that are asked alike; it changes the marks, the words that prompts
    share, and nothing else.
    """

    api: str
    model: str
    seed: int | str
    input_length: Length = INPUT
    output_length: Length = OUTPUT
    prompts: tuple[Prompt, ...] = ()
    trace: tuple[Arrival, ...] = ()
    clients: Clients = NOBODY
    greedy: bool = False
    by_answers: bool = False
    prefix: Prefix | None = None
    turns: Length | None = None
    think: Draw = NO_WAIT
    plain: float = 0.0
    mix: tuple[Part, ...] = ()
    retry: Retry | None = None
    spelling: Spelling = PLAIN_WORDS
    side: str = ""

    def simple(self, input_length: Length, output_length: Length) -> Workload:
        """The same for ordinary clients, each with one streamed request of these lengths."""
        return Workload(
            self.api, self.model, self.seed, input_length, output_length, greedy=self.greedy
        )

    @property
    def parts(self) -> tuple[Part, ...]:
        return self.mix or (self._only,)

    @property
    def shares_blocks(self) -> bool:
        """Do prompts share what the trace says?"""
        return not self.prompts and any(arrival.blocks for arrival in self.trace)

    @property
    def _only(self) -> Part:
        return Part(
            input_length=self.input_length,
            output_length=self.output_length,
            prompts=self.prompts,
            prefix=self.prefix,
            turns=self.turns,
            think=self.think,
            plain=self.plain,
            by_answers=self.by_answers,
        )

    # -- units -----------------------------------------------------------------------------------

    @property
    def attempts(self) -> int:
        """At a turn, at most."""
        return 1 + (self.retry.most if self.retry else 0)

    @property
    def stride(self) -> int:
        """Indices of a unit."""
        if not (self.mix or self.turns):
            return self.attempts
        return max(part.most_turns for part in self.parts) * self.attempts

    def unit(self, index: int) -> int:
        """What request `index` belongs to and is played with, in one place."""
        return index // self.stride

    def place(self, index: int) -> Place:
        """Raises nothing: every index from 0 on has one, though it may never be used."""
        stride = self.stride
        if stride == 1:
            return Place(index)
        number, rest = divmod(index, stride)
        return Place(number, *divmod(rest, self.attempts))

    def index(self, place: Place) -> int:
        return place.unit * self.stride + place.turn * self.attempts + place.attempt

    def drawn(self, number: int) -> Unit:
        """Unit number so and so."""
        if not (self.mix or self.prefix or self.turns or self.plain):
            return Unit(number, self._only)
        rng = Random(f"{self.seed}:unit:{number}")
        parts = self.parts
        part = parts[0]
        if self.mix:
            part = rng.choices(parts, [each.weight for each in parts])[0]
        turns = part.turns_of(rng)
        group = None if part.prefix is None else part.prefix.group(rng)
        streams = rng.random() * 100 >= part.plain
        if part.prompts:
            given = part.prompts[number % len(part.prompts)]
            turns = min(turns, len(given.asked)) if isinstance(given, Conversation) else turns
        return Unit(number, part, turns, group, streams)

    def indices(self, number: int) -> list[int]:
        """Of the first attempts at every turn of a unit: what is scheduled before anybody knows."""
        turns = self.drawn(number).turns
        return [self.index(Place(number, turn)) for turn in range(turns)]

    def think_time(self, index: int) -> float:
        """Seconds between the answer before and this turn."""
        draw = self.drawn(self.place(index).unit).part.think
        return draw.draw(Random(f"{self.seed}:think:{index}"))

    def retry_wait(self, index: int) -> float:
        """Seconds between giving up and this attempt."""
        rng = Random(f"{self.seed}:retry:{index}")
        return 0.0 if self.retry is None else self.retry.wait.draw(rng)

    # -- requests --------------------------------------------------------------------------------

    def ask(self, index: int, said: Sequence[str] = ()) -> Ask:
        """Request number `index`, the same whenever and wherever it is made.

        `said`: the answers to the turns before it, which alone the seed does not know.
        """
        place = self.place(index)
        unit = self.drawn(place.unit)
        mark = None if unit.part.prompts else mark_of(f"{self.seed}{self.side}", unit.number)
        turns = [self._turn(unit, turn, mark) for turn in range(place.turn + 1)]
        shared = self._shared(unit)
        limit = turns[-1].limit
        wanted = _sum([each.wanted for each in turns])
        if wanted is not None:
            wanted += 0 if shared is None else shared[1]
            wanted += sum(each.limit for each in turns[:-1])
        member = self._member(turns, shared, said)
        body: dict[str, Json] = {
            "model": self.model,
            **member,
            "max_tokens": limit,
            "stream": unit.streams,
            **({"stream_options": {"include_usage": True}} if unit.streams else {}),
            **({"temperature": 0} if self.greedy else {}),
        }
        return Ask(
            index,
            _json(body),
            hash_of(self._member(turns, shared, ()) if said else member),
            wanted,
            limit,
            mark,
            self.clients.of(self.seed, index - place.attempt),
            unit.streams,
            unit.part.name,
            None if unit.part.turns is None else place.turn,
            unit.group,
            place.attempt,
        )

    def tokens(self, number: int) -> int:
        """What a unit costs at most, with every retry: max_tokens, and those of its prompts as
        asked for. Of a file's prompts these are not known, and not counted. No text is made."""
        unit = self.drawn(number)
        before, total = self._prefix_tokens(unit), 0
        for turn in range(unit.turns):
            wanted, limit = self._lengths(unit, turn, self._rng(unit, turn))
            if unit.part.prompts:
                before, wanted, limit = 0, 0, given(unit.part, number, turn, limit).limit
            before += wanted
            total += self._tries(unit, turn) * (before + limit)
            before += 0 if unit.part.prompts else limit
        return total

    def _prefix_tokens(self, unit: Unit) -> int:
        if unit.group is None or unit.part.prefix is None:
            return 0
        return unit.part.prefix.tokens.draw(Random(self._prefix_name(unit)))

    def _tries(self, unit: Unit, turn: int) -> int:
        if self.attempts == 1:
            return 1
        client = self.clients.of(self.seed, self.index(Place(unit.number, turn)))
        return 1 if client.patience is None else self.attempts

    @property
    def costs_alike(self) -> bool:
        """Does every unit cost the same at most? False also where that is not easily told."""
        part = self._only
        drawn = {part.input_length.kind, part.output_length.kind} != {"fixed"}
        varied = self.mix or self.trace or self.turns or self.prefix or self.by_answers
        return not (drawn or varied or self.attempts > 1)

    def _turn(self, unit: Unit, turn: int, mark: str | None) -> Turn:
        rng = self._rng(unit, turn)
        wanted, limit = self._lengths(unit, turn, rng)
        if unit.part.prompts:
            return given(unit.part, unit.number, turn, limit)
        blocks = () if turn or not self.trace else self._arrival(unit).blocks
        text = self._text(rng, wanted, None if turn else mark, blocks)
        return Turn([{"role": "user", "content": text}], text, wanted, limit)

    def _rng(self, unit: Unit, turn: int) -> Random:
        return Random(f"{self.seed}:request:{self.index(Place(unit.number, turn))}")

    def _lengths(self, unit: Unit, turn: int, rng: Random) -> tuple[int, int]:
        """Tokens of what is asked, and max_tokens."""
        wanted, limit = unit.part.input_length.draw(rng), unit.part.output_length.draw(rng)
        if self.trace and not turn:
            arrival = self._arrival(unit)
            wanted = wanted if arrival.input_tokens is None else arrival.input_tokens
            limit = limit if arrival.output_tokens is None else max(1, arrival.output_tokens)
        return wanted, limit

    def _arrival(self, unit: Unit) -> Arrival:
        return self.trace[unit.number % len(self.trace)]

    def _text(self, rng: Random, wanted: int, mark: str | None, blocks: Sequence[int]) -> str:
        """Behind a mark no two prompts share anything that a cache could know."""
        spelling = self.spelling
        left = wanted - spelling.constant
        if blocks:
            name = f"{self.seed}{self.side}:block"
            return f"{blocks_of(name, blocks, left - spelling.behind, spelling)} [{mark}]"
        words = spelling.text(rng, left)
        marked = [] if mark is None else [f"[{mark}]"]
        return " ".join([*marked, *([words] if words else [])])

    def _shared(self, unit: Unit) -> tuple[str, int] | None:
        """The prefix of the unit's group, and its tokens."""
        if unit.group is None or unit.part.prefix is None:
            return None
        name, length = self._prefix_name(unit), unit.part.prefix.tokens
        return prefix_of(name, self.side, length, self.spelling)

    def _prefix_name(self, unit: Unit) -> str:
        return f"{self.seed}:prefix:{unit.part.name or ''}:{unit.group}"

    def _member(
        self, turns: Sequence[Turn], shared: tuple[str, int] | None, said: Sequence[str]
    ) -> dict[str, Json]:
        """The prompt as the API spells it."""
        if self.api != CHAT:
            own = turns[-1].text or ""
            return {"prompt": own if shared is None else f"{shared[0]} {own}"}
        system: list[Json] = []
        if shared is not None:
            system = [{"role": "system", "content": shared[0]}]
        return {"messages": [*system, *talk(turns, said)]}


def _sum(wanted: Sequence[int | None]) -> int | None:
    known = [each for each in wanted if each is not None]
    return sum(known) if len(known) == len(wanted) else None


def hash_of(prompt: Mapping[str, Json]) -> str:
    """Names a prompt without showing it."""
    return hashlib.sha256(_json(dict(prompt))).hexdigest()[:16]


def _json(value: Json) -> bytes:
    return json.dumps(value, separators=(",", ":"), allow_nan=False).encode("ascii")
