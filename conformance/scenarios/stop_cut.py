"""`stop-cut`: the server's own text, then the same under stop strings found inside it."""

from __future__ import annotations

from collections.abc import Mapping

from conformance.capture import Json
from conformance.cuts import places
from conformance.dossier import CHAT, Dossier
from conformance.reading import Reading, read
from conformance.scenarios import asks as ask
from conformance.scenarios.asks import Ask
from conformance.scenarios.driver import Driver
from conformance.scenarios.scenario import Choice, Parameter, Scenario
from conformance.target import Endpoint

# `long` is cut off by the limit and serves every stop string; `characters` ends by itself where a
# schema can be demanded, and has what a server may split inside of a character.
PARAMETERS: Mapping[str, Parameter] = {"answer": {"long": Choice(), "characters": Choice()}}
SPREAD: tuple[Mapping[str, Json], ...] = ({"answer": "long"}, {"answer": "characters"})
PLACEHOLDER = "x" * 2 * max(places.SIZES)  # no stop string that is chosen later is longer


def requests(endpoint: Endpoint, given: Mapping[str, Json]) -> tuple[Ask, ...]:
    """Controls first and last; between them each role with a stop string yet to be chosen."""
    if given["answer"] == "characters":
        body, plain = (_characters(endpoint, stream=form) for form in (True, False))
        last = Ask("control", plain, stream=False)
        return Ask("control", body), *_cut(body, "cut", "near"), last
    usage = ask.usage_members() if endpoint.has("usage") else {}
    long = {"answer": "long"}
    body = ask.request_for(long, endpoint, usage)
    plain = {**ask.request_for(long, endpoint, {}, stream=False), "stop": PLACEHOLDER}
    control = Ask("control", body)
    asks = (control, *_cut(body, "cut"), Ask("cut-plain", plain, stream=False))
    return *asks, *_cut(body, "several", "near", "first"), control


def _cut(body: Mapping[str, Json], *roles: str) -> tuple[Ask, ...]:
    return tuple(Ask(role, {**body, "stop": PLACEHOLDER}) for role in roles)


def _characters(endpoint: Endpoint, *, stream: bool) -> dict[str, Json]:
    exact = endpoint.api == CHAT and endpoint.has("response_format")
    members = ask.enum_members(ask.WORDY) if exact else {}
    prompt = ask.REPEAT_WORDY[endpoint.api]
    # Lines go on for ever; a chat's answer should end by itself.
    limit = 2 * ask.LONG if endpoint.api == CHAT else ask.LONG
    return ask.template(endpoint, prompt, limit, members, stream=stream)


async def drive(driver: Driver, asks: tuple[Ask, ...]) -> Dossier:
    """Controls around whatever can be cut; one control alone where the text has no place for it."""
    first, *cuts, last = asks
    pieces = deltas(read(await driver.send(first), api=driver.endpoint.api))
    stops = chosen(pieces, wide=not last.stream)
    if not stops:
        return driver.dossier()
    sent: dict[str, Json] = {}
    for each in cuts:
        stop = stops.get(each.role.removesuffix("-plain"))
        if stop and not isinstance(each.body, bytes):
            sent[each.role] = stop
            await driver.send(Ask(each.role, {**each.body, "stop": stop}, each.stream))
    await driver.send(last)
    return driver.dossier(stops=sent)


def deltas(reading: Reading) -> tuple[str, ...]:
    """The text of choice 0 as it came, delta by delta."""
    lives = reading.life.choices if reading.life else ()
    mine = (life.pieces for life in lives if life.index == 0)
    return tuple(choice.text for _, choice in next(mine, ()) if choice.text)


def chosen(pieces: tuple[str, ...], *, wide: bool) -> dict[str, Json]:
    """The stop parameter of each role; absent where the text has no place for it."""
    text = "".join(pieces)
    stops: dict[str, Json] = {
        "cut": _single(pieces, wide=wide),
        "several": [*places.several(pieces)],
        "near": [*places.near_misses(text)],
        "first": places.first(pieces),
    }
    return {role: stop for role, stop in stops.items() if stop}


def _single(pieces: tuple[str, ...], *, wide: bool) -> Json:
    """A string; `wide`: a list, with letters behind it as a contrast."""
    text = "".join(pieces)
    place = places.hardest(pieces, wide=wide)
    if place is None:
        return None
    stop = text[place.start : place.end]
    contrast = places.behind(text, place.end) if wide else None
    return stop if contrast is None else [stop, contrast]


STOP_CUT = Scenario(
    "stop-cut",
    "A text, and the same under stop strings found inside it",
    requests,
    drive,
    parameters=PARAMETERS,
    spread=SPREAD,
    alone=True,
)
