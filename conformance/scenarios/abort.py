"""`abort`: hanging up on an answer, beside a control that nobody hung up on.

The control says how long the answer would have gone on, and which witness sees the work: the
server's metrics, else a neighbour's gaps. It is measured once for each API and remembered. Where
there are metrics, one neighbour is enough, that of the first; without them each abort needs one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import trio

from conformance import work
from conformance.arrivals import arrivals, rate
from conformance.capture import Capture, How, Json
from conformance.checks.live import ENDED
from conformance.dossier import CHAT, COMPLETIONS, Dossier
from conformance.reading import Reading, read
from conformance.scenarios import asks as ask
from conformance.scenarios.asks import Ask
from conformance.scenarios.driver import Driver
from conformance.scenarios.meter import INTERVAL
from conformance.scenarios.scenario import Choice, Parameter, Phase, Scenario
from conformance.script import Leave
from conformance.target import Endpoint

MID, BEFORE = "mid-stream", "before-headers"
PARAMETERS: Mapping[str, Parameter] = {
    "when": {MID: Choice(), BEFORE: Choice()},
    "how": {"fin": Choice(), "rst": Choice(), "half": Choice()},
}
PACE, MOST = 32, 1024  # tokens of the measuring answer, and of a long one at most
EVENTS = 5  # after which we hang up where the metrics tell
ALONG = 1.0  # seconds of company before we hang up where only a neighbour tells
LONG_ENOUGH = {True: 2.75, False: 4.2}  # seconds of the long answer, with metrics and without
LONGEST_WATCH = 15.0
HOLD, HOLD_EARLY = 0.3, 1.0  # seconds for which the work has to stay away
SETTLE = 1.5 * INTERVAL  # for two samples
MEMORY = "abort"
PADDING = " ".join(str(number % 10) for number in range(256))

FAR = {
    CHAT: "Count from 1 to 2000, separated by commas.",
    COMPLETIONS: "Count from 1 to 2000: 1, 2,",
}
NEAR = {
    CHAT: "Count from 501 to 2000, separated by commas.",
    COMPLETIONS: "Count from 501 to 2000: 501, 502,",
}


def requests(endpoint: Endpoint, given: Mapping[str, Json]) -> tuple[Ask, ...]:
    """All at their longest; how long they are is settled when the pace is known."""
    most, far = _most(endpoint), FAR[endpoint.api]
    left = f"{PADDING}\n\n{far}" if given["when"] == BEFORE else far
    return (
        _ask(endpoint, "treated", left, most),
        _ask(endpoint, "canary", NEAR[endpoint.api], most),
        _ask(endpoint, "probe", ask.HI[endpoint.api], ask.SHORT),
    )


def controls(endpoint: Endpoint) -> tuple[Ask, ...]:
    """What is measured once; `beside` only where no metrics tell."""
    most, far, near = _most(endpoint), FAR[endpoint.api], NEAR[endpoint.api]
    both = _ask(endpoint, "control", far, most), _ask(endpoint, "beside", near, most)
    return _ask(endpoint, "pace", far, PACE), *both


def _most(endpoint: Endpoint) -> int:
    return MOST if endpoint.context is None else min(MOST, endpoint.context // 3)


def _ask(endpoint: Endpoint, role: str, prompt: str, limit: int) -> Ask:
    return Ask(role, ask.template(endpoint, prompt, limit))


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


async def drive(driver: Driver, asks: tuple[Ask, ...]) -> Dossier:
    """The controls, unless they are known; then the answer that we leave, and a watch."""
    by_role = {each.role: each for each in asks}
    if driver.detached:
        detail = "the target file says that a generation goes on without its client"
        return driver.dossier(abstain={"reason": "resume", "detail": detail})
    fresh = MEMORY not in driver.memory
    if fresh:
        driver.memory[MEMORY] = await _measured(driver)
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


# -- the controls ---------------------------------------------------------------------------------


async def _measured(driver: Driver) -> dict[str, Json]:
    """What the controls show, or why they show nothing, for this and all later aborts."""
    asks = {each.role: each for each in controls(driver.endpoint)}
    try:
        return (await _measure(driver, asks)).picked()
    except Unmeasured as error:
        return {"abstain": error.abstain}


async def _measure(driver: Driver, asks: Mapping[str, Ask]) -> Yardstick:
    pace = await pace_of(driver, asks["pace"])
    long = LONG_ENOUGH[driver.meter is not None]
    control = limited(asks["control"], driver.endpoint, _tokens(pace, long))
    if driver.meter is not None:
        return await _by_meter(driver, control, pace)
    return await _by_neighbour(driver, control, asks["beside"], pace)


def _tokens(pace: float | None, seconds: float) -> float:
    """How many make an answer of that length; as many as we may where that is not known."""
    return MOST if pace is None else max(ask.LONG, pace * seconds)


async def pace_of(driver: Driver, asked: Ask) -> float | None:
    """Events a second of a short answer, None where they come at once; remembered."""
    known = driver.memory.get("rate")
    if "rate" in driver.memory:
        return known if isinstance(known, float) else None
    found = rate(arrivals(_ended(driver, await driver.send(asked))))
    driver.memory["rate"] = found
    return found


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
    stick = _stick(driver, reading, pace, PACE)
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
    return Yardstick(pace, _whole(limit), answered - sent, natural, beside=beside, control=name)


def _limit(asked: Ask, endpoint: Endpoint) -> int:
    assert not isinstance(asked.body, bytes)
    return _whole(asked.body[endpoint.limit])


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


# -- what we leave --------------------------------------------------------------------------------


async def _treat(
    driver: Driver, asks: Mapping[str, Ask], known: Mapping[str, Json], *, beside: bool
) -> None:
    treated = limited(asks["treated"], driver.endpoint, _whole(known["limit"]))
    metered = bool(known["alive"])
    canary = limited(asks["canary"], driver.endpoint, _whole(known["beside"]))
    if driver.meter is not None:  # the pace's own request: its text is the control
        canary = replace(controls(driver.endpoint)[0], role="canary")
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


def _number(value: Json) -> float:
    assert isinstance(value, float | int)
    return value


def _whole(value: Json) -> int:
    assert isinstance(value, int)
    return value


async def _hang_up(driver: Driver, treated: Ask, leave: Leave) -> None:
    await driver.send(treated, leave=leave)


def _leave(driver: Driver, known: Mapping[str, Json]) -> Leave:
    how, first = str(driver.parameters["how"]), _number(known["first"])
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
        hold = min(work.PATIENCE, HOLD_EARLY + 2 * _number(known["first"]))
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
    words, each = list(map(str, alive)), _number(known["each"])
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
    phase=Phase.ABORTS,
    alone=True,
    watches=True,
)
