"""`limit`: a long answer cut at several limits."""

from __future__ import annotations

from collections.abc import Mapping

from conformance.capture import Json
from conformance.dossier import CHAT, Dossier
from conformance.scenarios import asks as ask
from conformance.scenarios.driver import Driver
from conformance.scenarios.scenario import Choice, Parameter, Scenario
from conformance.target import Endpoint

LIMITS = (1, 2, 7, 32)
FEWER = (1, 7)  # under a second name: only that it is heeded is new
NAMES: Parameter = {
    "": Choice(),  # what the endpoint itself calls it
    "max_tokens": Choice(),
    "max_completion_tokens": Choice(needs=("max_completion_tokens",), apis=(CHAT,)),
}


def requests(endpoint: Endpoint, given: Mapping[str, Json]) -> tuple[ask.Ask, ...]:
    name = given["name"] or endpoint.limit
    limits = FEWER if given["name"] else LIMITS
    return tuple(ask.Ask("stream", _body(endpoint, str(name), k)) for k in limits)


def _body(endpoint: Endpoint, name: str, limit: int) -> dict[str, Json]:
    usage = ask.usage_members() if endpoint.has("usage") else {}
    body = ask.request_for({"answer": "long"}, endpoint, usage)
    del body[endpoint.limit]
    return {**body, name: limit}


async def drive(driver: Driver, asks: tuple[ask.Ask, ...]) -> Dossier:
    for each in asks:
        await driver.send(each)
    return driver.dossier()


LIMIT = Scenario(
    "limit", "A long answer cut at several limits", requests, drive, parameters={"name": NAMES}
)
