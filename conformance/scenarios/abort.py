"""`abort`: hanging up on an answer, once controls have shown what is to be seen; see `yardstick`.

Where there are metrics, one neighbour is enough, that of the first; without them each abort needs
one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import trio

from conformance import work
from conformance.capture import How, Json
from conformance.dossier import Dossier
from conformance.reading import read
from conformance.scenarios import asks as ask
from conformance.scenarios.asks import Ask
from conformance.scenarios.driver import Driver
from conformance.scenarios.meter import INTERVAL
from conformance.scenarios.scenario import Choice, Parameter, Phase, Scenario
from conformance.scenarios.yardstick import (
    FAR,
    NEAR,
    SETTLE,
    asked_for,
    controls,
    limited,
    measured,
    most_of,
    number,
    pacing,
    several,
    whole,
)
from conformance.script import Leave
from conformance.target import Endpoint

MID, BEFORE = "mid-stream", "before-headers"
PARAMETERS: Mapping[str, Parameter] = {
    "when": {MID: Choice(), BEFORE: Choice()},
    "how": {"fin": Choice(), "rst": Choice(), "half": Choice()},
}
EVENTS = 5  # after which we hang up where the metrics tell
ALONG = 1.0  # seconds of company before we hang up where only a neighbour tells
LONGEST_WATCH = 15.0
HOLD, HOLD_EARLY = 0.3, 1.0  # seconds for which the work has to stay away
MEMORY = "abort"
PADDING = " ".join(str(number % 10) for number in range(256))


def requests(endpoint: Endpoint, given: Mapping[str, Json]) -> tuple[Ask, ...]:
    """All at their longest; how long they are is settled when the pace is known."""
    most, far = most_of(endpoint), FAR[endpoint.api]
    left = f"{PADDING}\n\n{far}" if given["when"] == BEFORE else far
    probe = asked_for(endpoint, "probe", ask.HI[endpoint.api], ask.SHORT)
    return (
        asked_for(endpoint, "treated", left, most, _choices(endpoint, given)),
        asked_for(endpoint, "canary", NEAR[endpoint.api], most),
        replace(
            probe, spare=True
        ),  # for metrics; then the first alone has a neighbour, one too few
    )


def _choices(endpoint: Endpoint, given: Mapping[str, Json]) -> dict[str, Json]:
    """By a reset two choices are left: each is work of its own, and all of it has to end."""
    return several(endpoint, 2) if (given["when"], given["how"]) == (MID, "rst") else {}


async def drive(driver: Driver, asks: tuple[Ask, ...]) -> Dossier:
    """The controls, unless they are known; then the answer that we leave, and a watch."""
    by_role = {each.role: each for each in asks}
    if driver.detached:
        detail = "the target file says that a generation goes on without its client"
        return driver.dossier(abstain={"reason": "resume", "detail": detail})
    fresh = MEMORY not in driver.memory
    if fresh:
        driver.memory[MEMORY] = await measured(driver)
    known = driver.memory[MEMORY]
    assert isinstance(known, dict)
    if "abstain" in known:
        return driver.dossier(**known)
    blind = not (known["alive"] or known["serial"] or known["gap"])
    if fresh or not blind:  # the first has a neighbour to look after, whatever else is seen
        await _treat(driver, by_role, known, beside=fresh or not known["alive"])
        return driver.dossier(**known)
    natural = known["natural"]
    reason = "fast" if isinstance(natural, float) and natural < work.SLACK else "oracle"
    detail = f"nothing showed the work in the controls of {known['control']}"
    return driver.dossier(abstain={"reason": reason, "detail": detail}, **known)


# -- what we leave --------------------------------------------------------------------------------


async def _treat(
    driver: Driver, asks: Mapping[str, Ask], known: Mapping[str, Json], *, beside: bool
) -> None:
    treated = limited(asks["treated"], driver.endpoint, whole(known["limit"]))
    metered = bool(known["alive"])
    canary = limited(asks["canary"], driver.endpoint, whole(known["beside"]))
    if driver.meter is not None:  # the pace's own request: its text is the control
        canary = ask.counting(driver.endpoint, "canary")
    async with driver.watched():
        await trio.sleep(SETTLE if metered else 0)
        begun = driver.now()
        async with trio.open_nursery() as nursery:
            if known["serial"]:
                await _hang_up(driver, treated, _leave(driver, known))
                await trio.sleep(INTERVAL)  # so that it cannot be served before what we left
            else:
                nursery.start_soon(_hang_up, driver, treated, _leave(driver, known))
            if beside:
                await driver.send(canary)
        if metered and driver.meter is not None:
            await _watch(driver, known, begun)
            if driver.samples:
                await _refresh(driver, asks["probe"], known)


async def _hang_up(driver: Driver, treated: Ask, leave: Leave) -> None:
    await driver.send(treated, leave=leave)


def _leave(driver: Driver, known: Mapping[str, Json]) -> Leave:
    how, first = str(driver.parameters["how"]), number(known["first"])
    if driver.parameters["when"] == BEFORE:
        return Leave(how, seconds=first / 3)  # of another answer: this one may be faster
    if known["alive"] or known["serial"]:
        return Leave(how, events=EVENTS)
    return Leave(how, seconds=first + ALONG)


async def _watch(driver: Driver, known: Mapping[str, Json], begun: float) -> None:
    """Scrapes go on until the work has stayed away for a while, or should be over by itself."""
    treated = driver.roles["treated"][-1]
    left, natural = treated.end.at, known["natural"]
    if treated.end.how is not How.LEFT or left is None or not isinstance(natural, float):
        return
    until = left + min(1.5 * natural + work.PATIENCE, LONGEST_WATCH)
    hold = HOLD
    if driver.parameters["when"] == BEFORE:  # it may not have begun, and could still
        hold = min(work.PATIENCE, HOLD_EARLY + 2 * number(known["first"]))
    while driver.now() < until:
        await trio.sleep(INTERVAL)
        stop = work.stopped_at(_seen(driver, known, begun, left))
        if stop is not None and driver.now() >= stop + hold:
            return


def _seen(
    driver: Driver, known: Mapping[str, Json], begun: float, left: float
) -> list[tuple[float, bool]]:
    base, alive = work.baseline(driver.samples, begun), known["alive"]
    if base is None or not isinstance(alive, list):
        return []
    api = driver.endpoint.api
    others = [
        work.other(read(capture, api=api))
        for role, takes in driver.roles.items()
        if role != "treated"
        for capture in takes
    ]
    words, each = list(map(str, alive)), number(known["each"])
    return work.activity(driver.samples, base, words, others, left, each)


async def _refresh(driver: Driver, probe: Ask, known: Mapping[str, Json]) -> None:
    """A gauge that never fell: some servers write theirs only while they work, so let it work."""
    first, last = (driver.samples[at].values.get(work.GAUGE) for at in (0, -1))
    alive = known["alive"]
    gauged = isinstance(alive, list) and work.GAUGE in alive
    if gauged and first is not None and last is not None and last > first:
        await driver.send(probe)
        await trio.sleep(5 * INTERVAL)


ABORT = Scenario(
    "abort",
    "An answer that we hang up on, beside one that ends by itself",
    requests,
    drive,
    parameters=PARAMETERS,
    once=controls,
    shares=pacing,
    phase=Phase.ABORTS,
    alone=True,
    watches=True,
)
