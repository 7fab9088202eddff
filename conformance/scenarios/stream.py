"""`stream`: one streamed answer, in the variant that the case names."""

from __future__ import annotations

from collections.abc import Mapping

from conformance.capture import Json
from conformance.dossier import CHAT, COMPLETIONS, Dossier
from conformance.reading import read
from conformance.saying import refusal
from conformance.scenarios import asks as ask
from conformance.scenarios.driver import LINGER, Driver
from conformance.scenarios.scenario import Choice, Parameter, Scenario
from conformance.scenarios.settling import refused
from conformance.target import Endpoint

TOP: Parameter = {
    k: Choice() if k is None else Choice(needs=("logprobs",)) for k in (None, *range(6))
}
TOOLS: Parameter = {False: Choice(), True: Choice(needs=("tools",), apis=(CHAT,))}
PARAMETERS: Mapping[str, Parameter] = {
    "answer": {name: Choice() for name in ("short", "long", "natural", "characters")},
    "usage": {False: Choice(), True: Choice(needs=("usage",))},
    "n": {n: Choice() if n == 1 else Choice(needs=("n",)) for n in (1, 2, 3, 4)},
    "logprobs": TOP,
    "tools": TOOLS,
    "echo": {False: Choice(), True: Choice(needs=("echo",), apis=(COMPLETIONS,))},
}
SPREAD: tuple[Mapping[str, Json], ...] = (
    {"answer": "short"},
    {"answer": "natural", "usage": True},
    {"usage": True},
    {"n": 2},
    {"n": 3, "usage": True},
    {"logprobs": 2},
    {"tools": True},
    {"echo": True},
)


def requests(endpoint: Endpoint, given: Mapping[str, Json]) -> tuple[ask.Ask, ...]:
    members = ask.members_for(given, endpoint)
    if given["usage"]:
        members |= ask.usage_members()
    return (ask.Ask("stream", ask.request_for(given, endpoint, members)),)


async def drive(driver: Driver, asks: tuple[ask.Ask, ...]) -> Dossier:
    for each in asks:
        reading = read(await driver.send(each, linger=LINGER))
        needs = STREAM.needs(driver.parameters)
        if refused(reading) and len(needs) == 1:
            driver.lacks(needs[0], refusal(reading))
    return driver.dossier()


STREAM = Scenario(
    "stream",
    "One streamed answer",
    requests,
    drive,
    parameters=PARAMETERS,
    spread=SPREAD,
)
