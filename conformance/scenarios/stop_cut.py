"""`stop-cut`: the server's own text, then the same cut by a stop string found inside it."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain

from conformance.capture import Capture, Json
from conformance.dossier import Dossier
from conformance.reading import read
from conformance.scenarios import asks as ask
from conformance.scenarios.driver import Driver
from conformance.scenarios.scenario import Scenario
from conformance.target import Endpoint

LENGTH = 4  # characters; longer than most tokens of a counting text, so it is cut out of several
LEAST_BEFORE = 8  # characters that must remain, or the prefix proves nothing


def requests(endpoint: Endpoint, given: Mapping[str, Json]) -> tuple[ask.Ask, ...]:
    usage = ask.usage_members() if endpoint.has("usage") else {}
    body = ask.request_for({"answer": "long"}, endpoint, usage)
    control = ask.Ask("control", body)
    return (control, ask.Ask("stream", {**body, "stop": ["…"]}), control)


async def drive(driver: Driver, asks: tuple[ask.Ask, ...]) -> Dossier:
    """Control, cut, control; no cut where the control's text has no place for one."""
    control, cut, again = asks
    text = _text(await driver.send(control), driver)
    at = place(text)
    if at is None or isinstance(cut.body, bytes):
        return driver.dossier(abstain={"reason": "mat", "detail": "no text to cut"})
    stop = text[at : at + LENGTH]
    await driver.send(ask.Ask("stream", {**cut.body, "stop": [stop]}))
    await driver.send(again)
    return driver.dossier(stop=stop, at=at)


def place(text: str) -> int | None:
    """Where a stop string can stand that stands nowhere before it: best past the first third.

    Small models repeat themselves: then only the beginning has a place.
    """
    third, end = max(LEAST_BEFORE, len(text) // 3), len(text) - 2 * LENGTH
    for at in chain(range(third, end), range(LEAST_BEFORE, min(third, end))):
        if text.find(text[at : at + LENGTH]) == at:
            return at
    return None


def _text(capture: Capture, driver: Driver) -> str:
    return read(capture, api=driver.endpoint.api).text


STOP_CUT = Scenario(
    "stop-cut", "A text, and the same cut by a stop string", requests, drive, alone=True
)
