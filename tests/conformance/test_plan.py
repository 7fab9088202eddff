"""The plan: what runs for the chosen cases, once each, and the bound on what it costs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from conformance.capture import Json
from conformance.discovery import bound
from conformance.dossier import APIS, CHAT, COMPLETIONS
from conformance.errors import SpecError
from conformance.findings import Level
from conformance.plan import Cost, Limits, Plan, cost_of, make_plan, render
from conformance.scenarios import SCENARIOS
from conformance.scenarios.asks import counting
from conformance.scenarios.invalid import MOST, mistakes
from conformance.scenarios.scenario import Phase
from conformance.specs import Case, known_cases
from conformance.target import CAPABILITIES, Endpoint, Target, parse_url

KNOWN = known_cases()
BOTH = (Endpoint(CHAT), Endpoint(COMPLETIONS))


def case(
    id: str = "a.b",
    scenario: str = "stream",
    parameters: Mapping[str, Json] | None = None,
    api: tuple[str, ...] = (CHAT,),
    **changes: object,
) -> Case:
    plain = Case(
        id, "Title", Level.MUST, "wire", ("F01",), (), api, scenario, "stream", "do", id,
        parameters or {}, file="cases.yaml", line=3,
    )  # fmt: skip
    return replace(plain, **changes)  # type: ignore[arg-type]


def planned(*cases: Case, limits: Limits | None = None, spent: int = 0) -> Plan:
    return make_plan(cases, BOTH, limits or Limits(), Cost(spent))


def names(plan: Plan) -> list[str]:
    return [job.name for job in plan.jobs]


def test_equal_scenarios_of_many_cases_run_once() -> None:
    short = {"answer": "short"}
    plan = planned(case("a.a", parameters=short), case("a.b", parameters=short))
    assert names(plan) == ["chat-stream"]


def test_a_case_without_parameters_gets_every_variant_of_its_api() -> None:
    plan = planned(case(api=APIS))
    chat = {name for name in names(plan) if name.startswith("chat-")}
    completions = set(names(plan)) - chat
    assert "chat-stream-tools" in chat
    assert "completions-stream-echo" in completions
    assert "chat-stream-echo" not in chat
    assert "completions-stream-tools" not in completions
    assert len(set(names(plan))) == len(plan.jobs)


def test_what_the_endpoint_lacks_is_not_provoked() -> None:
    poor = replace(BOTH[0], unsupported={"tools": "400: no tools", "n": "400: no n"})
    plan = make_plan([case(), case("a.c", needs=("n",))], [poor], Limits(), Cost())
    assert "chat-stream" in names(plan)
    assert not {"chat-stream-tools", "chat-stream-n-2", "chat-stream-usage-n-3"} & set(names(plan))


def test_a_case_whose_need_is_lacking_provokes_nothing() -> None:
    poor = replace(BOTH[0], unsupported={"logprobs": "400: no"})
    cases = [case(needs=("logprobs",), parameters={"answer": "short"})]
    assert make_plan(cases, [poor], Limits(), Cost()).jobs == ()


def test_trials_are_the_most_that_any_case_asks_for() -> None:
    short = {"answer": "short"}
    plan = planned(case("a.a", parameters=short, trials=3), case("a.b", parameters=short))
    assert names(plan) == [f"chat-stream-{number}" for number in (1, 2, 3)]
    assert [job.trial for job in plan.jobs] == [0, 1, 2]
    fewer = planned(case("a.a", parameters=short, trials=3), limits=Limits(trials=1))
    assert len(fewer.jobs) == 1


def test_dossier_parameters_hold_what_the_case_wrote_and_the_defaults() -> None:
    plan = planned(case(scenario="pair", parameters={"answer": "natural"}))
    full = {"answer": "natural", "logprobs": None, "tools": False, "repeats": 2}
    assert plan.jobs[0].parameters == full


def test_phases_come_in_order_and_only_those_that_have_work() -> None:
    plan = planned(case("a.a", "invalid"), case("a.b", "stream"), case("a.c", "pair"))
    assert [phase for phase, _ in plan.phases()] == [Phase.QUIET, Phase.INVALID]
    assert plan.jobs[-1].scenario == "invalid"


def test_the_budget_keeps_the_bound_within_it_and_names_what_is_dropped() -> None:
    plan = planned(case(), case("a.c", "invalid"), limits=Limits(requests=5), spent=3)
    assert plan.cost.requests <= 5
    assert len(plan.jobs) == 2
    assert ("chat-invalid", "budget") in [(job.name, why) for job, why in plan.dropped]
    tokens = planned(case(), limits=Limits(tokens=400))
    assert 0 < tokens.cost.tokens <= 400


def test_polite_manners_send_no_malformed_request() -> None:
    plan = planned(case("a.a", "invalid"), case(), limits=Limits(manners="polite"))
    assert not [job for job in plan.jobs if job.scenario == "invalid"]
    assert [(job.name, why) for job, why in plan.dropped] == [("chat-invalid", "manners")]


@pytest.mark.parametrize(
    ("scenario", "parameters", "said"),
    [
        ("strem", {}, "provoke.scenario: expected one of discovery, "),
        ("stream", {"wariant": 1}, "provoke.with.wariant: expected a parameter of scenario stream"),
        ("stream", {"answer": "shrt"}, "provoke.with.answer: expected one of short, "),
        ("stream", {"answer": ["short"]}, "provoke.with.answer: expected one of short, "),
        ("stream", {"n": True}, "provoke.with.n: expected one of 1, 2, 3, 4"),
        ("stream", {"tools": 1}, "provoke.with.tools: expected one of false, true"),
        ("stream", {"logprobs": 9}, "provoke.with.logprobs: expected one of null, 0, "),
        ("keep-alive", {"answer": "short"}, "(it has none)"),
    ],
)
def test_a_case_that_no_scenario_can_serve_is_refused_at_its_line(
    scenario: str, parameters: dict[str, Json], said: str
) -> None:
    with pytest.raises(SpecError) as refused:
        planned(case(scenario=scenario, parameters=parameters))
    assert str(refused.value).startswith("cases.yaml:3: ")
    assert said in str(refused.value)


def test_quick_is_one_stream_and_one_plain_answer() -> None:
    plan = planned(case(), case("a.c", "invalid"), limits=Limits(quick=True))
    assert names(plan) == ["chat-pair-repeats-1", "completions-pair-repeats-1"]
    assert all(job.cost.requests == 2 for job in plan.jobs)


@pytest.mark.parametrize("api", APIS)
def test_every_check_of_an_api_fits_60_generations_and_40_refusals(api: str) -> None:
    endpoint = _answered(Endpoint(api))
    asked = cost_of(bound(Target(parse_url("http://127.0.0.1/v1")), api))
    cost = make_plan(KNOWN, [endpoint], Limits(), asked).cost
    assert len(mistakes(endpoint, stream=True)) * 2 <= MOST == 40
    assert (cost.refused, asked.generations) == (40, 5)
    assert cost.generations <= 60
    assert cost.requests <= 60 + 40 + 40  # and what is sent again without a refused member


def test_an_answer_that_several_want_is_paid_for_once() -> None:
    long = {"answer": "long"}
    cases = [case(scenario="stop-cut", parameters=long), case("a.c", "crowd")]
    first, second = (job.cost for job in planned(*cases).jobs)
    (alone,) = (job.cost for job in planned(cases[1]).jobs)
    assert alone.generations == second.generations + 1 == 17
    known = make_plan(cases, [_answered(BOTH[0])], Limits(), Cost())
    assert known.jobs[0].cost.generations == first.generations - 1


@pytest.mark.parametrize("lacking", CAPABILITIES)
@pytest.mark.parametrize("api", APIS)
def test_what_discovery_takes_away_never_makes_a_plan_dearer(api: str, lacking: str) -> None:
    whole = make_plan(KNOWN, [_answered(Endpoint(api))], Limits(), Cost())
    full = {job.name: job.cost for job in whole.jobs}
    poor = Endpoint(
        api,
        model="a-model-with-a-long-name",
        limit="max_completion_tokens",
        omit=frozenset({"seed", "temperature"}),
        unsupported={lacking: "no"},
    )
    jobs = make_plan(KNOWN, [_answered(poor)], Limits(), Cost()).jobs
    for scenario in SCENARIOS:
        # What one variant of stop-cut has to do more for want of a schema, the other does less.
        mine = sum((job.cost for job in jobs if job.scenario == scenario), Cost())
        whole_cost = sum((full[job.name] for job in jobs if job.scenario == scenario), Cost())
        assert mine.requests <= whole_cost.requests
        assert mine.generations <= whole_cost.generations
        assert mine.tokens <= whole_cost.tokens


def _answered(endpoint: Endpoint) -> Endpoint:
    """As discovery leaves it: with an answer that all scenarios share."""
    return replace(endpoint, answered=frozenset({counting(endpoint, "control").rendered()}))


def test_every_shipped_case_has_a_scenario_that_takes_its_parameters() -> None:
    plan = make_plan(KNOWN, BOTH, Limits(), Cost())
    assert {case.scenario for case in KNOWN} <= set(SCENARIOS)
    assert plan.dropped == ()


def test_the_printed_plan_ends_with_its_bound() -> None:
    plan = planned(case(), case("a.a", "invalid"), limits=Limits(manners="polite"), spent=2)
    printed = render(plan, Limits(manners="polite"))
    assert f"at most {plan.cost.requests} requests and {plan.cost.tokens} tokens" in printed
    assert "needs --manners" in printed
    assert all(job.name in printed for job in plan.jobs)
