"""`discovery`: the request dialect of one API, settled by answers that the checks look at as well.

A natural end, limits of 1, 7 and 64 tokens, several choices, log-probabilities, the limit's other
name, two answers on one connection; the last is the control of the scenarios to come.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from functools import partial

from conformance.capture import Capture, Json
from conformance.dossier import CHAT, Dossier
from conformance.reading import read
from conformance.recorder import Connection
from conformance.scenarios import asks as ask
from conformance.scenarios.asks import Ask
from conformance.scenarios.driver import LINGER, Driver
from conformance.scenarios.scenario import Phase, Scenario
from conformance.scenarios.settling import (
    Option,
    Settled,
    most_refusals,
    refused,
    settle,
)
from conformance.target import CAPABILITIES, Endpoint, Target

LIMIT_NAMES = ("max_tokens", "max_completion_tokens")
OPTIONAL = frozenset({"temperature", "seed"})  # members of every template, left out if refused
PROBE_TOKENS = 4
FEW, SOME = 1, 7  # limits, in tokens; the control's is a third
TOP, CHOICES = 2, 3
PROBE, NATURAL, LIMITED, SEVERAL, CONTROL = "probe", "natural", "limited", "stream", "control"
UNLIKELY = "\u241e"


def basic(endpoint: Endpoint) -> Ask:
    """The smallest request: no more than the API demands, and a limit."""
    body = ask.template(_bare(endpoint), ask.HI[endpoint.api], PROBE_TOKENS, stream=False)
    return Ask(PROBE, body, stream=False)


def _bare(endpoint: Endpoint) -> Endpoint:
    return replace(endpoint, omit=OPTIONAL)


def natural(endpoint: Endpoint, target: Target) -> tuple[Ask, tuple[Option, ...]]:
    """An answer that ends by itself, and what every template has where it is accepted."""
    body = ask.template(_bare(endpoint), ask.HI[endpoint.api], ask.LONG)
    options = (
        Option("temperature", {"temperature": 0}),
        Option("seed", {"seed": endpoint.seed}),
        Option("stop", {"stop": [UNLIKELY]}),
        Option("usage", ask.usage_members()),
    )
    return _split(Ask(NATURAL, body), options, target)


def limited(endpoint: Endpoint, target: Target) -> tuple[Ask, tuple[Option, ...]]:
    """An answer cut early: log-probabilities, and the other name of the limit."""
    members = ask.usage_members() if endpoint.has("usage") else {}
    body = ask.template(endpoint, ask.STORY[endpoint.api], SOME, members)
    options = [Option("logprobs", ask.logprobs_members(endpoint, TOP))]
    old, new = LIMIT_NAMES
    if endpoint.api == CHAT and endpoint.limit == old:
        options.append(Option(new, {new: SOME}, instead=old))
    return _split(Ask(LIMITED, body), tuple(options), target)


def several(endpoint: Endpoint, target: Target) -> tuple[Ask, tuple[Option, ...]]:
    """Three choices of one token; equal ones would hide a mix-up of two."""
    members = ask.usage_members() if endpoint.has("usage") else {}
    body = ask.template(endpoint, ask.STORY[endpoint.api], FEW, members)
    warm: dict[str, Json] = {} if "temperature" in endpoint.omit else {"temperature": 1}
    option = Option("n", {"n": CHOICES, **warm})
    return _split(Ask(SEVERAL, body), (option,), target)


def _split(
    asked: Ask, options: tuple[Option, ...], target: Target
) -> tuple[Ask, tuple[Option, ...]]:
    """What the target file says is not asked: declared off it is not sent, declared on it is."""
    open_ = []
    for option in options:
        declared = target.capabilities.get(option.name)
        if option.name in target.omit or declared is False:
            continue
        if declared is None:
            open_.append(option)
            continue
        assert not isinstance(asked.body, bytes)
        asked = replace(asked, body=option.on(asked.body))
    return asked, tuple(open_)


def bound(target: Target, endpoint: Endpoint) -> tuple[Ask, ...]:
    """Every request that can be sent for one API, the models list apart; at its longest."""
    out = [basic(endpoint)]
    attempts = len(target.url.bases()) * len(LIMIT_NAMES) - 1
    for make in (natural, limited, several):
        asked, options = make(endpoint, target)
        assert not isinstance(asked.body, bytes)
        body: Mapping[str, Json] = asked.body
        for option in options:
            body = {**body, **option.members}
        out.append(replace(asked, body=body))
        attempts += most_refusals(len(options))
    attempts += 1  # the control again, where the connection was closed under it
    control = ask.counting(endpoint, CONTROL)
    return (*out, control, *[replace(control, role=PROBE, attempt=True)] * attempts)


async def settled(driver: Driver, target: Target) -> tuple[Endpoint, dict[str, Json]]:
    """The driver's endpoint with what it lacks; and what to tell of the answers in its dossier."""
    lacking: dict[str, str] = {}
    for make in (natural, limited):
        asked, options = make(driver.endpoint, target)
        found = await settle(partial(_send, driver), asked, options)
        _file(driver, asked.role, found)
        lacking |= found.refused
        driver.endpoint = _with(driver.endpoint, target, lacking)
    async with AsyncExitStack() as stack:
        line = _Line(driver, stack)
        asked, options = several(driver.endpoint, target)
        found = await settle(line.send, asked, options)
        _file(driver, asked.role, found)
        driver.endpoint = _with(driver.endpoint, target, {**lacking, **found.refused})
        reused = await line.control(ask.counting(driver.endpoint, CONTROL))
    return driver.endpoint, {"reused": reused}


def _with(endpoint: Endpoint, target: Target, refused: Mapping[str, str]) -> Endpoint:
    unsupported = {name: said for name, said in refused.items() if name in CAPABILITIES}
    unsupported |= {name: "declared off" for name, has in target.capabilities.items() if not has}
    omit = frozenset({*(OPTIONAL & refused.keys()), *target.omit})
    return replace(endpoint, unsupported=unsupported, omit=omit)


async def _send(driver: Driver, asked: Ask, connection: Connection | None = None) -> Capture:
    """One request on trial; a refusal is a probe, and costs nothing."""
    capture = await driver.send(asked, linger=LINGER, connection=connection, file=False)
    if refused(read(capture)):
        driver.file(PROBE, capture)
        driver.tokens -= asked.tokens
    return capture


def _file(driver: Driver, role: str, found: Settled) -> None:
    """What was refused is a probe already."""
    if not refused(read(found.capture)):
        driver.file(role, found.capture)


@dataclass(slots=True)
class _Line:
    """Requests one after the other on a connection; a new one behind a refusal."""

    driver: Driver
    stack: AsyncExitStack
    connection: Connection | None = None

    async def send(self, asked: Ask) -> Capture:
        if self.connection is None:
            self.connection = await self.stack.enter_async_context(self.driver.connection())
        capture = await _send(self.driver, asked, self.connection)
        if refused(read(capture)):
            self.connection = None
        return capture

    async def control(self, asked: Ask) -> bool:
        """The control behind the answer before it. Returns whether that left the connection open.

        A kept connection may close at any time (RFC 9112 section 9.5); then a new one serves.
        """
        kept = self.connection if self.connection and self.connection.usable else None
        capture = await self.driver.send(asked, linger=LINGER, connection=kept)
        if kept is not None and not capture.received:
            capture = await self.driver.send(asked, linger=LINGER)
        self.driver.share(asked, capture)
        return kept is not None


async def _driven(driver: Driver, asks: tuple[Ask, ...]) -> Dossier:
    raise NotImplementedError("discovery comes before the plan")


DISCOVERY = Scenario(
    "discovery",
    "The answers by which the request dialect is settled",
    lambda endpoint, given: (),
    _driven,
    phase=Phase.DISCOVERY,
)
