"""`keep-alive`: two streamed answers, one after the other on the same connection."""

from __future__ import annotations

from collections.abc import Mapping

from conformance.capture import Json
from conformance.dossier import Dossier
from conformance.scenarios import asks as ask
from conformance.scenarios.driver import LINGER, Driver
from conformance.scenarios.scenario import Scenario
from conformance.target import Endpoint


def requests(endpoint: Endpoint, given: Mapping[str, Json]) -> tuple[ask.Ask, ...]:
    # Two answers that cannot be mistaken for each other.
    return (
        ask.Ask("stream", ask.template(endpoint, ask.COUNT[endpoint.api], ask.SHORT)),
        ask.Ask("stream", ask.template(endpoint, ask.STORY[endpoint.api], ask.SHORT)),
    )


async def drive(driver: Driver, asks: tuple[ask.Ask, ...]) -> Dossier:
    """The second is sent only if the first left the connection open for it."""
    first, second = asks
    async with driver.connection() as connection:
        await driver.send(first, connection=connection, linger=LINGER)
        usable = connection.usable
        if usable:
            await driver.send(second, connection=connection, linger=LINGER)
    return driver.dossier(reused=usable)


KEEP_ALIVE = Scenario("keep-alive", "Two answers on one connection", requests, drive)
