"""`pair`: the same request streamed and plain, each twice, nothing else going on."""

from __future__ import annotations

from collections.abc import Mapping

from conformance.capture import Json
from conformance.dossier import Dossier
from conformance.scenarios import asks as ask
from conformance.scenarios.driver import Driver
from conformance.scenarios.scenario import Choice, Parameter, Scenario
from conformance.scenarios.stream import TOOLS, TOP
from conformance.target import Endpoint

PARAMETERS: Mapping[str, Parameter] = {
    "answer": {name: Choice() for name in ("short", "natural", "characters", "code")},
    "logprobs": TOP,
    "tools": TOOLS,
    "repeats": {2: Choice(), 1: Choice()},
}
SPREAD: tuple[Mapping[str, Json], ...] = (
    {"answer": "short"},
    {"answer": "characters"},
    {"answer": "code", "repeats": 1},
    {"tools": True, "repeats": 1},
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
    return tuple(ask.Ask(role, bodies[role], stream=role == "stream") for role in order)


async def drive(driver: Driver, asks: tuple[ask.Ask, ...]) -> Dossier:
    for each in asks:
        await driver.send(each)
    return driver.dossier()


PAIR = Scenario(
    "pair",
    "Streamed and plain, each twice",
    requests,
    drive,
    parameters=PARAMETERS,
    spread=SPREAD,
    alone=True,
)
