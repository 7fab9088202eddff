"""Playing an experiment: its loads one after the other, each a run of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from conformance.capture import Capture, Json
from conformance.script import Clocks
from loadgen.experiments.context import context_of
from loadgen.experiments.figures import Shot
from loadgen.experiments.quiet import quiet
from loadgen.experiments.reports import REPORTS
from loadgen.experiments.spec import CONTEXT, CONTROL, MOST, Experiment
from loadgen.experiments.staging import Cast, Pace, Stage, Staged, Turn, pace_of, turns
from loadgen.played import Played
from loadgen.result import Result
from loadgen.run_command import execute, judged
from loadgen.setup import CONNECT, Setup

Tell = Callable[[Shot, int, int], None]  # the load, its number, and of how many
TRIES = 3  # of a load
EVERY = 0.05  # seconds between two looks at the server's metrics


@dataclass(slots=True)
class Playing:
    """One experiment on one endpoint. `plain`: a setup without a load. `shots`: what was played
    to its end; `complete`: nothing was cut short."""

    experiment: Experiment
    options: Mapping[str, int]
    plain: Setup
    seed: int
    shots: list[Shot] = field(default_factory=list)
    complete: bool = False
    _pace: Pace | None = None
    _context: int | None = None

    async def play(self, tell: Tell) -> None:
        """SIGINT and SIGTERM end it with the shots that there are."""
        if any(part.input == CONTEXT for load in self.experiment.loads for part in load.parts):
            self._context = await context_of(self.plain)
        at_most = int(min(MOST, self.plain.limits.in_flight))
        planned = list(turns(self.experiment, self.options, at_most))
        ended_at: int | None = None  # the n at which something broke
        for number, turn in enumerate(planned, 1):
            if ended_at is not None and (turn.n or 0) > ended_at:
                continue
            shot = await self._settled(turn)
            if _interrupted(shot, self._setup(turn)):
                return
            await quiet(self.plain, shot)
            self.shots.append(shot)
            tell(shot, number, len(planned))
            ended_at = turn.n if self._broke(shot) else ended_at
        self.complete = True

    async def _settled(self, turn: Turn) -> Shot:
        """Once more, and once again, where it broke or our own client was the limit."""
        for number in range(1, TRIES + 1):
            shot = replace(await self._shot(turn), tries=number)
            spoilt = any(doubt.is_of_client for doubt in shot.result.doubts)
            cut = _interrupted(shot, self._setup(turn))
            if cut or not (spoilt or self._broke(shot)):
                break
        return shot

    def _broke(self, shot: Shot) -> bool:
        """Is it where the experiment ends?"""
        broke = REPORTS[self.experiment.report].broke
        if not self.experiment.until_broken or broke is None or not shot.result.complete:
            return False
        return broke(shot, self.options) is not None

    async def _shot(self, turn: Turn) -> Shot:
        setup = self._setup(turn)
        kept: dict[int, Capture] = {}

        def seen(played: Sequence[Played]) -> None:
            kept.update((p.index, p.capture) for p in played if p.capture is not None)

        wanted = REPORTS[self.experiment.report].captures
        ran = await execute(setup, None, seen if wanted else None)
        result: Result = judged(setup, ran)
        if turn.load.name == CONTROL and result.complete:
            self._pace = pace_of(result)
        return Shot(turn, result, kept)

    def _setup(self, turn: Turn) -> Setup:
        """The load of this turn, asked for at temperature 0."""
        stage = Stage(self.options, turn, self._seed(turn), self._pace, self._context)
        cast, solo = stage.cast(), stage.number(turn.load.solo)
        described: dict[str, Json] = {
            **self.plain.described,
            "experiment": self.experiment.name,
            "load": turn.name,
            "streams_at_most": self.plain.limits.in_flight,
        }
        pause = max((m.client.slow.pause for m in cast if m.client.slow is not None), default=0.0)
        workload = Staged(
            api=self.plain.api,
            model=self.plain.workload.model,
            seed=stage.seed,
            clients=Cast(members=cast),
            greedy=True,
            members=cast,
        )
        return replace(
            self.plain,
            load=stage.load(cast),
            workload=workload,
            described=described,
            solo=solo or None,
            steady=False,
            warmup=-CONNECT,  # all of it counts, to the first instant
            tokenizer=None,
            every=EVERY,
            clocks=_longer(self.plain.clocks, pause),
        )

    def _seed(self, turn: Turn) -> str:
        """Loads that are to ask the same share it."""
        seed = f"{self.seed}:{turn.round}"
        return seed if self.experiment.same_prompts else f"{seed}:{turn.name}"


def _interrupted(shot: Shot, setup: Setup) -> bool:
    """Also while the requests alone were asked: then nothing is said of them."""
    return not shot.result.complete or (setup.solo is not None and shot.result.solo is None)


def _longer(clocks: Clocks, pause: float) -> Clocks:
    """Who does not read for a while is not to run out of patience meanwhile."""
    return replace(
        clocks,
        first_byte=clocks.first_byte + pause,
        progress=clocks.progress + pause,
        total=clocks.total + pause,
    )
