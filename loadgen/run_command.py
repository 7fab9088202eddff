"""`loadgen run`: the preflight, the load, one look at every answer, the reports."""

from __future__ import annotations

import argparse
import os
import resource
import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial

from conformance.errors import StreamproofError
from conformance.recorder import Recorder
from conformance.report.escape import terminal
from loadgen import archive, export, page, sharded, together
from loadgen.counting import spelled, told
from loadgen.interrupting import Shelter, running, sheltered
from loadgen.keeping import chosen, folder, keep
from loadgen.kept import Kept
from loadgen.looking import tally
from loadgen.meanwhile import meanwhile
from loadgen.output import Outputs
from loadgen.play import Playing
from loadgen.played import Played
from loadgen.players import player_of
from loadgen.preflight import preflight
from loadgen.recording import recording
from loadgen.recovery import check_of
from loadgen.result import Ran, Result, Target, exit_of, result_of
from loadgen.scraping import scraper_of
from loadgen.selftest_record import quoted
from loadgen.setup import CONNECT, Setup, setup_from_args
from loadgen.solo import alone
from loadgen.summary import Window
from loadgen.versions import version


def main(args: argparse.Namespace) -> int:
    """The command. Returns the exit code; raises StreamproofError for what cannot run."""
    descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    setups = [
        setup_from_args(argparse.Namespace(**{**vars(args), "seed": seed}), os.environ, descriptors)
        for seed in range(args.seed, args.seed + (args.repeat or 1))
    ]
    wanted = {"json": args.json, "jsonl": args.jsonl, "csv": args.csv, "html": args.html}
    with Outputs(wanted) as outputs, Shelter() as shelter:
        results = list(played(setups, shelter))
        outputs.write("json", archive.dumps(results, version(), definitions=args.definitions))
        outputs.write("jsonl", export.json_lines(*results))
        outputs.write("csv", export.csv_lines(*results))
        outputs.write("html", page.parts(results, page.numbered(results)))
        outputs.tell(together.render(results, definitions=args.definitions))
    return exit_of(results)


def played(setups: Sequence[Setup], shelter: Shelter) -> Iterator[Result]:
    """One after the other; an interruption ends them all, and so does one that cannot run: what
    was measured before is told, the last of it as incomplete. Raises where nothing was.
    """
    last: tuple[Setup, Ran] | None = None
    for setup in setups:
        try:
            with shelter.lifted(loses=last is not None):
                ran = running(perform, setup, None, shelter)
        except (StreamproofError, KeyboardInterrupt) as error:
            if last is None:
                raise
            why = "interrupted" if isinstance(error, KeyboardInterrupt) else str(error)
            print(f"loadgen: the runs end early: {terminal(why)}", file=sys.stderr)
            last = last[0], replace(last[1], complete=False)
            break
        if last is not None:
            yield judged(*last)
        last = setup, ran
        if not ran.complete:
            break
    if last is not None:
        yield judged(*last)


def judged(setup: Setup, ran: Ran) -> Result:
    """The run with everything that gates it."""
    sent = sum(row.was_sent for row in ran.rows)
    return result_of(ran, setup.slos, setup.allowed.most_of(sent), setup.allowed.text)


async def perform(
    setup: Setup,
    beside: Callable[[Playing], Awaitable[None]] | None = None,
    shelter: Shelter | None = None,
) -> Ran:
    """`execute`, or by workers where the setup says so."""
    if setup.ray is None and (setup.workers or 1) == 1:
        return await execute(setup, beside, shelter=shelter)
    return await sharded.execute(setup, beside, shelter)


async def execute(
    setup: Setup,
    beside: Callable[[Playing], Awaitable[None]] | None = None,
    seen: Callable[[Sequence[Played]], None] | None = None,
    shelter: Shelter | None = None,
) -> Ran:
    """Play the load and look at what came. SIGINT and SIGTERM end it early, with all it has.

    `beside`: runs while the load does, and may interrupt it. `seen`: is shown what was recorded.
    `shelter`: of the whole command.
    """
    captures = folder(setup.captures) if setup.captures else None
    recorder = Recorder(setup.door, secrets=setup.secrets)
    endpoint = await preflight(recorder, setup.target, setup.api, setup.fields, CONNECT)
    workload = await spelled(setup, recorder, endpoint, setup.for_model(endpoint.model))
    kept = Kept(workload)
    check = await check_of(setup, recorder, endpoint, workload)
    with ExitStack() as beginning:
        async with recording(setup.door, setup.clock, setup.secrets, paced=setup.paced) as made:
            player = player_of(setup, endpoint, workload, made, kept.take)
            scraper = await scraper_of(setup, recorder, made.recorder.now)
            signals = beginning.enter_context(sheltered(shelter))
            play = partial(player.play, setup.load)
            offered = await meanwhile(
                play, player, setup.load, workload.stride, scraper, beside, signals
            )
            served = None if scraper is None else await signals.unless_interrupted(scraper.finish)
        recovery = None
        if check is not None and offered.complete:
            recovery = await signals.unless_interrupted(check.recovered)
        if seen is not None:
            seen(kept.waiting)
        looks = kept.looks(setup.checks, os.cpu_count() or 1, lambda: signals.heard)
        rows, found = tally(looks)
        found.unjudged = kept.unjudged
        if captures is not None:
            keep(captures, setup.api, kept.waiting, chosen(rows, found.broken))
        solo = None
        if setup.solo is not None and offered.complete:
            again = partial(setup.exchange, endpoint)
            solo = await signals.unless_interrupted(
                partial(alone, recorder, again, workload, looks, setup.solo)
            )
        return Ran(
            target=Target(str(setup.target.url), setup.api, endpoint.model),
            load={**setup.described, **told(workload), **made.described()},
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
            selftest=quoted(),
        )
