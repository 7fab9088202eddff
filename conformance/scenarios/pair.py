"""`pair`: the same request streamed and plain, each twice, nothing else going on."""

from __future__ import annotations

from collections.abc import Mapping

from conformance.capture import Json
from conformance.dossier import COMPLETIONS, Dossier
from conformance.reading import read
from conformance.saying import refusal
from conformance.scenarios import asks as ask
from conformance.scenarios.driver import Driver
from conformance.scenarios.scenario import Choice, Parameter, Scenario
from conformance.scenarios.settling import refused
from conformance.scenarios.stream import TOOLS, TOP
from conformance.target import Endpoint

PARAMETERS: Mapping[str, Parameter] = {
    "answer": {name: Choice() for name in ("short", "natural", "characters", "code")},
    "logprobs": TOP,
    "tools": TOOLS,
    "repeats": {2: Choice(), 1: Choice()},
}
SPREAD: tuple[Mapping[str, Json], ...] = (
    {"answer": "characters"},
    {"answer": "code", "repeats": 1},
)
# A drift over time shows as a form that disagrees with itself, not as one form against the other.
ORDER = ("plain", "stream", "stream", "plain")


def requests(endpoint: Endpoint, given: Mapping[str, Json]) -> tuple[ask.Ask, ...]:
    same = ask.members_for(given, endpoint)
    usage = ask.usage_members() if endpoint.has("usage") else {}
    bodies = {
        "plain": ask.request_for(given, endpoint, same, stream=False),
        "stream": ask.request_for(given, endpoint, {**same, **usage}),
    }
    order = ORDER if given["repeats"] == 2 else ORDER[:2]
    asks = tuple(ask.Ask(role, bodies[role], stream=role == "stream") for role in order)
    first = ask.Ask("probe", bodies["plain"], stream=False, attempt=True)
    return (*asks, *[first] * len(_rungs(endpoint, given)))


def _rungs(endpoint: Endpoint, given: Mapping[str, Json]) -> tuple[str, ...]:
    """By what an exact text may be had, the best first; the parameters' own needs are none."""
    if given["answer"] not in ("characters", "code") or given["tools"]:
        return ()
    if endpoint.api == COMPLETIONS:
        names: tuple[str, ...] = ("echo",)
    else:
        names = ("response_format", "tools") if given["answer"] == "characters" else ()
    return tuple(name for name in names if endpoint.has(name))


async def drive(driver: Driver, asks: tuple[ask.Ask, ...]) -> Dossier:
    """The first settles how the text is asked for; where that is refused it was the only one."""
    first = await _first(driver)
    if first is None:
        return driver.dossier()
    for each in first:
        driver.share(each, await driver.send(each))
    return driver.dossier()


async def _first(driver: Driver) -> tuple[ask.Ask, ...] | None:
    """Send the first until it is accepted; what is to follow it, None: it is refused."""
    while True:
        asks = [each for each in requests(driver.endpoint, driver.parameters) if not each.attempt]
        capture = await driver.send(asks[0], file=False)
        reading = read(capture)
        if not refused(reading):
            driver.file(asks[0].role, capture)
            driver.share(asks[0], capture)
            return tuple(asks[1:])
        driver.file("probe", capture)
        driver.tokens -= asks[0].tokens
        rungs = _rungs(driver.endpoint, driver.parameters) or PAIR.needs(driver.parameters)
        if not rungs:
            return None
        driver.lacks(rungs[0], refusal(reading))
        if rungs[0] in PAIR.needs(driver.parameters):
            return None


PAIR = Scenario(
    "pair",
    "Streamed and plain, each twice",
    requests,
    drive,
    parameters=PARAMETERS,
    spread=SPREAD,
    offers=True,
    alone=True,
)
