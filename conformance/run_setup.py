"""From the options of `run` to what the run needs; nothing is sent and nothing waits here."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path

from conformance import baseline_file
from conformance.baseline import Baseline
from conformance.connect import Door
from conformance.dialects import OVERLAYS
from conformance.discovery import bound
from conformance.dossier import APIS
from conformance.errors import UsageError
from conformance.masking import Secret
from conformance.plan import Cost, Limits, Plan, cost_of, make_plan
from conformance.reach import api_key, door_beside, door_from_args
from conformance.run_options import NO_METRICS
from conformance.scenarios import SCENARIOS
from conformance.scenarios.dialect import CONTROL
from conformance.scenarios.scenario import default
from conformance.script import Clocks
from conformance.selection import Selection, check_clients, one_of, select
from conformance.specs import Case, Profile, known_cases, load_profile
from conformance.target import (
    Endpoint,
    Target,
    Url,
    is_keyed,
    load_target,
    parse_header,
    parse_url,
)

POLITE_TOKENS = 200_000
QUICK_GATES = ("wire", "shape")
FAMILY = "must"  # profiles with a member for each API, e.g. must-chat; the default


@dataclass(frozen=True, slots=True)
class Setup:
    """One run, ready to go. `fields` are header fields with secrets in them."""

    target: Target
    door: Door
    apis: tuple[str, ...]  # empty: whatever answers
    known: tuple[Case, ...]
    selection: Selection
    profile: str | None
    clients: tuple[str, ...]
    limits: Limits
    clocks: Clocks
    seed: int
    concurrency: int
    quick: bool = False
    fields: tuple[tuple[str, str], ...] = ()
    secrets: tuple[Secret, ...] = ()
    captures: Path | None = None
    metrics: Url | None = None  # the page to scrape; None: beside the API
    scrapes: bool = True
    strict: bool = False
    min_conclusive: float = 0.0
    baseline: Baseline | None = None
    today: date | None = None
    verbose: bool = False

    def door_to(self, url: Url) -> Door:
        """The door of another server, e.g. of its metrics."""
        return door_beside(self.door, url)

    @property
    def keyed(self) -> bool:
        """Do the requests carry a credential?"""
        return is_keyed(self.target, self.fields)

    def profiles(self, apis: Sequence[str]) -> dict[str, Profile | None]:
        """The profile of each API: the one asked for, else `must-<api>` unless ids are chosen."""
        if self.profile is None and self.selection.select:
            return dict.fromkeys(apis)
        name = self.profile or FAMILY
        return {api: load_profile(_member(name, api)) for api in apis}

    def cases(self, apis: Sequence[str]) -> tuple[Case, ...]:
        """The cases to judge, each with the APIs of whose profile it is part."""
        chosen: dict[str, tuple[str, ...]] = {}
        for api, profile in self.profiles(apis).items():
            for case in select(self.known, self.selection, profile):
                if api in case.api and (not self.quick or _is_quick(case)):
                    chosen[case.id] = (*chosen.get(case.id, ()), api)
        if not chosen:
            raise UsageError(f"no check is left to run on {', '.join(apis)}")
        return tuple(replace(c, api=chosen[c.id]) for c in self.known if c.id in chosen)

    def plan(self, endpoints: Sequence[Endpoint], discovery: Cost) -> Plan:
        """The plan on these endpoints."""
        cases = self.cases([endpoint.api for endpoint in endpoints])
        return make_plan(cases, endpoints, self.limits, discovery)

    def widest_plan(self) -> Plan:
        """What can be sent at most, before anything is known about the endpoint."""
        endpoints = []
        cost = Cost(len(self.target.url.bases()))
        for api in self.apis or APIS:
            asks = bound(self.target, api, quick=self.quick)
            cost += cost_of(asks)
            answered = frozenset(ask.rendered() for ask in asks if ask.role == CONTROL)
            off = _declared_off(self.target)
            endpoint = Endpoint(api, extra=self.target.extra, unsupported=off, keyed=self.keyed)
            endpoints.append(replace(endpoint, answered=answered))
        return self.plan(endpoints, cost)


def setup_from_args(args: argparse.Namespace, environment: Mapping[str, str]) -> Setup:
    """Raises UsageError and SpecError for whatever cannot be."""
    target = _target(args)
    key = api_key(args, target, environment)
    known = _known(args)
    loopback = target.url.is_loopback
    return Setup(
        target=target,
        door=door_from_args(args, target.url, environment),
        apis=_apis(args.api) or _profile_apis(args.profile),
        known=known,
        selection=_selection(args),
        profile=args.profile,
        clients=args.clients,
        limits=_limits(args, target, loopback),
        clocks=Clocks(first_byte=args.timeout, progress=args.timeout, total=5 * args.timeout),
        seed=args.seed,
        concurrency=args.concurrency or target.concurrency or (4 if loopback else 2),
        quick=args.quick,
        fields=() if key is None else (("Authorization", f"Bearer {key[1]}"),),
        secrets=() if key is None else (Secret(f"env:{key[0]}", key[1].encode()),),
        captures=Path(args.captures) if args.captures else None,
        metrics=_metrics(args.metrics or target.metrics),
        scrapes=(args.metrics or target.metrics) != NO_METRICS,
        verbose=args.verbose,
        strict=args.strict,
        min_conclusive=args.min_conclusive,
        baseline=baseline_file.from_option(args.baseline, known),
        today=baseline_file.today(),
    )


def _known(args: argparse.Namespace) -> tuple[Case, ...]:
    known = known_cases([Path(name) for name in args.specs])
    check_clients(args.clients, known)
    return known


def _target(args: argparse.Namespace) -> Target:
    if args.target is not None:
        target = load_target(Path(args.target), args.url)
    elif args.url is not None:
        target = Target(parse_url(args.url))
    else:
        raise UsageError("give the URL of an endpoint, or --target FILE")
    if args.dialect is not None:
        one_of("--dialect", args.dialect, sorted(OVERLAYS))
    headers = (*target.headers, *(parse_header(text) for text in args.header))
    return replace(
        target,
        headers=headers,
        seed=args.seed,
        model=args.model or target.model,
        dialect=args.dialect or target.dialect,
        api_key_env=args.api_key_env or target.api_key_env,
    )


def _metrics(text: str | None) -> Url | None:
    return None if text in (None, NO_METRICS) else parse_url(text)


def _apis(names: Sequence[str]) -> tuple[str, ...]:
    for name in names:
        one_of("--api", name, APIS)
    return tuple(api for api in APIS if api in names)


def _profile_apis(name: str | None) -> tuple[str, ...]:
    """A profile belongs to one API; asking for it asks for that API. A family has one for each."""
    return () if name is None or name == FAMILY else (load_profile(name).api,)


def _member(name: str, api: str) -> str:
    return f"{name}-{api}" if name == FAMILY else name


def _selection(args: argparse.Namespace) -> Selection:
    gates = args.gate or (QUICK_GATES if args.quick else ())
    return Selection(tuple(args.select), tuple(args.skip), tuple(gates))


def _limits(args: argparse.Namespace, target: Target, loopback: bool) -> Limits:
    return Limits(
        manners=args.manners or ("hostile" if loopback else "polite"),
        requests=args.max_requests or target.max_requests,
        tokens=args.max_tokens_total or target.max_tokens or (None if loopback else POLITE_TOKENS),
        trials=args.trials,
        quick=args.quick,
    )


def _is_quick(case: Case) -> bool:
    """Can one stream and one plain answer decide this?"""
    return (
        case.on in ("stream", "plain", "answer", "any") and not case.needs and not _asks_more(case)
    )


def _asks_more(case: Case) -> bool:
    scenario = SCENARIOS.get(case.scenario)
    return scenario is None or any(
        value != default(scenario.parameters[name]) for name, value in case.parameters.items()
    )


def _declared_off(target: Target) -> dict[str, str]:
    return {name: "declared off" for name, has in target.capabilities.items() if not has}
