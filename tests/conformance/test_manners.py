"""On a name that is not this machine's the default run is polite: what it sends, and how much."""

from __future__ import annotations

import json

import pytest
import trio

from conformance.capture import Capture
from conformance.run import execute
from conformance.run_report import Recorded, report_from
from conformance.scenarios import SCENARIOS
from conformance.scenarios.invalid import mistakes
from conformance.target import Endpoint
from tests.conformance.test_run import Ran, reference, setup, virtually

NAME = "models.example"


def run_elsewhere(*words: str) -> Ran:
    """A run against another machine's name; the name is dialled here."""
    out: list[Ran] = []

    async def main() -> None:
        async with reference() as server:
            here = server.url.removeprefix("http://").removesuffix("/v1")
            made = setup(f"http://{NAME}/v1", "--connect-to", here, *words)
            recorded, start = Recorded(), trio.current_time()
            await execute(made, recorded, lambda line: None)
            took, tokens = trio.current_time() - start, server.engine.gauges.tokens
            report = report_from(made, recorded)
            out.append(Ran(made, recorded, report, server.got, tokens, took))

    virtually(main)
    return out[0]


@pytest.fixture(scope="module")
def polite() -> Ran:
    return run_elsewhere()


def captures(ran: Ran) -> list[Capture]:
    return [capture for dossier in ran.recorded.dossiers for _, capture in dossier.own()]


def test_it_is_another_machine_that_is_asked(polite: Ran) -> None:
    assert {request.headers["host"] for request in polite.got} == {NAME}
    assert polite.report.target["url"] == f"http://{NAME}/v1"


def test_only_polite_scenarios_run_and_the_others_are_named(polite: Ran) -> None:
    ran = {dossier.scenario for dossier in polite.recorded.dossiers} - {"discovery"}
    assert {SCENARIOS[name].manners for name in ran} == {"polite"}
    assert {"crowd", "invalid"}.isdisjoint(ran)
    left_out = {job.scenario for job, why in polite.recorded.plan.dropped if why == "manners"}
    assert {"crowd", "invalid"} <= left_out
    impolite = {name for name, each in SCENARIOS.items() if each.manners != "polite"}
    assert left_out <= impolite
    reasons = [each.reason or "" for each in polite.report.results if each.id == "isolation.canary"]
    assert reasons
    assert all("needs --manners" in reason for reason in reasons)


def test_nothing_malformed_is_sent(polite: Ran) -> None:
    posts = [request for request in polite.got if request.method == "POST"]
    bodies = [json.loads(request.body) for request in posts]  # raises for what is no JSON
    for api in ("chat", "completions"):
        bad = mistakes(Endpoint(api, model="scripted"), stream=True).values()
        assert not [body for body in bodies if body in list(bad)]
    assert not [d for d in polite.recorded.dossiers for role in d.roles if "refused" in role]


def test_at_most_two_are_under_way_at_once(polite: Ran) -> None:
    marks = [
        (at, step)
        for capture in captures(polite)
        for at, step in ((capture.sent_at or 0.0, 1), (capture.end.at or 0.0, -1))
    ]
    under_way = most = 0
    for _, step in sorted(marks):
        under_way += step
        most = max(most, under_way)
    assert most == 2


def test_the_tokens_stay_within_two_hundred_thousand(polite: Ran) -> None:
    assert polite.setup.limits.tokens == 200_000
    assert polite.tokens <= polite.recorded.sent.tokens <= polite.recorded.plan.cost.tokens
    assert polite.recorded.plan.cost.tokens <= 200_000


def test_what_would_cost_more_is_left_out_and_said() -> None:
    ran = run_elsewhere("--max-tokens-total", "3000", "--api", "chat")
    assert ran.recorded.sent.tokens <= 3000
    assert [job.name for job, why in ran.recorded.plan.dropped if why == "budget"]


def test_whoever_asks_for_it_gets_the_crowd() -> None:
    ran = run_elsewhere("--manners", "heavy", "--api", "chat", "--select", "isolation.canary")
    assert "crowd" in {dossier.scenario for dossier in ran.recorded.dossiers}
