"""`pair`: the same request streamed and plain, each twice, nothing else going on."""

from __future__ import annotations

from collections.abc import Mapping

from conformance.capture import Json
from conformance.dossier import CHAT, Dossier
from conformance.scenarios import asks as ask
from conformance.scenarios.driver import Driver
from conformance.scenarios.scenario import Choice, Parameter, Scenario
from conformance.target import Endpoint

VARIANTS: Parameter = {
    "short": Choice(),
    "natural": Choice(),
    "characters": Choice(),
    "logprobs": Choice(needs=("logprobs",)),
    "tools": Choice(needs=("tools",), apis=(CHAT,)),
}
# A drift over time shows as a form that disagrees with itself, not as one form against the other.
ORDER = ("plain", "stream", "stream", "plain")


def requests(endpoint: Endpoint, given: Mapping[str, Json]) -> tuple[ask.Ask, ...]:
    variant = str(given["variant"])
    same = ask.members_for(variant, endpoint)
    usage = ask.usage_members() if endpoint.has("usage") else {}
    bodies = {
        "plain": ask.request_for(variant, endpoint, same, stream=False),
        "stream": ask.request_for(variant, endpoint, {**same, **usage}),
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
    parameters={"variant": VARIANTS, "repeats": {2: Choice(), 1: Choice()}},
    spread="variant",
    alone=True,
)
