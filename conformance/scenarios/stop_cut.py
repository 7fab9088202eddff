"""`stop-cut`: the server's own text, then the same under stop strings found inside it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from conformance.capture import Capture, Json
from conformance.checks.cutruns import is_same
from conformance.cuts import decoys, places
from conformance.dossier import CHAT, Dossier
from conformance.reading import Reading, read
from conformance.saying import refusal
from conformance.scenarios import asks as ask
from conformance.scenarios import pair
from conformance.scenarios.asks import Ask
from conformance.scenarios.driver import Driver
from conformance.scenarios.scenario import Choice, Parameter, Scenario
from conformance.scenarios.settling import refused
from conformance.target import Endpoint

# `long` is cut off by the limit and serves every stop string; `characters` ends by itself where a
# schema can be demanded, and has what a server may split inside of a character.
PARAMETERS: Mapping[str, Parameter] = {"answer": {"long": Choice(), "characters": Choice()}}
SPREAD: tuple[Mapping[str, Json], ...] = ({"answer": "long"}, {"answer": "characters"})
PLACEHOLDER = "x" * 2 * max(places.SIZES)  # no stop string that is chosen later is longer
CHOICES = 2  # of the answer under several stop strings
MOST = 4  # stop strings in one list
FILLING: tuple[Json, ...] = tuple(f"{places.IMPOSSIBLE}{number}" for number in range(MOST))


def requests(endpoint: Endpoint, given: Mapping[str, Json]) -> tuple[Ask, ...]:
    """Each role with a stop string yet to be chosen; the last of the long text's is a control, or
    an answer under one more stop string where none is needed."""
    if given["answer"] == "characters":
        control = exact(endpoint)[0] if is_exact(endpoint) else _loose(endpoint, stream=True)
        cuts = (_cut(control, "near"), _cut(control, "cut"))
        if endpoint.api != CHAT:
            return control, cuts[1], _loose(endpoint, stream=False)
        if not is_exact(endpoint):
            return control, *cuts
        # Without a schema after all: a control of its own, in place of those that are shared or
        # of the long text's second one.
        return *cuts, *[Ask("probe", control.body, attempt=True)] * 2
    control = ask.counting(endpoint, "control")
    plain = ask.request_for({"answer": "long"}, endpoint, {}, stream=False)
    several = _cut(control, "several", endpoint)
    return (
        _cut(control, "cut"), _cut(Ask("control", plain, stream=False), "cut-plain"), several,
        _cut(control, "near"), _cut(control, "first"), *([control] if has_room(endpoint) else []),
        *([replace(several, role="probe", attempt=True)] if endpoint.has("n") else []),
        replace(_cut(control, "five"), attempt=True),  # more stop strings than a list must hold
    )  # fmt: skip


def has_room(endpoint: Endpoint) -> bool:
    """Is there one answer more for the long text? Characters without a schema cost one more."""
    return is_exact(endpoint) or endpoint.api != CHAT


def known(endpoint: Endpoint, given: Mapping[str, Json]) -> tuple[Ask, ...]:
    """The controls, which earlier scenarios are likely to have asked for."""
    if given["answer"] == "long":
        return (ask.counting(endpoint, "control"),)
    return exact(endpoint) if is_exact(endpoint) else ()


def is_exact(endpoint: Endpoint) -> bool:
    """Can a schema make the model say the characters?"""
    return endpoint.api == CHAT and endpoint.has("response_format")


def exact(endpoint: Endpoint) -> tuple[Ask, ...]:
    """The requests of `pair` for the characters, streamed and plain."""
    asks = pair.requests(endpoint, {"answer": "characters", "tools": False, "repeats": 1})
    plain, stream = (replace(each, role="control") for each in asks[:2])
    return stream, plain


def _loose(endpoint: Endpoint, *, stream: bool) -> Ask:
    # Lines go on for ever; a chat's answer should end by itself.
    limit = 2 * ask.LONG if endpoint.api == CHAT else ask.LONG
    prompt = ask.REPEAT_WORDY[endpoint.api]
    return Ask("control", ask.template(endpoint, prompt, limit, stream=stream), stream)


def _cut(
    control: Ask, role: str, endpoint: Endpoint | None = None, stop: Json = PLACEHOLDER
) -> Ask:
    """The control under a stop string; for an endpoint that has `n`, two choices of it."""
    assert not isinstance(control.body, bytes)
    choices: dict[str, Json] = {"n": CHOICES} if endpoint and endpoint.has("n") else {}
    return replace(control, role=role, body={**control.body, "stop": stop, **choices})


async def drive(driver: Driver, asks: tuple[Ask, ...]) -> Dossier:
    """Controls and whatever can be cut; one control alone where the text has no place for it."""
    if driver.parameters["answer"] == "characters":
        return await _characters(driver)
    control = ask.counting(driver.endpoint, "control")
    first = read(await driver.shared(control), api=driver.endpoint.api)
    stops = chosen(deltas(first), wide=False, prompt=ask.COUNT[driver.endpoint.api])
    if not stops:
        return driver.dossier()
    by_role = {each.role: each for each in asks if not each.attempt}
    sent: dict[str, Json] = {}
    for role in ("cut", "cut-plain", "several", "near"):
        stop = stops.get(role.removesuffix("-plain"))
        if stop:
            sent[role] = stop
            await _under(driver, by_role[role], stop)
    near, room = _is_control(driver, first), has_room(driver.endpoint)
    spare = near and room
    if stops.get("first") and (near or room):
        sent["first"] = stops["first"]
        spare = await _at_once(driver, by_role["first"], stops["first"], spare=spare)
    if spare and stops.get("white"):
        sent["white"] = stops["white"]
        await _under(driver, _cut(control, "white"), stops["white"])
    if not near:
        await driver.send(control)
    return driver.dossier(stops=sent)


async def _at_once(driver: Driver, asked: Ask, stop: Json, *, spare: bool) -> bool:
    """The answer that ends at its first text, by the last of five stop strings if five may be.

    Where they may not, or the fifth is passed over, by that one alone. Returns what is left of the
    `spare` answer.
    """
    five = _cut(asked, "five", stop=[*FILLING, stop])
    capture = await driver.send(five, file=False)
    reading = read(capture, api=driver.endpoint.api)
    accepted = reading.status is not None and reading.status < 400
    if accepted and not reading.text:
        driver.file("first", capture)
        return spare
    driver.file("five", capture)
    if not accepted:
        driver.tokens -= five.tokens
    elif not spare:
        return False
    await _under(driver, asked, stop)
    return spare and not accepted


async def _characters(driver: Driver) -> Dossier:
    """With a schema both controls are known; else what a near miss leaves whole is the second."""
    controls = await _exact_controls(driver) if is_exact(driver.endpoint) else ()
    loose = _loose(driver.endpoint, stream=True)
    control, capture = controls[0] if controls else (loose, await driver.send(loose))
    first = read(capture, api=driver.endpoint.api)
    stops = chosen(deltas(first), wide=True)
    if not stops:
        return driver.dossier()
    sent: dict[str, Json] = {}
    lines = driver.endpoint.api != CHAT  # they go on for ever: nothing is held back at their end
    if stops.get("near") and not lines:
        sent["near"] = stops["near"]
        await _under(driver, _cut(control, "near"), stops["near"])
    whole = bool(controls) or _is_control(driver, first)
    if stops.get("cut") and (whole or lines):
        sent["cut"] = stops["cut"]
        await _under(driver, _cut(control, "cut"), stops["cut"])
    if not whole:
        await driver.send(_loose(driver.endpoint, stream=False))
    return driver.dossier(stops=sent)


async def _exact_controls(driver: Driver) -> tuple[tuple[Ask, Capture], ...]:
    """The two controls under a schema; none if that is refused."""
    stream, plain = exact(driver.endpoint)
    if stream.rendered() not in driver.answers:
        capture = await driver.send(stream, file=False)
        reading = read(capture)
        if refused(reading):
            driver.file("probe", capture)
            driver.tokens -= stream.tokens
            driver.lacks("response_format", refusal(reading))
            return ()
        driver.file("control", capture)
        return (stream, capture), (plain, await driver.shared(plain))
    return (stream, await driver.shared(stream)), (plain, await driver.shared(plain))


async def _under(driver: Driver, asked: Ask, stop: Json) -> None:
    """One answer under this stop string; of one choice where two are refused."""
    assert not isinstance(asked.body, bytes)
    body = {**asked.body, "stop": stop}
    capture = await driver.send(replace(asked, body=body), file=False)
    if "n" in body and refused(read(capture)):
        driver.file("probe", capture)
        driver.tokens -= asked.tokens
        del body["n"]
        capture = await driver.send(replace(asked, body=body), file=False)
    driver.file(asked.role, capture)


def _is_control(driver: Driver, first: Reading) -> bool:
    """Did what nearly stops it leave the text as it was? Then it is as good as a control."""
    near = next(iter(driver.roles.get("near", ())), None)
    if near is None:
        return False
    return is_same(first, read(near, api=driver.endpoint.api))


def deltas(reading: Reading) -> tuple[str, ...]:
    """The text of choice 0 as it came, delta by delta."""
    lives = reading.life.choices if reading.life else ()
    mine = (life.pieces for life in lives if life.index == 0)
    return tuple(choice.text for _, choice in next(mine, ()) if choice.text)


def chosen(pieces: tuple[str, ...], *, wide: bool, prompt: str = "") -> dict[str, Json]:
    """The stop parameter of each role; absent where the text has no place for it.

    Beside near misses stand decoys: a word of the prompt, or of a text with letters their other
    case, and a pattern. A list has room for four.
    """
    text = "".join(pieces)
    near = places.near_misses(text)
    likely = decoys.of_prompt(prompt, text), decoys.pattern(text), decoys.other_case(text)
    beside: list[Json] = [decoy for decoy in likely if decoy is not None]
    stops: dict[str, Json] = {
        "cut": _single(pieces, wide=wide),
        "several": [*places.several(pieces)],
        "near": [*near, *beside][:MOST] if near else None,
        "first": places.first(pieces),
        "white": places.white(text),
    }
    return {role: stop for role, stop in stops.items() if stop}


def _single(pieces: tuple[str, ...], *, wide: bool) -> Json:
    """A string; `wide`: a list, with letters behind it as a contrast, and a decoy before it."""
    text = "".join(pieces)
    place = places.hardest(pieces, wide=wide)
    if place is None:
        return None
    stop = text[place.start : place.end]
    if not wide:
        return stop
    beside = places.behind(text, place.end), decoys.other_case(text, place.start)
    return [stop, *(each for each in beside if each is not None)]


STOP_CUT = Scenario(
    "stop-cut",
    "A text, and the same under stop strings found inside it",
    requests,
    drive,
    parameters=PARAMETERS,
    spread=SPREAD,
    shares=known,
    alone=True,
)
