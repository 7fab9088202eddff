"""The plan: which scenarios run for the chosen cases, in which order, and what they cost at most.

Pure. Equal (scenario, parameters) stand once however many cases want them. The cost is computed
from the very requests that will be sent, so it is a bound and not an estimate.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby

from conformance.capture import Json
from conformance.errors import SpecError
from conformance.scenarios import SCENARIOS
from conformance.scenarios.asks import Ask
from conformance.scenarios.scenario import MANNERS, Phase, Scenario, default
from conformance.specs import Case
from conformance.target import Endpoint


@dataclass(frozen=True, slots=True)
class Cost:
    """Requests and tokens (prompt and completion), at most.

    Of the requests, `generations` may be answered by a 2xx and `refused` ought to be refused; the
    others are asked again with a member less because they were refused.
    """

    requests: int = 0
    tokens: int = 0
    generations: int = 0
    refused: int = 0

    def __add__(self, other: Cost) -> Cost:
        return Cost(
            self.requests + other.requests,
            self.tokens + other.tokens,
            self.generations + other.generations,
            self.refused + other.refused,
        )

    def within(self, limits: Limits) -> bool:
        """Do the limits allow this much?"""
        too_many = limits.requests is not None and self.requests > limits.requests
        return not too_many and (limits.tokens is None or self.tokens <= limits.tokens)


@dataclass(frozen=True, slots=True)
class Limits:
    """What the user allows. `manners`: a member of MANNERS. `trials` None: as each case says.

    `quick`: one stream and one plain answer for each API, whatever the cases would like.
    """

    manners: str = "hostile"
    requests: int | None = None
    tokens: int | None = None
    trials: int | None = None
    quick: bool = False


@dataclass(frozen=True, slots=True)
class Job:
    """One run of a scenario. `name` is unique within the plan and becomes the dossier's."""

    api: str
    scenario: str
    parameters: Mapping[str, Json]
    trial: int
    name: str
    cost: Cost
    once: Cost = Cost()  # more, if it is the first of its scenario on its API
    shared: tuple[Ask, ...] = ()  # sent as well, by the first job of its API that wants them
    offered: frozenset[bytes] = frozenset()  # bodies whose answers later jobs may use

    @property
    def phase(self) -> Phase:
        return SCENARIOS[self.scenario].phase

    @property
    def alone(self) -> bool:
        return SCENARIOS[self.scenario].alone


@dataclass(frozen=True, slots=True)
class Plan:
    """`jobs` in the order of their phases; `dropped`: (job, "budget" or "manners")."""

    discovery: Cost = field(default_factory=Cost)
    jobs: tuple[Job, ...] = ()
    dropped: tuple[tuple[Job, str], ...] = ()

    @property
    def cost(self) -> Cost:
        """The upper bound of the whole run. A scenario's second attempt comes on top."""
        return sum((job.cost for job in self.jobs), self.discovery)

    def phases(self) -> Iterator[tuple[Phase, tuple[Job, ...]]]:
        """The jobs of each phase that has any."""
        for phase, jobs in groupby(self.jobs, key=lambda job: job.phase):
            yield phase, tuple(jobs)


def make_plan(
    cases: Iterable[Case], endpoints: Sequence[Endpoint], limits: Limits, discovery: Cost
) -> Plan:
    """The plan for these cases on these endpoints.

    Before discovery the endpoints are those that have everything: then the cost bounds every plan
    that discovery can lead to. Raises SpecError for a case that no scenario can serve.
    """
    cases = tuple(cases)
    for case in cases:
        check_case(case)
    wanted = _quick(endpoints) if limits.quick else _wanted(cases, endpoints, limits)
    jobs = sorted(wanted, key=lambda job: job.phase)  # stable: cases' scenarios in their order
    kept: list[Job] = []
    dropped: list[tuple[Job, str]] = []
    total = discovery
    known = {endpoint.api: set(endpoint.answered) for endpoint in endpoints}
    for job in jobs:
        if not any((job.api, job.scenario) == (each.api, each.scenario) for each in kept):
            job = replace(job, cost=job.cost + job.once)
        wanted_too = [
            replace(ask, attempt=ask.rendered() in known[job.api]) for ask in job.shared
        ]  # what was answered is sent again only if it was refused
        job = replace(job, cost=job.cost + cost_of(wanted_too))
        reason = _objection(job, total, limits)
        if reason is None:
            kept.append(job)
            known[job.api] |= job.offered | {ask.rendered() for ask in wanted_too}
            total += job.cost
        else:
            dropped.append((job, reason))
    return Plan(discovery, tuple(kept), tuple(dropped))


def _objection(job: Job, total: Cost, limits: Limits) -> str | None:
    if MANNERS.index(SCENARIOS[job.scenario].manners) > MANNERS.index(limits.manners):
        return "manners"
    return None if (total + job.cost).within(limits) else "budget"


def _quick(endpoints: Sequence[Endpoint]) -> list[Job]:
    pair = SCENARIOS["pair"]
    (parameters,) = pair.variants({"repeats": 1})
    return [_job(endpoint, pair, parameters, 0, 1) for endpoint in endpoints]


def _wanted(cases: Sequence[Case], endpoints: Sequence[Endpoint], limits: Limits) -> list[Job]:
    """Scenario by scenario, so that a small budget buys something of each API."""
    jobs: list[Job] = []
    for scenario in SCENARIOS.values():
        for endpoint in endpoints if scenario.phase is not Phase.DISCOVERY else ():
            users = [c for c in cases if c.scenario == scenario.name and endpoint.api in c.api]
            for parameters, most in _trials(users, scenario, endpoint):
                number = limits.trials or most
                jobs += (_job(endpoint, scenario, parameters, t, number) for t in range(number))
    return jobs


def _trials(
    cases: Sequence[Case], scenario: Scenario, endpoint: Endpoint
) -> Iterator[tuple[dict[str, Json], int]]:
    """Parameter sets that cases want, each with its most trials; the scenario's own sets first."""
    most: dict[tuple[tuple[str, Json], ...], int] = {}
    for parameters in scenario.variants({}):
        most[tuple(parameters.items())] = 0
    for case in cases:
        for parameters in _parameters(case, scenario, endpoint):
            key = tuple(parameters.items())
            most[key] = max(most.get(key, 0), case.trials)
    return ((dict(key), number) for key, number in most.items() if number)


def check_case(case: Case) -> None:
    """Raise SpecError unless a scenario of that name takes the case's parameters."""
    scenario = SCENARIOS.get(case.scenario)
    if scenario is None:
        names = ", ".join(SCENARIOS)
        raise SpecError(case.file, case.line, "provoke.scenario", f"expected one of {names}")
    wrong = scenario.problem(case.parameters)
    if wrong is not None:
        raise SpecError(case.file, case.line, f"provoke.with.{wrong[0]}", wrong[1])


def _parameters(case: Case, scenario: Scenario, endpoint: Endpoint) -> Iterator[dict[str, Json]]:
    if not all(endpoint.has(need) for need in case.needs):
        return
    for parameters in scenario.variants(case.parameters):
        possible = all(endpoint.has(need) for need in scenario.needs(parameters))
        if possible and scenario.fits(endpoint.api, parameters):
            yield parameters


def _job(
    endpoint: Endpoint, scenario: Scenario, parameters: dict[str, Json], trial: int, trials: int
) -> Job:
    asks = scenario.asks(endpoint, parameters)
    offered = frozenset(ask.rendered() for ask in asks if scenario.offers)
    words = [endpoint.api, scenario.name, *_telling(scenario, parameters)]
    if trials > 1:
        words.append(str(trial + 1))
    return Job(
        endpoint.api,
        scenario.name,
        parameters,
        trial,
        "-".join(words),
        cost_of(asks),
        cost_of(scenario.once(endpoint)),
        scenario.shares(endpoint, parameters),
        offered,
    )


def needs_of(job: Job) -> tuple[str, ...]:
    """Capabilities that its parameters cannot do without."""
    return SCENARIOS[job.scenario].needs(job.parameters)


def cost_of(asks: Sequence[Ask]) -> Cost:
    """The most that these can cost."""
    sent = [ask for ask in asks if not ask.spare]
    refused = sum(not ask.generates for ask in sent)
    attempts = sum(ask.attempt for ask in sent)
    tokens = sum(ask.tokens for ask in sent)
    return Cost(len(sent), tokens, len(sent) - refused - attempts, refused)


def _telling(scenario: Scenario, parameters: Mapping[str, Json]) -> Iterator[str]:
    """What differs from the defaults, in words."""
    for name, value in parameters.items():
        if value != default(scenario.parameters[name]):
            yield name if value is True else _word(name, value)


def _word(name: str, value: Json) -> str:
    return f"{name}-{value}" if isinstance(value, int) else str(value).replace("_", "-")


def render(plan: Plan, limits: Limits) -> str:
    """The plan as `--list-requests` prints it: a line for each job, then the bound."""
    lines = [_line("discovery", "", plan.discovery)]
    for phase, jobs in plan.phases():
        lines += [_line(phase.name.lower(), job.name, job.cost) for job in jobs]
    lines += [f"{'not run':<10} {job.name:<44} {WHY_NOT[why][1]}" for job, why in plan.dropped]
    cost = plan.cost
    lines.append(f"at most {cost.requests} requests and {cost.tokens} tokens; {limits.manners}")
    again = cost.requests - cost.generations - cost.refused
    lines.append(
        f"of these {cost.generations} may be answered, {cost.refused} ought to be refused,"
        f" {again} are sent only where a member was refused"
    )
    lines.append("a scenario whose connection fails is attempted once more")
    if any(SCENARIOS[job.scenario].watches for job in plan.jobs):
        lines.append("meanwhile the server's metrics, if it shows any, are read ten times a second")
    return "\n".join(lines) + "\n"


# Why a job is not run → (reason code of the cases that wanted it, words for people).
WHY_NOT = {
    "budget": ("budget", "is over the budget (--max-requests, --max-tokens-total)"),
    "manners": ("budget", "needs --manners hostile or heavy"),
    "dead": ("net", "was not sent: the target refused the connections before it"),
}


def _line(phase: str, name: str, cost: Cost) -> str:
    return f"{phase:<10} {name:<44} {cost.requests:>4} requests {cost.tokens:>7} tokens"
