"""`loadgen run`: the preflight, the load, one look at every answer, the reports."""

from __future__ import annotations

import argparse
import os
import resource
import signal
from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial
from typing import TypeVar

import trio

from conformance.capture import Capture
from conformance.recorder import Recorder
from loadgen import archive, export, page, progress, together
from loadgen.keeping import chosen, folder, keep
from loadgen.lookers import Job, looks
from loadgen.looking import Checks, Look, tally
from loadgen.measure import row_from
from loadgen.output import Outputs
from loadgen.play import Player
from loadgen.played import Played
from loadgen.preflight import preflight
from loadgen.recording import recording
from loadgen.recovery import check_of
from loadgen.result import Ran, Result, Target, exit_of, result_of
from loadgen.scraping import scraper_of
from loadgen.setup import CONNECT, Setup, setup_from_args
from loadgen.solo import alone
from loadgen.summary import Window
from loadgen.versions import version
from loadgen.workload import Workload

HELD_AT_MOST = 256 << 20  # bytes of answers kept until the load is over
Found = TypeVar("Found")
A_READ, A_CAPTURE = 100, 2000  # bytes of the records themselves


def main(args: argparse.Namespace) -> int:
    """The command. Returns the exit code; raises StreamproofError for what cannot run."""
    descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    setups = [
        setup_from_args(argparse.Namespace(**{**vars(args), "seed": seed}), os.environ, descriptors)
        for seed in range(args.seed, args.seed + args.repeat)
    ]
    wanted = {"json": args.json, "jsonl": args.jsonl, "csv": args.csv, "html": args.html}
    with Outputs(wanted) as outputs:
        results = list(_played(setups))
        outputs.write("json", archive.dumps(results, version(), definitions=args.definitions))
        outputs.write("jsonl", export.json_lines(*results))
        outputs.write("csv", export.csv_lines(*results))
        outputs.write("html", page.parts(results, page.numbered(results)))
        outputs.tell(together.render(results, definitions=args.definitions))
    return exit_of(results)


def _played(setups: Sequence[Setup]) -> Iterator[Result]:
    """One after the other; an interruption ends them all."""
    for setup in setups:
        result = judged(setup, trio.run(execute, setup))
        yield result
        if not result.complete:
            return


def judged(setup: Setup, ran: Ran) -> Result:
    """The run with everything that gates it."""
    sent = sum(row.was_sent for row in ran.rows)
    return result_of(ran, setup.slos, setup.allowed.most_of(sent), setup.allowed.text)


async def execute(setup: Setup, beside: Callable[[Player], Awaitable[None]] | None = None) -> Ran:
    """Play the load and look at what came. SIGINT and SIGTERM end it early, with all it has.

    `beside`: runs while the load does, and may interrupt it.
    """
    captures = folder(setup.captures) if setup.captures else None
    recorder = Recorder(setup.door, secrets=setup.secrets)
    endpoint = await preflight(recorder, setup.target, setup.api, setup.fields, CONNECT)
    workload = setup.for_model(endpoint.model)
    kept = _Kept(workload)
    script = partial(setup.script, endpoint, workload)
    check = await check_of(setup, recorder, endpoint, workload)

    def own(index: int) -> bool:
        return workload.clients.of(workload.seed, index).own

    async with recording(setup.door, setup.clock, setup.secrets, paced=setup.paced) as made:
        player = Player(made.recorder, script, kept.take, setup.limits, made.sleep, own)
        scraper = await scraper_of(setup, recorder, made.recorder.now)
        async with trio.open_nursery() as nursery:
            await nursery.start(_listen, player)
            if progress.wanted():
                nursery.start_soon(progress.show, player, setup.load)
            if scraper is not None:
                nursery.start_soon(scraper.watch)
            if beside is not None:
                nursery.start_soon(beside, player)
            offered = await player.play(setup.load)
            nursery.cancel_scope.cancel()
        served = None if scraper is None else await _unless_interrupted(scraper.finish)
    recovery = None
    if check is not None and offered.complete:
        recovery = await _unless_interrupted(check.recovered)
    rows, found = tally(kept.looks(setup.checks))
    found.unjudged = kept.unjudged
    if captures is not None:
        keep(captures, setup.api, kept.waiting, chosen(rows, found.broken))
    solo = None
    if setup.solo is not None and offered.complete:
        again = partial(setup.script, endpoint)
        solo = await _unless_interrupted(
            partial(alone, recorder, again, workload, rows, setup.solo)
        )
    return Ran(
        target=Target(str(setup.target.url), setup.api, endpoint.model),
        load={**setup.described, **made.described()},
        rows=rows,
        tally=found,
        gates=setup.gates,
        window=Window(offered.start + setup.warmup, offered.end),
        lags=offered.lags,
        complete=offered.complete,
        steady=setup.steady,
        recovery=recovery,
        solo=solo,
        served=served,
    )


async def _unless_interrupted(work: Callable[[], Awaitable[Found]]) -> Found | None:
    """What it returns; None where SIGINT or SIGTERM ended it early."""
    found: list[Found] = []

    async def listen(task_status: trio.TaskStatus[None]) -> None:
        with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
            task_status.started()
            async for _ in signals:
                nursery.cancel_scope.cancel()

    async with trio.open_nursery() as nursery:
        await nursery.start(listen)
        found.append(await work())
        nursery.cancel_scope.cancel()
    return found[0] if found else None


async def _listen(player: Player, task_status: trio.TaskStatus[None]) -> None:
    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        task_status.started()
        async for _ in signals:
            player.interrupt()


class _Kept:
    """What was played. Answers wait for their look until the load is over, within a bound."""

    def __init__(self, workload: Workload) -> None:
        self._workload = workload
        self.waiting: list[Played] = []
        self._done: list[Look] = []
        self._held = 0
        self.unjudged = 0

    def take(self, played: Played) -> None:
        self._held += 0 if played.capture is None else _size(played.capture)
        self.waiting.append(played)
        if self._held > HELD_AT_MOST:
            self._done += map(self._measured, self.waiting)
            self.waiting, self._held = [], 0

    def _measured(self, played: Played) -> Look:
        """Without the checks: there is a load to be kept up, or somebody waits."""
        self.unjudged += bool(played.capture and played.capture.received)
        ask = self._workload.ask(played.index)
        return Look(row_from(played, ask, self._workload.api), None)

    def looks(self, checks: Checks) -> list[Look]:
        """Every request; an interruption ends the judging, not the measuring."""
        job = Job(self._workload, checks)
        try:
            for found in looks(job, self.waiting, os.cpu_count() or 1):
                self._done.append(found)
        except KeyboardInterrupt:
            looked = {found.row.index for found in self._done}
            rest = [played for played in self.waiting if played.index not in looked]
            self._done += map(self._measured, rest)
        return self._done


def _size(capture: Capture) -> int:
    """About the memory that it takes."""
    request = sum(len(segment.data) for segment in capture.request)
    return len(capture.received) + request + A_READ * len(capture.reads) + A_CAPTURE
