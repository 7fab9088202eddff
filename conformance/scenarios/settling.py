"""Which optional members of a request an endpoint takes, found out at the cost of few generations.

All are asked for at once. A refusal that names a member takes that one away; after one that names
none, whatever can be left out is, the fewest first. So each member that is missing in the end was
refused where the same request without it was accepted, and one answer alone was generated.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

from conformance import strictjson
from conformance.capture import Capture, Json
from conformance.reading import Reading, read
from conformance.saying import refusal
from conformance.scenarios.asks import Ask

# A refusal that says nothing about the members: authentication, no such route, timeouts, limits.
NOT_ABOUT_MEMBERS = (401, 403, 404, 405, 408, 429)
Send = Callable[[Ask], Awaitable[Capture]]


def refused(reading: Reading) -> bool:
    """An honest refusal of what the request says."""
    status = reading.status
    return status is not None and 400 <= status < 500 and status not in NOT_ABOUT_MEMBERS


@dataclass(frozen=True, slots=True)
class Option:
    """Members that may be refused. `instead`: a member of ours that they take the place of."""

    name: str
    members: Mapping[str, Json]
    instead: str | None = None

    def on(self, body: Mapping[str, Json]) -> dict[str, Json]:
        """The body with these members."""
        kept = {name: value for name, value in body.items() if name != self.instead}
        return {**kept, **self.members}


@dataclass(frozen=True, slots=True)
class Settled:
    """The answer with all that can be had; `refused`: name of an option → what was said of it."""

    capture: Capture
    refused: Mapping[str, str]


def most_refusals(options: int) -> int:
    """How many requests of `settle` can be refused before one is accepted."""
    return int(2**options) - 1


async def settle(send: Send, ask: Ask, options: Sequence[Option]) -> Settled:
    """Send the ask with as many of the options as are accepted; one request alone is."""
    said: dict[frozenset[str], str] = {}
    for kept in _largest_first(options):
        names = frozenset(option.name for option in kept)
        capture = await send(_with(ask, kept))
        reading = read(capture)
        if not kept or not refused(reading):
            return Settled(capture, _blamed(names, options, said))
        said[names] = refusal(reading)
        named = _named(reading, kept) if len(kept) == len(options) else None
        if named is not None:
            rest = await settle(send, ask, [each for each in options if each is not named])
            return replace(rest, refused={**rest.refused, named.name: refusal(reading)})
    raise AssertionError("the empty set is the last to be sent")


def _largest_first(options: Sequence[Option]) -> Iterator[tuple[Option, ...]]:
    for size in range(len(options), -1, -1):
        yield from combinations(options, size)


def _blamed(
    kept: frozenset[str], options: Sequence[Option], said: Mapping[frozenset[str], str]
) -> dict[str, str]:
    """What is left out, each with the words on it beside what was kept."""
    left = (option.name for option in options if option.name not in kept)
    return {name: said.get(kept | {name}, "refused") for name in left}


def _with(ask: Ask, options: tuple[Option, ...]) -> Ask:
    body = ask.body
    assert not isinstance(body, bytes)
    for option in options:
        body = option.on(body)
    return replace(ask, body=body)


def _named(reading: Reading, options: tuple[Option, ...]) -> Option | None:
    """The one option whose member the error names, in `param` or else in its message."""
    text = reading.body.decode("utf-8", "replace")
    value = (reading.document or strictjson.parse(text)).value
    error = value.get("error", value) if isinstance(value, dict) else None
    said = error if isinstance(error, dict) else {}
    for words in (said.get("param"), said.get("message")):
        if isinstance(words, str):
            named = [each for each in options if any(name in words for name in each.members)]
            if len(named) == 1:
                return named[0]
    return None
