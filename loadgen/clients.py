"""Clients that hang up and clients that read slowly: which requests, when and how. Pure and seeded.

Whether request i has such a client, and what that client draws, is a function of the seed and i.
Everybody else is an ordinary client, whose figures are kept apart.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from random import Random

from conformance.errors import UsageError
from conformance.script import Leave, Slow

MOST = 1e6  # of any number that a client draws
BUFFER = 4096  # bytes that a slow reader's receive queue may hold: the server is to feel it
DRAWS = "N, A..B, exp:M, normal:M,S or lognormal:M,S"
ENDS = ("fin", "rst")


@dataclass(frozen=True, slots=True)
class Client:
    """`name` None: an ordinary one. `own`: on a connection of its own, closed after the answer.

    `hangs_up`: after the answer, for good: no further turn is asked.
    """

    name: str | None = None
    leave: Leave | None = None
    patience: float | None = None
    slow: Slow | None = None
    own: bool = False
    hangs_up: bool = False


ORDINARY = Client()


@dataclass(frozen=True, slots=True)
class Draw:
    """A number of a distribution; `a` and `b` as in DRAWS, never below `least`."""

    kind: str
    a: float
    b: float = 0.0

    def __str__(self) -> str:
        return f"{self.kind}:{self.a:g},{self.b:g}"

    def draw(self, rng: Random, least: float = 0.0) -> float:
        return min(MOST, max(least, self._drawn(rng)))

    def _drawn(self, rng: Random) -> float:
        if self.kind == "fixed":
            return self.a
        if self.kind == "uniform":
            return rng.uniform(self.a, self.b)
        if self.kind == "exp":
            return rng.expovariate(1 / self.a)
        if self.kind == "normal":
            return rng.gauss(self.a, self.b)
        variance = math.log1p((self.b / self.a) ** 2)
        return rng.lognormvariate(math.log(self.a) - variance / 2, math.sqrt(variance))


_NUMBER = r"([0-9]{1,7}(?:\.[0-9]{1,6})?)"
_FORMS = (
    ("fixed", re.compile(_NUMBER)),
    ("uniform", re.compile(rf"{_NUMBER}\.\.{_NUMBER}")),
    ("exp", re.compile(rf"exp:{_NUMBER}")),
    ("normal", re.compile(rf"normal:{_NUMBER},{_NUMBER}")),
    ("lognormal", re.compile(rf"lognormal:{_NUMBER},{_NUMBER}")),
)


def parse_draw(text: str) -> Draw | None:
    """None where it is no distribution."""
    for kind, form in _FORMS:
        if found := form.fullmatch(text):
            a, *rest = (float(number) for number in found.groups())
            b = rest[0] if rest else 0.0
            good = a > 0 or kind == "fixed" or (kind == "uniform" and b > 0)
            return Draw(kind, a, b) if good and (kind != "uniform" or a <= b) else None
    return None


Make = Callable[[Random, tuple[Draw, ...], str], Client]


@dataclass(frozen=True, slots=True)
class Way:
    """`draws`: how many distributions it takes. `ends`: whether FIN or RST can be chosen."""

    draws: int
    make: Make
    said: str
    ends: bool = True


def _events(rng: Random, draws: tuple[Draw, ...], how: str) -> Client:
    return Client(leave=Leave(how, events=max(1, round(draws[0].draw(rng)))))


def _time(rng: Random, draws: tuple[Draw, ...], how: str) -> Client:
    return Client(leave=Leave(how, seconds=draws[0].draw(rng)))


def _headers(rng: Random, draws: tuple[Draw, ...], how: str) -> Client:
    return Client(leave=Leave(how, events=0))


def _patience(rng: Random, draws: tuple[Draw, ...], how: str) -> Client:
    return Client(patience=draws[0].draw(rng, 1e-3))


def _between(rng: Random, draws: tuple[Draw, ...], how: str) -> Client:
    return Client(own=True, hangs_up=True)


def _rate(rng: Random, draws: tuple[Draw, ...], how: str) -> Client:
    return Client(slow=Slow(rate=draws[0].draw(rng, 1.0), buffer=BUFFER), own=True)


def _stall(rng: Random, draws: tuple[Draw, ...], how: str) -> Client:
    after = max(0, round(draws[0].draw(rng)))
    return Client(slow=Slow(pause=draws[1].draw(rng), events=after, buffer=BUFFER), own=True)


def _burst(rng: Random, draws: tuple[Draw, ...], how: str) -> Client:
    return Client(slow=Slow(every=draws[0].draw(rng, 1e-3), buffer=BUFFER), own=True)


LEAVING = {
    "patience": Way(1, _patience, "patience:SECONDS for the first token", ends=False),
    "events": Way(1, _events, "events:N after that many"),
    "time": Way(1, _time, "time:SECONDS after the request"),
    "headers": Way(0, _headers, "headers, before they come"),
    "between": Way(
        0, _between, "between, after the answer (of a turn: then the session is over)", ends=False
    ),
}
READING = {
    "rate": Way(1, _rate, "rate:BYTES a second", ends=False),
    "stall": Way(2, _stall, "stall:EVENTS:SECONDS, once after so many events", ends=False),
    "burst": Way(1, _burst, "burst:SECONDS from one read to the next", ends=False),
}


@dataclass(frozen=True, slots=True)
class Group:
    """A share of the requests, in percent, whose clients leave or read in one way."""

    share: float
    name: str
    way: Way
    draws: tuple[Draw, ...]
    how: str


@dataclass(frozen=True, slots=True)
class Clients:
    """Who is not ordinary. `groups`: their shares are 100 at most together."""

    groups: tuple[Group, ...] = ()

    def of(self, seed: int | str, index: int) -> Client:
        """The client of request number `index`."""
        if not self.groups:
            return ORDINARY
        rng = Random(f"{seed}:client:{index}")
        at = rng.random() * 100
        for group in self.groups:
            if at < group.share:
                made = group.way.make(rng, group.draws, group.how)
                return replace(made, name=group.name)
            at -= group.share
        return ORDINARY


NOBODY = Clients()


def parse_clients(leave: Sequence[str], read: Sequence[str]) -> Clients:
    """`10%:events:1..20:rst`, `5%:rate:2000`. Raises UsageError."""
    groups = [_group(text, "--leave", LEAVING) for text in leave]
    groups += [_group(text, "--read", READING) for text in read]
    # As many decimals as a share may have: those of floats would make 100 more than that.
    if round(sum(group.share for group in groups), 6) > 100:
        raise UsageError("--leave and --read: the shares are more than 100 % together")
    return Clients(tuple(groups))


_SHARE = r"([0-9]{1,3}(?:\.[0-9]{1,6})?)%"
_GROUP = re.compile(rf"{_SHARE}:([a-z]+)(?::(?!(?:fin|rst)$)(.+?))?(?::(fin|rst))?")


def _group(text: str, flag: str, ways: dict[str, Way]) -> Group:
    found = _GROUP.fullmatch(text)
    way = ways.get(found[2]) if found else None
    if found is None or way is None or not 0 < float(found[1]) <= 100:
        known = ", ".join(each.said for each in ways.values())
        raise UsageError(f"{flag} {text}: expected SHARE%:WAY, one of {known}")
    draws = _draws(found[3] or "", way.draws)
    if draws is None:
        raise UsageError(f"{flag} {text}: expected {way.said}; a number is {DRAWS}")
    if found[4] and not way.ends:
        raise UsageError(f"{flag} {text}: fin or rst cannot be chosen for {found[2]}")
    name = " ".join(filter(None, (flag.strip("-"), found[2], found[4])))
    return Group(float(found[1]), name, way, draws, found[4] or "fin")


def _draws(text: str, wanted: int) -> tuple[Draw, ...] | None:
    """So many distributions with colons between them; some have a colon of their own."""
    parts = text.split(":") if text else []
    for number, part in enumerate(parts):
        if part in ("exp", "normal", "lognormal"):
            parts[number : number + 2] = [":".join(parts[number : number + 2])]
    drawn = [parse_draw(part) for part in parts]
    if len(drawn) != wanted or None in drawn:
        return None
    return tuple(each for each in drawn if each is not None)
