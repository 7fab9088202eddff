"""From an experiment to the loads that are played: who asks what, when, and how they behave. Pure.

Everything is a function of the experiment, its options, the seed, and what the control has shown:
how long one of its streams takes, and how many tokens a word of the prompts costs.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random

from conformance.capture import Json
from conformance.dossier import CHAT
from conformance.errors import UsageError
from conformance.script import Leave, Slow
from loadgen.clients import BUFFER, ORDINARY, Client, Clients
from loadgen.experiments.spec import (
    CONTEXT,
    CONTROL,
    MOST,
    ORDINARY_ROLE,
    Amount,
    Experiment,
    Leaves,
    Load,
    Part,
    Stalls,
)
from loadgen.load import Closed, Open
from loadgen.measure import Row
from loadgen.result import Result
from loadgen.spelling import mark_of
from loadgen.workload import Ask, Workload, hash_of

SPARE = 32  # tokens of a context that a prompt as long as it leaves free


@dataclass(frozen=True, slots=True)
class Turn:
    """One load to be played."""

    load: Load
    round: int
    n: int | None = None
    how: str | None = None

    @property
    def name(self) -> str:
        return " ".join(str(each) for each in (self.n, self.load.name, self.how) if each)


@dataclass(frozen=True, slots=True)
class Pace:
    """What the control showed. `span`: median seconds from sending to the last event; `price`:
    tokens of the prompt for each word of it, all that surrounds them included."""

    span: float
    price: float | None


@dataclass(frozen=True, slots=True)
class Member:
    """One request: `offset` in seconds from the start of the load."""

    role: str
    input: int
    output: int
    client: Client
    offset: float = 0.0


@dataclass(frozen=True, slots=True)
class Cast(Clients):
    """The clients of a staged load: nothing is drawn."""

    members: tuple[Member, ...] = ()

    def of(self, seed: int | str, index: int) -> Client:
        return self.members[index].client


@dataclass(frozen=True, slots=True)
class Staged(Workload):
    """A workload whose every request is cast by hand; greedy, so that answers may repeat."""

    members: tuple[Member, ...] = ()

    def ask(self, index: int, said: Sequence[str] = ()) -> Ask:
        member = self.members[index]
        mark = mark_of(self.seed, index)
        prompt = self._prompt(Random(f"{self.seed}:request:{index}"), mark, member.input)
        shape: dict[str, Json] = {"prompt": prompt}
        if self.api == CHAT:
            shape = {"messages": [{"role": "user", "content": prompt}]}
        body = {
            "model": self.model,
            **shape,
            "max_tokens": member.output,
            "stream": True,
            "stream_options": {"include_usage": True},
            "temperature": 0,
        }
        raw = json.dumps(body, separators=(",", ":")).encode("ascii")
        words, limit = member.input, member.output
        return Ask(index, raw, hash_of(shape), words, limit, mark, member.client)

    def _prompt(self, rng: Random, mark: str, words: int) -> str:
        """The mark first, so that no cache knows it; what is asked last: an answer that goes on."""
        first = rng.randint(1, 900)
        if self.api == CHAT:
            asked = f"Count from {first} to 5000, separated by commas."
        else:
            asked = f"Count from {first} to 5000: {first}, {first + 1},"
        more = words - len(asked.split()) - 1
        filled = self.spelling.text(rng, more) if more > 0 else ""
        return " ".join(each for each in (f"[{mark}]", filled, asked) if each)


def turns(
    experiment: Experiment, options: Mapping[str, int], at_most: int | None = None
) -> Iterator[Turn]:
    """In the order in which they are played. `at_most`: streams that we can hold; who doubles until
    something breaks goes no further."""
    most = None if experiment.doubling is None else options[experiment.doubling]
    if most is not None and at_most is not None and experiment.until_broken:
        most = min(most, at_most)
    for number in range(options.get("repeat", 1)):
        found = list(_round(experiment, most, number))
        yield from reversed(found) if experiment.alternate and number % 2 else found


def _round(experiment: Experiment, most: int | None, number: int) -> Iterator[Turn]:
    for n in (None,) if most is None else doublings(most):
        for load in experiment.loads:
            for how in load.hows or (None,):
                yield Turn(load, number, n, how)


def doublings(most: int) -> list[int]:
    """1, 2, 4 … and `most` itself."""
    found = [1]
    while found[-1] * 2 <= most:
        found.append(found[-1] * 2)
    return found if found[-1] >= most else [*found, most]


def pace_of(result: Result) -> Pace:
    """Of the control. Raises UsageError where no answer came whole: nothing can go by it."""
    rows = [row for row in result.rows if row.success and row.client is None]
    spans = [row.last_event - row.sent for row in rows if row.last_event and row.sent is not None]
    if not spans:
        raise UsageError(f"no stream of the {CONTROL} came whole, so the rest has nothing to go by")
    return Pace(statistics.median(spans), _price(rows))


def _price(rows: Sequence[Row]) -> float | None:
    known = [
        row.prompt_tokens / row.input_asked for row in rows if row.prompt_tokens and row.input_asked
    ]
    return max(known, default=None)


def amount(what: Amount, options: Mapping[str, int], n: int | None = None) -> int:
    """The number that it stands for."""
    if isinstance(what, int):
        return what
    return n if what == "n" and n is not None else options[what]


@dataclass(frozen=True, slots=True)
class Stage:
    """What members are made from. `context`: tokens that prompt and answer have together."""

    options: Mapping[str, int]
    turn: Turn
    seed: str
    pace: Pace | None = None
    context: int | None = None

    def number(self, what: Amount) -> int:
        return amount(what, self.options, self.turn.n)

    def cast(self) -> tuple[Member, ...]:
        """By their offsets; in a closed loop shuffled."""
        parts = enumerate(self.turn.load.parts)
        found = [member for place, part in parts for member in self._members(part, place)]
        if self.turn.load.clients is not None:
            Random(f"{self.seed}:order").shuffle(found)
        return tuple(sorted(found, key=lambda member: member.offset))

    def _members(self, part: Part, place: int) -> Iterator[Member]:
        count = round(self.number(part.count) * part.percent / 100)
        words, output = self._words(part), self.number(part.output)
        for number in range(count):
            rng = Random(f"{self.seed}:{place}:{number}")
            offset = self._seconds(part.at + number * part.apart)
            yield Member(part.role, words, output, self._client(part, output, rng), offset)

    def _seconds(self, percent: int) -> float:
        return percent / 100 * self.pace.span if self.pace is not None else 0.0

    def _words(self, part: Part) -> int:
        if part.input != CONTEXT:
            return self.number(part.input)
        given = self.options.get("input_tokens")
        if given:
            return given
        price = self.pace.price if self.pace is not None else None
        if self.context is None or price is None:
            raise UsageError(
                "the endpoint's models list has no max_model_len, or its usage no prompt_tokens: "
                "say with --input-tokens how many words the long prompt is to have"
            )
        room = (self.context - self.number(part.output) - SPARE) / price
        return int(min(MOST, max(1, room)))  # a server may say anything

    def _client(self, part: Part, output: int, rng: Random) -> Client:
        if part.role == ORDINARY_ROLE:
            return ORDINARY
        leave = None if part.leaves is None else self._leave(part.leaves, output, rng)
        slow = None if part.stalls is None else self._slow(part.stalls)
        return Client(part.role, leave, None, slow, own=leave is not None or slow is not None)

    def _leave(self, leaves: Leaves, output: int, rng: Random) -> Leave:
        how = leaves.by or self.turn.how or "fin"
        if leaves.time is not None:
            return Leave(how, seconds=self._seconds(leaves.time))
        if leaves.output is not None:
            return Leave(how, events=max(1, round(output * leaves.output / 100)))
        return Leave(how, events=rng.randint(*(leaves.events or (0, 0))))

    def _slow(self, stalls: Stalls) -> Slow:
        pause = self._seconds(stalls.time) + self.number(stalls.seconds)
        return Slow(pause=pause, events=stalls.events, buffer=BUFFER)

    def load(self, cast: Sequence[Member]) -> Open | Closed:
        """What is offered."""
        clients, watch = self.turn.load.clients, self.number(self.turn.load.watch)
        if clients is not None:
            return Closed(min(self.number(clients), len(cast)), len(cast))
        offsets = tuple(member.offset for member in cast)
        if offsets and not watch and not any(offsets):
            return Closed(len(cast), len(cast))  # all at once, as soon as each can be sent
        return Open(offsets, max(offsets, default=0.0) + max(watch, 1e-3))
