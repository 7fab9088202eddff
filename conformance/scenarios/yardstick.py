"""The controls of hang-ups: how long an answer goes on, and which witness sees the work on it.

Measured once for each API and remembered: equal answers by the pace, one of them watched from its
beginning to its end by the server's metrics, else beside a neighbour that outlives it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import trio

from conformance import work
from conformance.arrivals import arrivals, rate
from conformance.capture import Capture, Json
from conformance.checks.live import ENDED
from conformance.dossier import CHAT, COMPLETIONS
from conformance.reading import Reading, read
from conformance.scenarios import asks as ask
from conformance.scenarios.asks import Ask
from conformance.scenarios.driver import Driver
from conformance.scenarios.meter import INTERVAL
from conformance.target import Endpoint

MOST = 1024  # tokens of a long answer at most
LONG_ENOUGH = {True: 3.25, False: 4.2}  # seconds of the long answer, with metrics and without
SETTLE = 1.5 * INTERVAL  # for two samples

FAR = {
    CHAT: "Count from 1 to 2000, separated by commas.",
    COMPLETIONS: "Count from 1 to 2000: 1, 2,",
}
NEAR = {
    CHAT: "Count from 501 to 2000, separated by commas.",
    COMPLETIONS: "Count from 501 to 2000: 501, 502,",
}


def controls(endpoint: Endpoint) -> tuple[Ask, ...]:
    """What is measured once; `beside` only where no metrics tell."""
    most, far, near = most_of(endpoint), FAR[endpoint.api], NEAR[endpoint.api]
    return asked_for(endpoint, "control", far, most), asked_for(endpoint, "beside", near, most)


def pacing(endpoint: Endpoint, given: Mapping[str, Json]) -> tuple[Ask, ...]:
    """The common answer, by whose pace the others are measured out."""
    return (ask.counting(endpoint, "pace"),)


def most_of(endpoint: Endpoint) -> int:
    return MOST if endpoint.context is None else min(MOST, endpoint.context // 3)


def asked_for(
    endpoint: Endpoint,
    role: str,
    prompt: str,
    limit: int,
    members: Mapping[str, Json] | None = None,
) -> Ask:
    return Ask(role, ask.template(endpoint, prompt, limit, members))


def several(endpoint: Endpoint, count: int) -> dict[str, Json]:
    """The members that ask for that many choices, where they are to be had."""
    if not endpoint.has("n"):
        return {}
    warm: dict[str, Json] = {} if "temperature" in endpoint.omit else {"temperature": 1}
    return {"n": count, **warm}


def limited(asked: Ask, endpoint: Endpoint, limit: float) -> Ask:
    """The same request with a lower limit."""
    assert not isinstance(asked.body, bytes)
    most = min(_limit(asked, endpoint), int(limit))
    return replace(asked, body={**asked.body, endpoint.limit: max(1, most)})


@dataclass(frozen=True, slots=True)
class Yardstick:
    """What the controls have shown. Times in seconds, from the request to what they name.

    `rate`: events a second, None: they come at once. `alive`: which metrics show the work.
    """

    rate: float | None
    limit: int
    first: float
    natural: float
    alive: tuple[str, ...] = ()
    each: float = 0.0  # what one request adds to the gauge
    contrast: work.Contrast | None = None
    beside: int = 0  # tokens of the neighbour
    control: str = ""  # name of the dossier that holds the controls

    def picked(self) -> dict[str, Json]:
        """For the dossier and the memory."""
        known, alive = self.contrast, list[Json](self.alive)
        return {
            "rate": self.rate, "limit": self.limit, "first": self.first, "natural": self.natural,
            "beside": self.beside, "alive": alive, "each": self.each, "control": self.control,
            "serial": bool(known and known.serial), "gap": None if known is None else known.gap,
        }  # fmt: skip


class Unmeasured(Exception):
    """The controls did not get an answer to measure by: (reason, detail)."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.abstain: dict[str, Json] = {"reason": reason, "detail": detail}


async def measured(driver: Driver) -> dict[str, Json]:
    """What the controls show, or why they show nothing, for this and all later aborts."""
    asks = {each.role: each for each in controls(driver.endpoint)}
    try:
        return (await _measure(driver, asks)).picked()
    except Unmeasured as error:
        return {"abstain": error.abstain}


async def _measure(driver: Driver, asks: Mapping[str, Ask]) -> Yardstick:
    pace = await pace_of(driver)
    long = LONG_ENOUGH[driver.meter is not None]
    control = limited(asks["control"], driver.endpoint, _tokens(pace, long))
    if driver.meter is not None:
        return await _by_meter(driver, control, pace)
    return await _by_neighbour(driver, control, asks["beside"], pace)


def _tokens(pace: float | None, seconds: float) -> float:
    """How many make an answer of that length; as many as we may where that is not known."""
    return MOST if pace is None else max(ask.LONG, pace * seconds)


async def pace_of(driver: Driver) -> float | None:
    """Events a second of the common answer, None where they come at once."""
    (asked,) = pacing(driver.endpoint, driver.parameters)
    return rate(arrivals(_ended(driver, await driver.shared(asked))))


def _ended(driver: Driver, capture: Capture) -> Reading:
    """The answer, read. Raises Unmeasured unless it is whole."""
    reading = read(capture, api=driver.endpoint.api)
    if reading.status is not None and reading.status >= 400:
        raise Unmeasured("rate", f"a control was refused with {reading.status}")
    if reading.outcome not in ENDED:
        outcome = reading.outcome.value if reading.outcome else "no stream"
        raise Unmeasured("mat", f"a control did not end well: {outcome}")
    return reading


async def _by_meter(driver: Driver, control: Ask, pace: float | None) -> Yardstick:
    async with driver.watched():
        await trio.sleep(SETTLE)
        begun = driver.now()
        await driver.send(control)
        await trio.sleep(2 * SETTLE)
    reading = _ended(driver, driver.roles["control"][-1])
    stick = _stick(driver, reading, pace, ask.LONG)
    base = work.baseline(driver.samples, begun)
    if base is None or not base.steady:
        return stick
    span = _span(reading)
    alive = work.live(driver.samples, base, span)
    return replace(stick, alive=alive, each=work.each(driver.samples, base, span))


async def _by_neighbour(driver: Driver, control: Ask, beside: Ask, pace: float | None) -> Yardstick:
    near = limited(beside, driver.endpoint, 1.5 * _limit(control, driver.endpoint))
    await _both(driver, control, near)
    first, other = (_ended(driver, driver.roles[role][-1]) for role in ("control", "beside"))
    sent = first.capture.sent_at or 0.0, other.capture.sent_at or 0.0
    stick = _stick(driver, first, pace, _limit(near, driver.endpoint))
    return replace(stick, contrast=work.contrast(arrivals(other), _span(first), sent))


def _stick(driver: Driver, control: Reading, pace: float | None, beside: int) -> Yardstick:
    sent = control.capture.sent_at or 0.0
    limit = control.asked(driver.endpoint.limit)
    answered = control.capture.reads[0].at or sent
    name = driver.dossier().name
    natural = _span(control)[1] - sent
    return Yardstick(pace, whole(limit), answered - sent, natural, beside=beside, control=name)


def _limit(asked: Ask, endpoint: Endpoint) -> int:
    assert not isinstance(asked.body, bytes)
    return whole(asked.body[endpoint.limit])


async def _both(driver: Driver, control: Ask, beside: Ask) -> None:
    """The neighbour comes once the control is being answered: it may have to wait for its turn."""
    begun = trio.Event()

    async def first() -> None:
        await driver.send(control, begun=begun)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(first)
        await begun.wait()
        await driver.send(beside)


def _span(reading: Reading) -> tuple[float, float]:
    """First text and end."""
    found, end = arrivals(reading), reading.capture.end.at or 0.0
    return (found[0].at if found else end), end


def number(value: Json) -> float:
    assert isinstance(value, float | int)
    return value


def whole(value: Json) -> int:
    assert isinstance(value, int)
    return value
