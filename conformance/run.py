"""`conformance run`: discovery, the plan phase by phase, then one judgement of what was recorded.

report = check("http://127.0.0.1:8000/v1", quick=True)     # under asyncio or pytest as well
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import trio

from conformance import run_options
from conformance.capture import Capture, Json
from conformance.discovery import Discovery, Found
from conformance.dossier import Dossier
from conformance.errors import RecordError, StreamproofError, UsageError
from conformance.findings import Verdict
from conformance.judge import where
from conformance.metering import meter_of, path_beside, same_server
from conformance.options import OneLineParser
from conformance.plan import Cost, Job, Plan, needs_of, render
from conformance.recorder import Recorder
from conformance.report import console, story
from conformance.report.escape import terminal
from conformance.report.model import Report
from conformance.report.output import Console, Outputs
from conformance.run_report import (
    Recorded,
    command_line,
    is_refused,
    judged,
    report_from,
    transport_failure,
)
from conformance.run_setup import Setup, setup_from_args
from conformance.scenarios import SCENARIOS
from conformance.scenarios.driver import Driver
from conformance.scenarios.meter import Meter
from conformance.target import Target

DEAD_AFTER = 2  # scenarios whose every connection was refused, second attempts included
PAUSE = 0.5  # seconds before a second attempt
Log = Callable[[str], None]


def main(args: argparse.Namespace) -> int:
    """The command. Returns the exit code; raises StreamproofError for what cannot run."""
    setup = setup_from_args(args, os.environ)
    screen = Console()
    if args.list_requests:
        screen.write(render(setup.widest_plan(), setup.limits))
        return 0
    wanted = {"json": args.json, "junit": args.junit, "markdown": args.markdown}
    _prepare(setup)
    with Outputs(wanted, screen) as outputs:
        recorded = Recorded()
        trio.run(_until_interrupted, setup, recorded, _stderr)
        report = report_from(setup, recorded)
        context = story.Context(
            {case.id: case for case in setup.known}, command_line(args), args.captures
        )
        outputs.add(report, context)
        if not outputs.on_stdout:
            screen.write(console.render(report, context, judged(recorded)))
    return report.exit


def check(url: str, **options: object) -> Report:
    """Check an endpoint and return the report; options are the flags of `run`, as keywords.

    `api`, `gate` and `clients` take tuples, repeatable flags lists. Runs trio in a thread of its
    own, so the caller may have any event loop or none. Raises StreamproofError, and TypeError for
    an unknown option.
    """
    setup = setup_from_args(_namespace(url, options), os.environ)
    _prepare(setup)
    recorded = Recorded()
    failure: list[BaseException] = []

    def in_thread() -> None:
        try:
            trio.run(execute, setup, recorded, _quiet)
        except BaseException as error:  # handed to the caller's thread, below
            failure.append(error)

    thread = threading.Thread(target=in_thread, name="conformance.check", daemon=True)
    thread.start()
    thread.join()
    if failure:
        raise failure[0]
    return report_from(setup, recorded)


def _namespace(url: str, options: dict[str, object]) -> argparse.Namespace:
    parser = OneLineParser()
    run_options.configure(parser)
    args = parser.parse_args([])
    for name, value in options.items():
        if not hasattr(args, name) or name in ("url", "list_requests"):
            raise TypeError(f"check() has no option {name!r}")
        setattr(args, name, value)
    args.url = url
    return args


def _prepare(setup: Setup) -> None:
    """What can fail before anything is sent: the cases, and the folder for dossiers."""
    setup.widest_plan()
    if setup.captures is not None:
        try:
            setup.captures.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(f"--captures {setup.captures}: {error.strerror}") from None


def _stderr(line: str) -> None:
    print(terminal(line), file=sys.stderr, flush=True)


def _quiet(line: str) -> None:
    """For `check`: a library does not write to its caller's terminal."""


# -- recording -------------------------------------------------------------------------------------


async def _until_interrupted(setup: Setup, recorded: Recorded, log: Log) -> None:
    """Execute; the first Ctrl-C ends it early and keeps what there is."""
    failure: StreamproofError | None = None
    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async with trio.open_nursery() as nursery:

            async def watch() -> None:
                await anext(signals)
                log("interrupted: judging what was recorded")
                nursery.cancel_scope.cancel()

            nursery.start_soon(watch)
            try:
                await execute(setup, recorded, log)
            except StreamproofError as error:  # out of the nursery's group, into the one line
                failure = error
            nursery.cancel_scope.cancel()
    if failure is not None:
        raise failure


async def execute(setup: Setup, recorded: Recorded, log: Log) -> None:
    """Run everything into `recorded`. Raises TargetError if there is nothing to test."""
    recorder = Recorder(setup.door, secrets=setup.secrets)
    discovery = Discovery(
        recorder,
        setup.target,
        setup.apis,
        clocks=setup.clocks,
        fields=setup.fields,
        quick=setup.quick,
    )
    found = await discovery.run()
    _discovered(setup, recorded, found)
    log(_summary(found, recorded.plan, setup.quick))
    runner = _Runner(setup, recorder, recorded, log, found.answers)
    if any(SCENARIOS[job.scenario].watches for job in recorded.plan.jobs):
        runner.meter = await _meter(setup, recorder, recorded)
    for phase, jobs in recorded.plan.phases():
        log(f"{phase.name.lower()}: {len(jobs)} scenarios")
        await runner.run(jobs)
    recorded.complete = True


async def _meter(setup: Setup, recorder: Recorder, recorded: Recorded) -> Meter | None:
    """What scrapes the server's own metrics; None, and a note where they were asked for."""
    if not setup.scrapes:
        return None
    url, target = setup.metrics, setup.target
    path, fields = path_beside(target.url), setup.fields
    if url is not None:
        path, fields = url.path, ()
        if not same_server(url, target.url):
            # Another server is not told what is meant for this one.
            target = Target(url)
            recorder = recorder.beside(setup.door_to(url), setup.secrets)
    meter = await meter_of(recorder, target, path, setup.target.metrics_map, fields)
    if meter is None and url is not None:
        said = "shows no metrics that we know; name them in the target file's metrics.map"
        recorded.notes = (*recorded.notes, f"{url} {said}")
    return meter


def _discovered(setup: Setup, recorded: Recorded, found: Found) -> None:
    cost = Cost(found.requests, found.tokens)
    recorded.endpoints, recorded.notes = found.endpoints, found.notes
    recorded.plan = setup.plan(found.endpoints, cost)
    recorded.sent = cost
    for dossier in found.dossiers:
        _keep(setup, recorded, replace(dossier, seed=setup.seed))


def _summary(found: Found, plan: Plan, quick: bool) -> str:
    apis = ", ".join(endpoint.api for endpoint in found.endpoints)
    lacking = sorted({name for endpoint in found.endpoints for name in endpoint.unsupported})
    without = f"; unsupported: {', '.join(lacking)}" if lacking and not quick else ""
    cost = plan.cost
    return f"{apis} answer{without}; at most {cost.requests} requests, {cost.tokens} tokens"


class _Runner:
    """Runs the jobs of one phase: those that bear company first, then one after the other."""

    def __init__(
        self,
        setup: Setup,
        recorder: Recorder,
        recorded: Recorded,
        log: Log,
        answers: Mapping[str, Mapping[bytes, Capture]],
    ) -> None:
        self._setup, self._recorder, self._recorded, self._log = setup, recorder, recorded, log
        self._endpoints = {endpoint.api: endpoint for endpoint in recorded.endpoints}
        self._places = trio.CapacityLimiter(setup.concurrency)
        self._refused = 0  # scenarios one after the other that could not connect at all
        self._begun: set[str] = set()
        self.meter: Meter | None = None
        self._memories: dict[str, dict[str, Json]] = {}
        self._answers = {api: dict(found) for api, found in answers.items()}

    async def run(self, jobs: Sequence[Job]) -> None:
        async with trio.open_nursery() as nursery:
            for job in jobs:
                if not job.alone:
                    await self._places.acquire_on_behalf_of(job.name)
                    nursery.start_soon(self._in_company, job)
        for job in jobs:
            if job.alone:
                await self._job(job)

    async def _in_company(self, job: Job) -> None:
        try:
            await self._job(job)
        finally:
            self._places.release_on_behalf_of(job.name)

    async def _job(self, job: Job) -> None:
        """One scenario, and one more attempt if the transport failed."""
        if not all(self._endpoints[job.api].has(need) for need in needs_of(job)):
            return  # found out since the plan was made
        if self._refused >= DEAD_AFTER:
            plan = self._recorded.plan
            self._recorded.plan = replace(plan, dropped=(*plan.dropped, (job, "dead")))
            return
        dossier = await self._attempt(job)
        failed = transport_failure(dossier)
        if failed is not None and self._affords(job):
            _keep(self._setup, self._recorded, replace(dossier, name=f"{job.name}-attempt-1"))
            await trio.sleep(PAUSE)
            dossier = await self._attempt(job)
            failed = transport_failure(dossier)
        if any(True for _ in dossier.own()):
            self._refused = self._refused + 1 if is_refused(dossier) else 0
        if failed is not None:
            dossier = self._failed(dossier, failed)
        _keep(self._setup, self._recorded, dossier)
        if self._setup.verbose or sys.stderr.isatty():
            self._log(f"  {job.name}{': ' + failed if failed else ''}")

    def _failed(self, dossier: Dossier, failed: str) -> Dossier:
        """Said in the report and in the dossier, and not hidden behind what else it holds."""
        self._recorded.notes = (*self._recorded.notes, f"{dossier.name}: {failed}")
        abstain: Json = {"reason": "net", "detail": failed}
        return replace(dossier, picked={**dossier.picked, "abstain": abstain})

    async def _attempt(self, job: Job) -> Dossier:
        self._begun.add(job.name)
        endpoint, scenario = self._endpoints[job.api], SCENARIOS[job.scenario]
        empty = Dossier(
            job.scenario,
            {},
            api=job.api,
            parameters=job.parameters,
            seed=self._setup.seed,
            trial=job.trial,
            dialect=self._setup.target.dialect,
            name=job.name,
        )
        driver = Driver(
            self._recorder,
            self._setup.target,
            endpoint,
            clocks=self._setup.clocks,
            secret_fields=self._setup.fields,
            empty=empty,
            meter=self.meter,
            memory=self._memories.setdefault(job.api, {}),
            answers=self._answers.setdefault(job.api, {}),
        )
        try:
            return await scenario.drive(driver, scenario.asks(endpoint, job.parameters))
        except StreamproofError:
            raise
        except Exception as error:  # a defect of ours must cost one scenario, not the whole run
            self._log(f"{job.name}: {Verdict.HARNESS_ERROR.value}: {where(error)}")
            broken: Json = {"reason": Verdict.HARNESS_ERROR.value, "detail": where(error)}
            return driver.dossier(abstain=broken)
        finally:
            self._recorded.sent += Cost(driver.sent, driver.tokens)
            self._learn(job.api, driver.lacking)

    def _learn(self, api: str, lacking: Mapping[str, str]) -> None:
        """What a scenario found refused is unsupported, for the report and all that is to come."""
        if lacking:
            known = self._endpoints[api]
            self._endpoints[api] = replace(known, unsupported={**known.unsupported, **lacking})
            self._recorded.endpoints = tuple(self._endpoints.values())

    def _affords(self, job: Job) -> bool:
        """Is there room in the budget for this scenario once more, and all that is to come?"""
        again = SCENARIOS[job.scenario].again
        return again and (self._recorded.sent + job.cost + self._rest()).within(self._setup.limits)

    def _rest(self) -> Cost:
        """What every job that has not begun may still cost."""
        return sum(
            (job.cost for job in self._recorded.plan.jobs if job.name not in self._begun), Cost()
        )


def _keep(setup: Setup, recorded: Recorded, dossier: Dossier) -> None:
    recorded.dossiers.append(dossier)
    if setup.captures is None:
        return
    from conformance import storage  # only who keeps dossiers needs the format

    path = setup.captures / f"{dossier.name}.jsonl"
    try:
        path.write_bytes(storage.write(dossier))
    except (OSError, RecordError) as error:
        recorded.notes = (*recorded.notes, f"{dossier.name} was not kept: {error}")
