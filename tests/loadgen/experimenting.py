"""An experiment and its server in one trio run, over loopback sockets and a virtual clock."""

from __future__ import annotations

from dataclasses import replace

import trio

from conformance.options import OneLineParser
from loadgen.experiments.command import gates_from_args, playing_from_args
from loadgen.experiments.options import configure
from loadgen.experiments.outcome import Outcome, outcome_of
from loadgen.experiments.playing import Playing
from loadgen.experiments.spec import CONTROL, find
from reference_server.bridge import Bridge
from reference_server.engine.scripted import ScriptedEngine
from reference_server.faults.table import FAULTS, seams_for
from reference_server.wire.server import Server, Settings
from tests.loadgen.playing import virtually

STEP = 0.02  # seconds a token


def experimented(
    name: str,
    *words: str,
    faults: tuple[str, ...] = (),
    batch: int = 16,
    waiting: int | None = None,
    loads: tuple[str, ...] = (),
) -> Outcome:
    """`words`: of the command line. `waiting`: how many requests may. `loads`: of the experiment
    only these, besides the control."""
    parser = OneLineParser(add_help=False)
    configure(parser)
    out: list[Outcome] = []

    async def main() -> None:
        bridge = Bridge(ScriptedEngine(batch, seed=7), STEP)
        settings = Settings(max_waiting=waiting)
        server = Server(bridge, settings, seams=seams_for([FAULTS[each] for each in faults]))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(bridge.run)
            listeners = await nursery.start(trio.serve_tcp, server.serve_connection, 0)
            url = f"http://127.0.0.1:{listeners[0].socket.getsockname()[1]}/v1"
            args = parser.parse_args([name, url, "--checks", "none", *words])
            playing = playing_from_args(args, find(name))
            if loads:
                chosen = [
                    each for each in playing.experiment.loads if each.name in (CONTROL, *loads)
                ]
                playing.experiment = replace(playing.experiment, loads=tuple(chosen))
            playing.plain = replace(playing.plain, clock="user", paced=False)
            out.append(await _played(playing, gates_from_args(args, find(name))))
            nursery.cancel_scope.cancel()

    virtually(main, 36_000)
    return out[0]


async def _played(playing: Playing, gates: object) -> Outcome:
    await playing.play(lambda shot, number, most: None)
    return outcome_of(
        playing.experiment,
        playing.options,
        playing.shots,
        gates,  # type: ignore[arg-type]
        complete=playing.complete,
    )
