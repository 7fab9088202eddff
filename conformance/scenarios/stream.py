"""`stream`: one streamed answer, in the variant that the case names."""

from __future__ import annotations

from collections.abc import Mapping

from conformance.capture import Json
from conformance.dossier import CHAT, COMPLETIONS, Dossier
from conformance.scenarios import asks as ask
from conformance.scenarios.driver import LINGER, Driver
from conformance.scenarios.scenario import Choice, Parameter, Scenario
from conformance.target import Endpoint

VARIANTS: Parameter = {
    "short": Choice(),
    "long": Choice(),
    "natural": Choice(),
    "characters": Choice(),
    "usage": Choice(needs=("usage",)),
    "logprobs": Choice(needs=("logprobs",)),
    "n": Choice(needs=("n",)),
    "n-2": Choice(needs=("n",)),
    "tools": Choice(needs=("tools",), apis=(CHAT,)),
    "echo": Choice(needs=("echo",), apis=(COMPLETIONS,)),
}
WITH_USAGE = ("usage", "logprobs", "n", "tools")


def requests(endpoint: Endpoint, given: Mapping[str, Json]) -> tuple[ask.Ask, ...]:
    variant = str(given["variant"])
    members = ask.members_for(variant, endpoint)
    if variant in WITH_USAGE and endpoint.has("usage"):
        members |= ask.usage_members()
    return (ask.Ask("stream", ask.request_for(variant, endpoint, members)),)


async def drive(driver: Driver, asks: tuple[ask.Ask, ...]) -> Dossier:
    for each in asks:
        await driver.send(each, linger=LINGER)
    return driver.dossier()


STREAM = Scenario(
    "stream",
    "One streamed answer",
    requests,
    drive,
    parameters={"variant": VARIANTS},
    spread="variant",
)
