"""`storm`: many clients hang up at once, between two answers of the same kind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

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
LIMIT = 512  # tokens of the answers that are left
CHOICES = 4  # of each, where they are to be had: many more than most servers have places for
CYCLE = 8
STAY = 0.5  # seconds for which the first half holds its places


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
        await _all_leave(driver, storm)
        await _settle(driver)
        await driver.send(after)
        await trio.sleep(3 * pause)
        if driver.samples and not _is_level(driver):
            await trio.sleep(work.SLACK)
    return driver.dossier()


async def _settle(driver: Driver) -> None:
    """As long as work may take to end, or until the gauge says that it has."""
    until = driver.now() + work.PATIENCE
    while driver.now() < until:
        await trio.sleep(2 * INTERVAL)
        if _is_level(driver):
            return


def _is_level(driver: Driver) -> bool:
    """Is the gauge back where it was?"""
    levels = [each.values.get(work.GAUGE) for each in driver.samples]
    return bool(levels) and levels[0] is not None and levels[-1] == levels[0]


async def _all_leave(driver: Driver, storm: Sequence[Ask]) -> None:
    """Who stays comes first, so that the others find the places taken, if there are so few."""
    numbered = [(number % CYCLE, each) for number, each in enumerate(storm)]
    async with trio.open_nursery() as nursery:
        seated = []
        for number, each in numbered:
            if number < CYCLE // 2:
                seated.append(trio.Event())
                nursery.start_soon(_hang_up, driver, each, number, seated[-1])
        with trio.move_on_after(STAY / 2):
            for begun in seated:
                await begun.wait()
        for number, each in numbered:
            if number >= CYCLE // 2:
                nursery.start_soon(_hang_up, driver, each, number, trio.Event())


async def _hang_up(driver: Driver, asked: Ask, number: int, begun: trio.Event) -> None:
    await driver.send(asked, leave=_leave(number), begun=begun)


def _leave(number: int) -> Leave:
    """Half stay for a while; behind them, served or waiting, two leave soon and two at once."""
    how = ("fin", "rst")[number % 2]
    if number < CYCLE // 2:
        return Leave(how, seconds=STAY)
    if number < CYCLE - 2:
        return Leave(how, events=1 + number % 2)
    return Leave(how, events=0)


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
