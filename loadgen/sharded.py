"""One run by several workers: what `run_command.execute` does in one process.

This process looks at the endpoint before the load and after it, and at the server's metrics
meanwhile; the load is the workers'.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, ExitStack
from dataclasses import replace
from functools import partial

import trio

from conformance.capture import Json
from conformance.recorder import Recorder
from loadgen.counting import spelled, told
from loadgen.crew import Crew, Member, apart, tail, worst
from loadgen.frames import Plan
from loadgen.hands import Hand
from loadgen.interrupting import Shelter, sheltered
from loadgen.keeping import folder
from loadgen.load import Closed, Open
from loadgen.looking import tally
from loadgen.meanwhile import meanwhile
from loadgen.play import Playing
from loadgen.preflight import Endpoint, preflight
from loadgen.processes import processes
from loadgen.recovery import check_of
from loadgen.result import Ran, Target
from loadgen.scraping import scraper_of
from loadgen.selftest_record import quoted
from loadgen.setup import CONNECT, Setup
from loadgen.shares import limits_of, scheduled, shares
from loadgen.solo import alone
from loadgen.summary import Window
from loadgen.team import SILENT, Seen, Team, team
from loadgen.workload import Workload


async def execute(
    setup: Setup,
    beside: Callable[[Playing], Awaitable[None]] | None = None,
    shelter: Shelter | None = None,
    *,
    silent: float = SILENT,
) -> Ran:
    """As `run_command.execute`. `silent`: seconds after which a worker that says nothing is lost.

    Raises TargetError where not every worker could be started.
    """
    if setup.captures:
        folder(setup.captures)
    recorder = Recorder(setup.door, secrets=setup.secrets)
    endpoint = await preflight(recorder, setup.target, setup.api, setup.fields, CONNECT)
    workload = await spelled(setup, recorder, endpoint, setup.for_model(endpoint.model))
    with ExitStack() as beginning:
        async with hired(setup) as hands, team(hands, silent) as workers:
            plans = plans_of(replace(setup, workload=workload), endpoint, len(hands))
            await workers.brief(plans)
            check = await check_of(setup, recorder, endpoint, workload)
            scraper = await scraper_of(setup, recorder, workers.now)
            signals = beginning.enter_context(sheltered(shelter))
            await meanwhile(
                workers.play, workers, setup.load, workload.stride, scraper, beside, signals
            )
            served = None if scraper is None else await signals.unless_interrupted(scraper.finish)
            complete = workers.complete
            recovery = None
            if check is not None and complete:
                recovery = await signals.unless_interrupted(check.recovered)
            await _told(workers, signals)
        seen = workers.seen
        looks = [look for each in seen for look in each.looks]
        rows, found = tally(looks)
        found.unjudged = sum(each.done.unjudged for each in seen if each.done is not None)
        solo = None
        if setup.solo is not None and complete:
            again = partial(setup.exchange, endpoint)
            solo = await signals.unless_interrupted(
                partial(alone, recorder, again, workload, looks, setup.solo)
            )
        return Ran(
            target=Target(str(setup.target.url), setup.api, endpoint.model),
            load={**setup.described, **told(workload), **described(seen)},
            rows=rows,
            tally=found,
            gates=setup.gates,
            window=Window(setup.warmup, max((_seconds(each) for each in seen), default=0.0)),
            lags=worst([each.over.lags for each in seen if each.over is not None]),
            complete=complete,
            steady=setup.steady,
            recovery=recovery,
            solo=solo,
            served=served,
            selftest=quoted(),
            crew=crew_of(seen, plans, workload),
        )


def hired(setup: Setup) -> AbstractAsyncContextManager[list[Hand]]:
    """The workers that the setup asks for."""
    if setup.ray is None:
        return processes(setup.workers or 1)
    from loadgen.actors import actors

    return actors(setup.ray, setup.workers)


def plans_of(setup: Setup, endpoint: Endpoint, workers: int) -> list[Plan]:
    """One for each worker, without what only the parent needs. Raises UsageError."""
    bare = replace(
        setup,
        door=replace(setup.door, tls=None),
        described={},
        slos=(),
        metrics_target=None,
        metrics_door=None,
        captures=os.path.abspath(setup.captures) if setup.captures else None,
    )
    stride = setup.workload.stride
    return [
        Plan(
            number,
            workers,
            replace(bare, load=share, limits=limits_of(setup.limits, number, workers, stride)),
            endpoint,
            setup.door.tls is not None,
        )
        for number, share in enumerate(shares(setup.load, workers))
    ]


async def _told(workers: Team, signals: Shelter) -> None:
    """Somebody who cannot wait ends the judging, not the measuring."""
    async with trio.open_nursery() as nursery:
        await nursery.start(signals.listen, workers.hurry)
        await workers.tell()
        nursery.cancel_scope.cancel()


def _seconds(seen: Seen) -> float:
    return 0.0 if seen.over is None else seen.over.seconds


def described(seen: Sequence[Seen]) -> dict[str, Json]:
    """What the workers say of their recorders: what all say, once; lists and sums of the rest."""
    said = [each.done.described for each in seen if each.done is not None]
    names = dict.fromkeys(name for each in said for name in each)
    return {name: _merged([each[name] for each in said if name in each]) for name in names}


def _merged(values: Sequence[Json]) -> Json:
    first = values[0]
    if isinstance(first, dict):
        return list(values)
    if isinstance(first, list):
        return [each for value in values if isinstance(value, list) for each in value]
    if isinstance(first, int) and not isinstance(first, bool):
        return sum(value for value in values if isinstance(value, int))
    different = dict.fromkeys(map(str, values))
    return first if len(different) == 1 else ", ".join(different)


def crew_of(seen: Sequence[Seen], plans: Sequence[Plan], workload: Workload) -> Crew:
    """Who played, and what is missing."""
    members = tuple(
        _member(each, plan.setup.load, workload) for each, plan in zip(seen, plans, strict=True)
    )
    return Crew(members, apart([each.span for each in seen if each.span is not None]))


def _member(seen: Seen, load: Open | Closed, workload: Workload) -> Member:
    rows = [look.row for look in seen.looks]
    share, sent = scheduled(load), sum(row.was_sent for row in rows)
    missing = 0
    if seen.lost is not None:
        sent = max(sent, seen.snapshot.sent)
        told = len({workload.unit(row.index) for row in rows})
        missing = max(0, (sent if share is None else share) - told)
    late = [row.lateness for row in rows if row.lateness is not None]
    return Member(
        number=seen.number,
        place=seen.place or "not started",
        scheduled=share,
        sent=sent,
        missing=missing,
        lost=seen.lost,
        lag=tail(seen.over.lags) if seen.over else None,
        late=tail(late),
    )
