"""Parts: what one kind of request in a load is; a mix has several, each with a weight. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from random import Random

from conformance.errors import UsageError
from loadgen.clients import DRAWS, Draw, parse_draw
from loadgen.lengths import Length, parse_length
from loadgen.prompts import Prompt

INPUT, OUTPUT = Length("fixed", 128), Length("fixed", 64)
MOST_TURNS = 100
MOST_GROUPS = 1_000_000
NO_WAIT = Draw("fixed", 0.0)


@dataclass(frozen=True, slots=True)
class Prefix:
    """So many percent of the requests (or sessions) begin with one of `groups` texts."""

    share: float
    tokens: Length
    groups: int

    def group(self, rng: Random) -> int | None:
        """Which, from 0 on; None: no prefix."""
        if rng.random() * 100 >= self.share:
            return None
        return rng.randrange(self.groups)


@dataclass(frozen=True, slots=True)
class Part:
    """`name` None: the whole load. `plain`: percent of the requests that are not streamed.

    `turns` None: single requests. `by_answers`: max_tokens are those of a file's own answers.
    """

    name: str | None = None
    weight: float = 1.0
    input_length: Length = INPUT
    output_length: Length = OUTPUT
    prompts: tuple[Prompt, ...] = ()
    prefix: Prefix | None = None
    turns: Length | None = None
    think: Draw = NO_WAIT
    plain: float = 0.0
    by_answers: bool = False

    @property
    def most_turns(self) -> int:
        if self.turns is None:
            return 1
        bound = max(self.turns.a, self.turns.b)
        return int(bound) if self.turns.kind in ("fixed", "uniform") else MOST_TURNS

    def turns_of(self, rng: Random) -> int:
        return 1 if self.turns is None else min(self.turns.draw(rng), self.most_turns)


_PREFIX = re.compile(r"([0-9]{1,3}(?:\.[0-9]{1,6})?)%:(.+):([0-9]{1,7})")


def parse_prefix(text: str, flag: str) -> Prefix:
    """`80%:512:4`. Raises UsageError."""
    found = _PREFIX.fullmatch(text)
    if found is None or not 0 < float(found[1]) <= 100 or not 1 <= int(found[3]) <= MOST_GROUPS:
        raise UsageError(f"{flag} {text}: expected SHARE%:TOKENS:GROUPS, e.g. 80%:512:4")
    return Prefix(float(found[1]), parse_length(found[2], flag), int(found[3]))


def parse_turns(text: str, flag: str) -> Length:
    """Raises UsageError."""
    length = parse_length(text, flag)
    if length.kind in ("fixed", "uniform") and max(length.a, length.b) > MOST_TURNS:
        raise UsageError(f"{flag} {text}: expected at most {MOST_TURNS} turns")
    return length


def parse_think(text: str, flag: str) -> Draw:
    """Raises UsageError."""
    draw = parse_draw(text)
    if draw is None:
        raise UsageError(f"{flag} {text}: expected seconds, as {DRAWS}")
    return draw


def parse_share(text: str, flag: str) -> float:
    """`25%`. Raises UsageError."""
    found = re.fullmatch(r"([0-9]{1,3}(?:\.[0-9]{1,6})?)%", text)
    if found is None or float(found[1]) > 100:
        raise UsageError(f"{flag} {text}: expected a share such as 25%")
    return float(found[1])


@dataclass(frozen=True, slots=True)
class Retry:
    """`most`: times that a client who left before the first byte asks again, after `wait`."""

    most: int
    wait: Draw


MOST_RETRIES = 20


def parse_retry(text: str) -> Retry:
    """`2`, `2:0.5` or `2:exp:1`. Raises UsageError."""
    times, colon, wait = text.partition(":")
    draw = parse_draw(wait) if colon else Draw("fixed", 1.0)
    good = times.isascii() and times.isdigit() and len(times) <= 2
    if draw is None or not good or not 1 <= int(times) <= MOST_RETRIES:
        expected = f"expected TIMES:SECONDS, at most {MOST_RETRIES} times; seconds are {DRAWS}"
        raise UsageError(f"--retry {text}: {expected}")
    return Retry(int(times), draw)


def described(part: Part) -> Mapping[str, str | float | None]:
    """A part of a mix in a report's words."""
    prefix = part.prefix
    shared = None if prefix is None else f"{prefix.share:g}%:{prefix.tokens}:{prefix.groups}"
    # Left out where nobody waits, as in reports from before it was told.
    think = {} if part.think == NO_WAIT else {"think": str(part.think)}
    return {
        "name": part.name,
        "weight": part.weight,
        "input_tokens": None if part.prompts else str(part.input_length),
        "output_tokens": "of the answers in the file"
        if part.by_answers
        else str(part.output_length),
        "prompts": len(part.prompts) or None,
        "prefix": shared,
        "turns": None if part.turns is None else str(part.turns),
        "plain": f"{part.plain:g}%" if part.plain else None,
        **think,
    }
