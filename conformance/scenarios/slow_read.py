"""`slow-read`: of two equal answers at once, one is not read for a while."""

from __future__ import annotations

from collections.abc import Mapping

import trio

from conformance.capture import Json
from conformance.dossier import Dossier
from conformance.scenarios import asks as ask
from conformance.scenarios.asks import Ask
from conformance.scenarios.driver import Driver
from conformance.scenarios.scenario import Phase, Scenario
from conformance.scenarios.yardstick import FAR, Unmeasured, limited, pace_of, pacing
from conformance.script import Slow
from conformance.target import Endpoint

MOST = 1024  # tokens
PAUSE = 1.5  # seconds without reading
LONG_ENOUGH = 2.0  # seconds that the answers should take
EVENTS = 10  # of the slow one before it stops reading
BUFFER = 4096  # bytes
TOP = 5  # log-probabilities make large events, so that the queues on the way are soon full


def requests(endpoint: Endpoint, given: Mapping[str, Json]) -> tuple[Ask, ...]:
    most = MOST if endpoint.context is None else min(MOST, endpoint.context // 3)
    large = ask.logprobs_members(endpoint, TOP) if endpoint.has("logprobs") else {}
    body = ask.template(endpoint, FAR[endpoint.api], most, large)
    return Ask("slow", body), Ask("other", body)


async def drive(driver: Driver, asks: tuple[Ask, ...]) -> Dossier:
    try:
        pace = await pace_of(driver)
    except Unmeasured as error:
        return driver.dossier(abstain=error.abstain)
    long = MOST if pace is None else max(ask.LONG, pace * LONG_ENOUGH)
    slow, other = (limited(each, driver.endpoint, long) for each in asks)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_slowly, driver, slow)
        await driver.send(other)
    return driver.dossier(pause=PAUSE)


async def _slowly(driver: Driver, asked: Ask) -> None:
    await driver.send(asked, slow=Slow(pause=PAUSE, events=EVENTS, buffer=BUFFER))


SLOW_READ = Scenario(
    "slow-read",
    "Two equal answers at once, one of which is not read for a while",
    requests,
    drive,
    shares=pacing,
    phase=Phase.ABORTS,
    alone=True,
)
