"""`tools`: a call that is demanded, and one that is demanded by name and of which there may be one.

Both ask about two cities, so that whoever may call twice has reason to. The second names the tool
that the question is not about.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from conformance.capture import Capture, Json
from conformance.dossier import Dossier
from conformance.reading import read
from conformance.saying import refusal
from conformance.scenarios import asks as ask
from conformance.scenarios.asks import Ask
from conformance.scenarios.driver import Driver
from conformance.scenarios.scenario import Scenario
from conformance.scenarios.settling import Option, most_refusals, refused, settle
from conformance.target import Endpoint

OPTIONS = (
    Option("tool_choice", ask.named_members()),
    Option("parallel_tool_calls", {"parallel_tool_calls": False}),
)


def requests(endpoint: Endpoint, given: Mapping[str, Json]) -> tuple[Ask, ...]:
    usage = ask.usage_members() if endpoint.has("usage") else {}
    named = _asked(endpoint, "named", {**ask.other_tool_members(), **usage})
    assert not isinstance(named.body, bytes)
    longest: Mapping[str, Json] = named.body
    for option in OPTIONS:
        longest = option.on(longest)
    attempts = [replace(named, role="probe", attempt=True)] * most_refusals(len(OPTIONS))
    return (
        _asked(endpoint, "stream", {**ask.tool_members(), **usage}),
        replace(named, body=longest),
        *attempts,
    )


def _asked(endpoint: Endpoint, role: str, members: dict[str, Json]) -> Ask:
    return Ask(role, ask.request_for({"tools": True}, endpoint, members))


async def drive(driver: Driver, asks: tuple[Ask, ...]) -> Dossier:
    """The second with what is accepted of its demands; neither where tools are refused."""
    called, _, bare, *_ = asks
    named = replace(bare, role="named", attempt=False)
    first = await _send(driver, called)
    reading = read(first)
    if refused(reading):
        driver.lacks("tools", refusal(reading))
        return driver.dossier()
    driver.file(called.role, first)
    found = await settle(partial(_send, driver), named, OPTIONS)
    if not refused(read(found.capture)):
        driver.file(named.role, found.capture)
    told: dict[str, Json] = dict(found.refused)
    return driver.dossier(refused=told)


async def _send(driver: Driver, asked: Ask) -> Capture:
    """One request on trial; a refusal is a probe, and costs nothing."""
    capture = await driver.send(asked, file=False)
    if refused(read(capture)):
        driver.file("probe", capture)
        driver.tokens -= asked.tokens
    return capture


TOOLS = Scenario(
    "tools",
    "A tool call that is demanded, and one that is named and has to be the only one",
    requests,
    drive,
    alone=True,
)
