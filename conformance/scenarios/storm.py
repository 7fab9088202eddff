"""`storm`: many clients hang up at once, between two answers of the same kind."""

from __future__ import annotations

from collections.abc import Mapping

import trio

from conformance import work
from conformance.capture import Json
from conformance.dossier import Dossier
from conformance.scenarios import asks as ask
from conformance.scenarios.asks import Ask
from conformance.scenarios.driver import Driver
from conformance.scenarios.meter import INTERVAL
from conformance.scenarios.scenario import Choice, Parameter, Phase, Scenario
from conformance.scenarios.yardstick import SETTLE, several
from conformance.script import Leave
from conformance.target import Endpoint

PARAMETERS: Mapping[str, Parameter] = {"hang_ups": {8: Choice(), 50: Choice()}}
LIMIT = 256  # tokens of the answers that are left
CHOICES = 4  # of each, where they are to be had: many more than most servers have places for
MOMENTS = 4  # they leave after 0, 1, 2 or 3 events; 0: as soon as the request is out


def requests(endpoint: Endpoint, given: Mapping[str, Json]) -> tuple[Ask, ...]:
    count = given["hang_ups"]
    assert isinstance(count, int)
    members = several(endpoint, CHOICES)
    left = Ask("hung-up", ask.template(endpoint, ask.COUNT[endpoint.api], LIMIT, members))
    return *[left] * count, ask.counting(endpoint, "after")


def _before(endpoint: Endpoint, given: Mapping[str, Json]) -> tuple[Ask, ...]:
    return (ask.counting(endpoint, "before"),)


async def drive(driver: Driver, asks: tuple[Ask, ...]) -> Dossier:
    """The storm, then as long as work may take to end, then the control again."""
    *storm, after = asks
    (before,) = _before(driver.endpoint, driver.parameters)
    if driver.detached:
        detail = "the target file says that a generation goes on without its client"
        return driver.dossier(abstain={"reason": "resume", "detail": detail})
    pause = SETTLE if driver.meter is not None else 0.0
    await driver.shared(before)
    async with driver.watched():
        await trio.sleep(pause)
        async with trio.open_nursery() as nursery:
            for number, each in enumerate(storm):
                nursery.start_soon(_hang_up, driver, each, number)
        await _settle(driver)
        await driver.send(after)
        await trio.sleep(3 * pause)
    return driver.dossier()


async def _settle(driver: Driver) -> None:
    """As long as work may take to end, or until the gauge says that it has."""
    until = driver.now() + work.PATIENCE
    while driver.now() < until:
        await trio.sleep(2 * INTERVAL)
        levels = [each.values.get(work.GAUGE) for each in driver.samples]
        if levels and levels[0] is not None and levels[-1] == levels[0]:
            return


async def _hang_up(driver: Driver, asked: Ask, number: int) -> None:
    how = ("fin", "rst")[number % 2]
    await driver.send(asked, leave=Leave(how, events=number // 2 % MOMENTS))


STORM = Scenario(
    "storm",
    "Many hang-ups at once, between two answers of the same kind",
    requests,
    drive,
    parameters=PARAMETERS,
    shares=_before,
    phase=Phase.ABORTS,
    manners="heavy",
    alone=True,
    watches=True,
)
