"""`crowd`: sixteen streams at once, each with its own word, limit or stop string.

A control of the counting text comes first; the stop strings are chosen from it.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import trio

from conformance import canaries
from conformance.capture import Json
from conformance.dossier import CHAT, Dossier
from conformance.reading import read
from conformance.scenarios import asks as ask
from conformance.scenarios.driver import Driver
from conformance.scenarios.scenario import Choice, Parameter, Phase, Scenario
from conformance.script import Leave
from conformance.target import Endpoint

# Role → how many of the crowd; together sixteen.
MIXES: Mapping[str, Mapping[str, int]] = {
    "mixed": {"canary": 6, "left": 4, "limit": 4, "stop": 2},
    "canaries": {"canary": 16},
    "aborts": {"canary": 8, "left": 8},
}
PARAMETERS: Mapping[str, Parameter] = {
    "mix": {name: Choice() for name in MIXES},
    "rounds": {1: Choice(), 2: Choice()},  # the second finds every prompt in the cache
}
LIMITS = (1, 2, 7, 32)
NONE: Mapping[int, Json] = {1: [], 2: None}  # which limit stands beside a `stop` that names none
LEAVES = ("fin", "rst")
LEFT_AFTER = 4  # events: the role, and enough text to be known again
STOP_LENGTH = 5  # characters
SHORT = 40  # tokens; the word twice at least, however it is cut


def canary(endpoint: Endpoint, word: str, limit: int = SHORT) -> dict[str, Json]:
    """A request to repeat one word."""
    if endpoint.api == CHAT:
        return ask.template(endpoint, f"Repeat this word 8 times: {word}", limit)
    return ask.template(endpoint, f"{word}\n" * 6, limit)


def requests(endpoint: Endpoint, given: Mapping[str, Json]) -> tuple[ask.Ask, ...]:
    mix = MIXES[str(given["mix"])]
    counting = ask.counting(endpoint, "control").body
    assert not isinstance(counting, bytes)
    listed = canaries.words(sum(mix.values()), endpoint.seed)
    crowd: list[ask.Ask] = []
    for role, number in mix.items():
        for place in range(number):
            word = listed[len(crowd)]
            crowd.append(_one(endpoint, role, place, word, counting))
    return tuple(crowd * (2 if given["rounds"] == 2 else 1))


def controls(endpoint: Endpoint, given: Mapping[str, Json]) -> tuple[ask.Ask, ...]:
    """For those mixes that count."""
    counted = {"limit", "stop"} & MIXES[str(given["mix"])].keys()
    return (ask.counting(endpoint, "control"),) if counted else ()


def _one(
    endpoint: Endpoint, role: str, place: int, word: str, counting: Mapping[str, Json]
) -> ask.Ask:
    """The `place`th of a role. Without stop strings on offer that one only counts."""
    if role == "limit":
        none = {"stop": NONE[place]} if endpoint.has("stop") and place in NONE else {}
        return ask.Ask(role, {**counting, endpoint.limit: LIMITS[place], **none})
    if role == "stop":
        stop: dict[str, Json] = {"stop": ["x" * STOP_LENGTH]} if endpoint.has("stop") else {}
        return ask.Ask(role, {**counting, **stop})
    if role == "left":
        return ask.Ask(role, canary(endpoint, word, ask.LONG))
    return ask.Ask("canary", canary(endpoint, word))


async def drive(driver: Driver, asks: tuple[ask.Ask, ...]) -> Dossier:
    """The control alone, then each round at once; no stops where the text has no place for two."""
    text = ""
    for control in controls(driver.endpoint, driver.parameters):
        text = read(await driver.shared(control), api=driver.endpoint.api).text
    stops = two_stops(text)
    crowd = _with_stops(asks, stops)
    size = sum(MIXES["mixed"].values())
    for start in range(0, len(crowd), size):
        await _at_once(driver, crowd[start : start + size])
    listed: list[Json] = list(canaries.words(size, driver.endpoint.seed))
    chosen: list[Json] = list(stops)
    return driver.dossier(words=listed, stops=chosen)


async def _at_once(driver: Driver, crowd: list[ask.Ask]) -> None:
    leaving = 0
    async with trio.open_nursery() as nursery:
        for each in crowd:
            leave = None
            if each.role == "left":
                leave = Leave(LEAVES[leaving % len(LEAVES)], events=LEFT_AFTER)
                leaving += 1
            nursery.start_soon(partial(driver.send, each, leave=leave))


def _with_stops(asks: tuple[ask.Ask, ...], stops: tuple[str, ...]) -> list[ask.Ask]:
    """The stop strings put in place; without any, those requests are plain counting ones."""
    out: list[ask.Ask] = []
    turn = 0
    for each in asks:
        if each.role == "stop" and isinstance(each.body, Mapping) and "stop" in each.body:
            body = {name: value for name, value in each.body.items() if name != "stop"}
            if stops:
                body["stop"] = [stops[turn % len(stops)]]
                turn += 1
            each = ask.Ask(each.role, body)
        out.append(each)
    return out


def two_stops(text: str) -> tuple[str, ...]:
    """Two strings that first stand at a third and at two thirds of the text; else none.

    Small models repeat themselves: then only the beginning has places.
    """
    third, end = len(text) // 3, len(text) - 2 * STOP_LENGTH
    first = _stop(text, (*range(third, len(text) // 2), *range(STOP_LENGTH, third)))
    if first is None:
        return ()
    behind = text.find(first) + 2 * STOP_LENGTH
    second = _stop(text, (*range(max(2 * third, behind), end), *range(behind, 2 * third)))
    return () if second is None else (first, second)


def _stop(text: str, places: tuple[int, ...]) -> str | None:
    stops = ((at, text[at : at + STOP_LENGTH]) for at in places if at >= STOP_LENGTH)
    return next((stop for at, stop in stops if text.find(stop) == at), None)


CROWD = Scenario(
    "crowd",
    "Sixteen streams at once, each with its own word, limit or stop string",
    requests,
    drive,
    parameters=PARAMETERS,
    shares=controls,
    phase=Phase.CROWD,
    manners="heavy",
    alone=True,
)
