"""From what a run recorded to its report. Pure: two reports of one record are equal."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from conformance import http1
from conformance.capture import Capture, How, Json
from conformance.checks.mistakes import BUSY
from conformance.dossier import APIS, Dossier
from conformance.findings import Finding, Result, Verdict
from conformance.judge import Policy, judge
from conformance.masking import CREDENTIAL_FIELDS
from conformance.plan import WHY_NOT, Cost, Plan
from conformance.reach import shown_proxy
from conformance.reading import read
from conformance.report.model import Gating, Report, make_report
from conformance.run_setup import Setup
from conformance.saying import said
from conformance.specs import Case, Profile
from conformance.target import Endpoint

# Roles whose requests may rightly be refused.
MAY_BE_REFUSED = ("probe", "refused-stream", "refused-plain", "five")
NO_EXCHANGE_OF_THE_API = ("models",)
KEY = "key"  # what a check needs that tries a wrong one
NO_ANSWER = "http.no-answer"  # the check that a death of the target is a failure of


@dataclass(slots=True)
class Recorded:
    """What a run has gathered so far; `complete` only once nothing is left to do."""

    endpoints: tuple[Endpoint, ...] = ()
    dossiers: list[Dossier] = field(default_factory=list)
    plan: Plan = field(default_factory=Plan)
    notes: tuple[str, ...] = ()
    sent: Cost = field(default_factory=Cost)
    complete: bool = False


def report_from(setup: Setup, recorded: Recorded) -> Report:
    """Judge everything; interrupted before discovery ended, everything selected is not-seen."""
    apis = [endpoint.api for endpoint in recorded.endpoints] or list(setup.apis or APIS)
    cases = setup.cases(apis)
    profiles = [each for each in setup.profiles(apis).values() if each is not None]
    dossiers = in_order(recorded)
    tested = is_tested(dossiers)
    return make_report(
        results_for(setup, cases, recorded, dossiers),
        Gating(
            setup.strict,
            setup.min_conclusive,
            _required(setup, profiles),
            setup.baseline,
            setup.today,
        ),
        target=_target(setup, recorded),
        profile=",".join(sorted({profile.name for profile in profiles})) or None,
        seed=setup.seed,
        complete=recorded.complete,
        tested=tested,
        instead="" if tested else _instead(dossiers),
        needs={case.id: case.needs for case in cases},
    )


def _required(setup: Setup, profiles: Sequence[Profile]) -> tuple[str, ...]:
    """What the profiles demand and the target file does not declare off."""
    off = {name for name, has in setup.target.capabilities.items() if not has}
    return tuple(sorted({name for each in profiles for name in each.requires} - off))


def in_order(recorded: Recorded) -> list[Dossier]:
    """Discovery first, then as planned: what ran at once ended in any order."""
    order = {job.name: index for index, job in enumerate(recorded.plan.jobs)}
    return sorted(recorded.dossiers, key=lambda each: (order.get(each.name, -1), each.name))


def results_for(
    setup: Setup, cases: Sequence[Case], recorded: Recorded, dossiers: Sequence[Dossier]
) -> list[Result]:
    """One result for every case and API, those included that nothing was recorded for."""
    policy = Policy(setup.clients, _unsupported(setup, recorded))
    judged = judge(dossiers, cases, policy, setup.known)
    results = {(each.id, each.api): each for each in judged}
    refused, broken = _refused(dossiers), _broken(dossiers)
    out: list[Result] = []
    for case in cases:
        for api in case.api:
            result = results.get((case.id, api)) or _nothing(case, api)
            result = replace(result, reason=_why(case, api, result, recorded, refused))
            if result.verdict is Verdict.INCONCLUSIVE and (api, case.scenario) in broken:
                why = broken[api, case.scenario]
                result = replace(result, verdict=Verdict.HARNESS_ERROR, reason=why)
            out.append(result)
    died = finding_of_death(dossiers)
    return [_with_death(each, died) if each.id == NO_ANSWER else each for each in out]


def finding_of_death(dossiers: Sequence[Dossier]) -> Finding | None:
    """The target answered, then refused every connection to the end: whose scenario was it?"""
    ends = sorted(
        ((capture.end.at or 0.0, dossier.name, capture) for dossier in dossiers
         for _, capture in dossier.own()),
        key=lambda each: each[:2],
    )  # fmt: skip
    lived = [index for index, (_, _, capture) in enumerate(ends) if not _is_refused(capture)]
    if not lived or lived[-1] == len(ends) - 1:
        return None
    _, name, _ = ends[lived[-1]]
    count, at = len(ends) - 1 - lived[-1], ends[lived[-1]][0]
    said = f"after {name} ({at:.1f} s) the target refused all of {count} connections"
    return Finding("T01", said, dossier=name)


def _with_death(result: Result, died: Finding | None) -> Result:
    if died is None or not died.dossier.startswith(f"{result.api}-"):
        return result
    return replace(
        result,
        verdict=Verdict.FAIL,
        reason="the target died",
        findings=(*result.findings, died),
    )


def _nothing(case: Case, api: str) -> Result:
    return Result(
        case.id, case.title, case.level, case.gate, api, case.rules,
        Verdict.INCONCLUSIVE, "not-seen",
    )  # fmt: skip


def _broken(dossiers: Sequence[Dossier]) -> Mapping[tuple[str, str], str]:
    """(API, scenario) → how it broke: a defect of ours, and no silence of the target."""
    said = ((each, each.picked.get("abstain")) for each in dossiers)
    return {
        (each.api or "", each.scenario): str(abstain["detail"])
        for each, abstain in said
        if isinstance(abstain, dict) and abstain["reason"] == Verdict.HARNESS_ERROR.value
    }


def _refused(dossiers: Sequence[Dossier]) -> Mapping[tuple[str, str], str]:
    """(API, role) → what came where every exchange in that role got no answer to judge."""
    takes: dict[tuple[str, str], list[Capture]] = {}
    for dossier in dossiers:
        for role, capture in _exchanges((dossier,)):
            takes.setdefault((dossier.api or "", role), []).append(capture)
    return {
        key: said(read(captures[0]))
        for key, captures in takes.items()
        if not any(_is_answer(capture, key[1]) for capture in captures)
    }


def _why(
    case: Case, api: str, result: Result, recorded: Recorded, refused: Mapping[tuple[str, str], str]
) -> str | None:
    """Nothing was seen: because the scenario was not run, the network failed, or all said no?"""
    if result.verdict is not Verdict.INCONCLUSIVE or result.reason != "not-seen":
        return result.reason
    for job, why in recorded.plan.dropped:
        if (job.api, job.scenario) == (api, case.scenario):
            code, words = WHY_NOT[why]
            return f"{code}: {job.name} {words}"
    for dossier in recorded.dossiers:
        abstain = dossier.picked.get("abstain")
        if (dossier.api, dossier.scenario) == (api, case.scenario) and isinstance(abstain, dict):
            return f"{abstain['reason']}: {abstain['detail']}"
    if (api, case.on) in refused:
        return f"not-seen: every {case.on} {refused[api, case.on]}"
    return result.reason


def _unsupported(setup: Setup, recorded: Recorded) -> Mapping[tuple[str, str], str]:
    keyless = {} if setup.keyed else {KEY: "none was given"}
    return {
        (endpoint.api, name): said
        for endpoint in recorded.endpoints
        for name, said in {**endpoint.unsupported, **keyless}.items()
    }


def _target(setup: Setup, recorded: Recorded) -> dict[str, Json]:
    dropped: dict[str, Json] = {job.name: why for job, why in recorded.plan.dropped}
    unsupported: dict[str, Json] = {
        endpoint.api: dict(endpoint.unsupported) for endpoint in recorded.endpoints
    }
    notes: list[Json] = list(recorded.notes)
    apis: list[Json] = [endpoint.api for endpoint in recorded.endpoints]
    return {
        "url": str(setup.target.url),
        "model": recorded.endpoints[0].model if recorded.endpoints else setup.target.model,
        "apis": apis,
        "dialect": setup.target.dialect,
        "unsupported": unsupported,
        "not_run": dropped,
        "notes": notes,
        "requests": recorded.sent.requests,
    }


def judged(recorded: Recorded) -> str:
    """What was judged, for the console's last line."""
    apis = ", ".join(endpoint.api for endpoint in recorded.endpoints)
    return f"{recorded.sent.requests} requests on {apis}"


def is_tested(dossiers: Sequence[Dossier]) -> bool:
    """Did at least half of those that we waited for get a 2xx, or an expected 4xx?"""
    answers = [_is_answer(capture, role) for role, capture in _exchanges(dossiers)]
    return sum(answers) * 2 >= len(answers) > 0


def _instead(dossiers: Sequence[Dossier]) -> str:
    """What most of the exchanges without an answer brought, e.g. `answered 503: overloaded`."""
    others = (capture for role, capture in _exchanges(dossiers) if not _is_answer(capture, role))
    most = Counter(said(read(capture)) for capture in others).most_common(1)
    return most[0][0] if most else ""


def _exchanges(dossiers: Sequence[Dossier]) -> Iterator[tuple[str, Capture]]:
    for dossier in dossiers:
        for role, capture in dossier.own():
            if role not in NO_EXCHANGE_OF_THE_API and capture.end.how is not How.LEFT:
                yield role, capture


def _is_answer(capture: Capture, role: str) -> bool:
    reader = http1.Reader()
    reader.feed(capture.received)
    if reader.head is None:
        return False
    status = reader.head.status
    refused = 400 <= status < 500 and status not in BUSY
    return 200 <= status < 300 or (role in MAY_BE_REFUSED and refused)


def transport_failure(dossier: Dossier) -> str | None:
    """How the network failed in one of the exchanges, before a byte of the answer; else None.

    On a connection that carried an answer before, silence is the server's doing and a finding.
    """
    for role, capture in sorted(dossier.own(), key=lambda each: each[0]):
        if not capture.ordinal and (why := _failure(capture)) is not None:
            return f"{role}: {why}"
    return None


def is_refused(dossier: Dossier) -> bool:
    """Did none of its exchanges even connect?"""
    captures = [capture for _, capture in dossier.own()]
    return bool(captures) and all(_is_refused(capture) for capture in captures)


def _is_refused(capture: Capture) -> bool:
    return capture.end.how is How.NOT_CONNECTED


def _failure(capture: Capture) -> str | None:
    end = capture.end
    if end.how in (How.NOT_CONNECTED, How.TLS_FAILED) or end.detail == "connect":
        return f"{end.how.value} ({end.detail})"
    if end.how in (How.RESET, How.CLOSED, How.TLS_CUT) and not capture.received:
        return f"{end.how.value} without an answer"
    return None


_WORDS = (
    "target", "model", "dialect", "profile", "trials", "concurrency", "manners", "proxy",
    "connect_to", "cacert", "cert", "key", "baseline", "max_requests", "max_tokens_total",
    "api_key_env",
)  # fmt: skip


def command_line(args: argparse.Namespace) -> tuple[str, ...]:
    """The command that runs this again; selections and reports are added by who prints it."""
    words = ["conformance", "run", *([args.url] if args.url else [])]
    for name in _WORDS:
        value = getattr(args, name)
        shown = shown_proxy(value) if name == "proxy" and value else str(value)
        words += [] if value is None else [f"--{name.replace('_', '-')}", shown]
    words += ["--api", ",".join(args.api)] if args.api else []
    words += ["--clients", ",".join(args.clients)] if args.clients else []
    words += [word for name in args.specs for word in ("--specs", name)]
    words += [word for text in args.header for word in ("--header", _shown_header(text))]
    words += [f"--{name}" for name in ("insecure", "strict") if getattr(args, name)]
    return tuple(words)


def _shown_header(text: str) -> str:
    name, _, _ = text.partition(":")
    return f"{name}:…" if name.strip().lower() in CREDENTIAL_FIELDS else text
